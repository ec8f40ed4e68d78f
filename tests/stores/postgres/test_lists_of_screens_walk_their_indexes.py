"""What screens and scrapers read goes through an index: few incidents, services and schedules among many jobs.

Figures: two days of minutes of many names and workers. Workers and loops are rows of a small table: they read no tasks.
"""

import re
import time

import pytest

from everpoll.stores.contract import NewTask, TaskFilter, TaskState
from everpoll.stores.figures import HOUR_S, MINUTE_S
from everpoll.stores.postgres import PostgresStore
from servers.databases import PostgresServers
from stores.backends import PostgresBackend
from stores.postgres.test_plans_do_not_flip import EXPLAIN, Plans, keep_autovacuum_away
from stores.stage import Stage, done

WHOLE = re.compile(
    r"(?:Seq Scan|Bitmap Heap Scan|Parallel \w+ Scan) on (?:tasks|history_\d+|events)\b[^\n]*|Seq Scan on figures"
)
FIGURES = """insert into everpoll.figures (incarnation, span_s, kind, name, queue, began, counts, waited, ran)
    select w, $1, 'job', n.name, n.queue, $2 - i * $1, '{"done":1}', ''::bytea, ''::bytea
    from generate_series(0, 500) i, generate_series(1, 3) w,
         (values ('', ''), ('', 'default'), ('job-1', 'default'), ('job-2', 'mail'), ('job-3', 'mail'))
         n (name, queue)"""
KINDS = ("check", "incident", "schedule")
STATISTICS = ["of the empty tables", "fresh"]


@pytest.fixture
def backend(backend: PostgresBackend) -> PostgresBackend:
    """One connection for all lanes, which is told to write its plans into the log."""
    backend.url = f"{backend.url}&connections=2"
    return backend


async def _analyze(store: PostgresStore) -> None:
    for table in ("tasks", "history", "figures", "events", "workers"):
        await store._queries.row(f"vacuum analyze everpoll.{table}")


async def _fill(stage: Stage, store: PostgresStore) -> None:
    worker = await stage.worker()
    for _ in range(3):
        await stage.put(500)
        await store.settle(
            worker,
            [done(one, state="canceled" if one.id % 100 == 0 else "done") for one in await stage.take(worker, 500)],
        )
    await stage.put(2_000, delay_s=3_600.0)
    for kind in KINDS:
        tasks = [NewTask(name=f"everpoll.{kind}", kind=kind, key=f"{kind}-{n}", indexed=True) for n in range(40)]
        await store.enqueue(tasks)
    leases = await stage.take(worker, 200)
    await store.settle(worker, [done(one) for one in leases if one.id % 2])
    now = int(time.time())
    for span_s in (MINUTE_S, HOUR_S):
        await store._queries.row(FIGURES, span_s, now - now % span_s)


@pytest.mark.parametrize("statistics", STATISTICS)
async def test_lists_of_screens(
    stage: Stage, store: PostgresStore, postgres_servers: PostgresServers, major: int, statistics: str
) -> None:
    await keep_autovacuum_away(store)
    if statistics == "of the empty tables":
        await _analyze(store)
    await _fill(stage, store)
    if statistics == "fresh":
        await _analyze(store)
    await store._queries.call(lambda connection: connection.execute(EXPLAIN))
    plans = Plans(postgres_servers, major)
    now = time.time()

    for kind in KINDS:
        assert await store.live(kind, 10)
        _walked(plans.new(), "using tasks_indexed on tasks")
        assert (await store.tasks(TaskFilter(kind=kind, indexed=True), 30)).tasks
        _walked(plans.new(), "using tasks_indexed on tasks", r"using history_\d+_kind\w* on history_\d+")
        assert (await store.tasks(TaskFilter(kind=kind, indexed=True, key_start=f"{kind}-1"), 30)).tasks
        _walked(plans.new(), "using tasks_indexed on tasks", r"using history_\d+_kind\w* on history_\d+")
    states: list[tuple[TaskState, str]] = [
        ("queued", "using tasks_pkey on tasks"),
        ("done", r"using history_\d+_id_idx on history_\d+"),
        ("canceled", r"using history_\d+_id_idx1 on history_\d+"),
    ]
    for state, index in states:
        assert (await store.tasks(TaskFilter(state=state), 5)).tasks
        _walked(plans.new(), index)
    for queue, name in ((None, None), ("default", None), (None, "job-1"), ("mail", "job-2")):
        assert await store.series("throughput", now - 7_200, now, 60, queue, name)
        _walked(plans.new(), r"(?:using|on) figures_\w+ ")
        assert await store.series("waiting", now - 86_400 * 7, now, 3_600, queue, name) is not None
        _walked(plans.new(), r"(?:using|on) figures_\w+ ")
    assert await store.workers()
    _walked(plans.new(), r"on workers")
    await store.published_loops()
    _walked(plans.new(), r"on workers")


def _walked(plan: str, *indexes: str) -> None:
    assert WHOLE.findall(plan) == [], plan
    for index in indexes:
        assert re.search(index, plan), f"{index}\n{plan}"
