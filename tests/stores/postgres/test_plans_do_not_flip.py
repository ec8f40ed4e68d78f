"""Leasing and settling walk their indexes whatever the statistics say: stale, empty or fresh, at every batch size.

Plain EXPLAIN does not see into functions; auto_explain does, and writes to the server's log.
"""

import re
from datetime import UTC, datetime

import pytest

from everpoll.drivers.postgres.lane import Connection
from everpoll.stores.contract import LEASE_LIMIT, Again, Ended, Limit, NewEvent, NewTask, TaskFilter
from everpoll.stores.operations import Revision
from everpoll.stores.postgres import PostgresStore
from everpoll.stores.postgres.functions import versioned
from servers.databases import PostgresServers
from stores.backends import PostgresBackend
from stores.stage import HOUR_S, LEASE_S, WATCH, Stage, again, done

FLOOD = 3_000
EXPLAIN = """load 'auto_explain'; set auto_explain.log_min_duration = 0; set auto_explain.log_nested_statements = on"""
# Scans of the live tasks that read more than was asked for, or give the order of the index away.
BAD = re.compile(r"(?:Seq Scan|Bitmap Heap Scan|Parallel \w+ Scan) on tasks\b[^\n]*")

STATISTICS = [
    "fresh",
    "none, plans cached while it was empty",
    "of the empty table",
    "of a table with everything leased",
    "of a table where all wait",
]


@pytest.fixture
def backend(backend: PostgresBackend) -> PostgresBackend:
    """One connection for all lanes, which is told to write its plans into the log."""
    backend.url = f"{backend.url}&connections=2"
    return backend


class Plans:
    """What the server planned since it was last asked."""

    def __init__(self, servers: PostgresServers, major: int) -> None:
        self._server = servers[major].server
        self._read = len(self._server.log())

    def new(self) -> str:
        log = self._server.log()
        self._read, start = len(log), self._read
        return log[start:]


async def explained(store: PostgresStore) -> None:
    for lane in (store._leasing._lane, store._settlements):
        await lane.call(lambda connection: connection.execute(EXPLAIN))


async def turn(stage: Stage, worker: int, most: int) -> None:
    leases = await stage.take(worker, most)
    batch = [
        done(one) if number % 3 else again(one, HOUR_S) if number % 2 else done(one, 1)
        for number, one in enumerate(leases)
    ]
    assert await stage.store.settle(worker, batch) == set()


async def prepare(stage: Stage, store: PostgresStore, worker: int, statistics: str) -> None:
    await store._queries.row("alter table everpoll.tasks set (autovacuum_enabled = off)")
    if statistics == "of a table with everything leased":
        await stage.put(400)
        await stage.take(worker, 400)
    elif statistics == "of a table where all wait":
        await stage.put(2_000, delay_s=HOUR_S)
    for _ in range(8):  # a plan is cached after the fifth
        await turn(stage, worker, 10)
    if statistics.startswith("of"):
        await store._queries.row("analyze everpoll.tasks")
    await stage.put(FLOOD)
    if statistics == "fresh":
        await store._queries.row("analyze everpoll.tasks")


@pytest.mark.parametrize("statistics", STATISTICS)
async def test_every_batch_size(
    stage: Stage, store: PostgresStore, postgres_servers: PostgresServers, major: int, statistics: str
) -> None:
    worker = await stage.worker()
    await prepare(stage, store, worker, statistics)
    await explained(store)
    plans = Plans(postgres_servers, major)
    for most in (1, 10, 100, LEASE_LIMIT):
        await turn(stage, worker, most)
        plan = plans.new()
        assert BAD.findall(plan) == []
        assert "Index Scan using tasks_ready on tasks" in plan
        assert "Tid Scan on tasks" in plan
        assert "Index Scan using tasks_pkey on tasks" in plan


async def test_waiting_tasks_are_promoted_by_their_index(
    stage: Stage, store: PostgresStore, postgres_servers: PostgresServers, major: int
) -> None:
    """Beside many that still wait."""
    worker = await stage.worker()
    await stage.put(3_000, delay_s=HOUR_S)
    ids = await stage.put(200, delay_s=30)
    await stage.pass_time(31)
    await explained(store)
    plans = Plans(postgres_servers, major)
    assert [one.id for one in await stage.take(worker, 300)] == ids
    plan = plans.new()
    assert BAD.findall(plan) == []
    assert "Index Scan using tasks_waiting on tasks" in plan or "Index Only Scan using tasks_waiting on tasks" in plan


async def test_a_beat_that_finds_all_workers_alive_reads_no_tasks(
    stage: Stage, store: PostgresStore, postgres_servers: PostgresServers, major: int
) -> None:
    """Only where a worker is dead or something overdue, the leased tasks are looked for."""
    worker = await stage.worker()
    await stage.put(500)
    await stage.take(worker, 10)
    await store._queries.call(lambda connection: connection.execute(EXPLAIN))
    plans = Plans(postgres_servers, major)
    sql = versioned("select * from everpoll.beat($1, $2, $3)")
    assert (await store._queries.row(sql, worker, LEASE_S, []))["is_alive"]
    assert not re.search(r"Scan .* on tasks", plans.new())
    witness = await stage.worker()
    plans.new()
    rescue = versioned("select * from everpoll.rescue($1, $2, $3, $4, $5, $6)")
    assert (await store._queries.row(rescue, witness, [worker], [1], [], [], 3))[0] == 10
    plan = plans.new()
    assert BAD.findall(plan) == []
    assert "tasks_ready" in plan


async def test_a_lease_is_a_hot_update(stage: Stage, store: PostgresStore) -> None:
    """It writes no index: so many rows, so many updates in place."""
    worker = await stage.worker()
    await stage.put(300)
    await store._queries.row("vacuum everpoll.tasks")

    async def in_transaction(connection: Connection) -> tuple[int, int]:
        async with connection.transaction():
            await connection.fetchrow(
                versioned("""select * from everpoll.lease($1, 300, '{default}', '{300}', 1000000, null, null, null,
                    null, true, '{-infinity}', false)"""),
                worker,
            )
            row = await connection.fetchrow(
                """select pg_stat_get_xact_tuples_hot_updated(oid), pg_stat_get_xact_tuples_updated(oid)
                   from pg_class where oid = 'everpoll.tasks'::regclass"""
            )
            return int(row[0]), int(row[1])

    assert await store._queries.call(in_transaction) == (300, 300)


async def test_ill_ended_tasks_are_found_by_their_own_index(
    stage: Stage, store: PostgresStore, postgres_servers: PostgresServers, major: int
) -> None:
    """The few failed ones among many that went well."""
    worker = await stage.worker()
    await stage.put(2_000)
    for _ in range(4):
        leases = await stage.take(worker, 500)
        await store.settle(worker, [done(one, state="done" if one.id % 500 else "failed") for one in leases])
    await store._queries.row("analyze everpoll.history")
    await store._queries.call(lambda connection: connection.execute(EXPLAIN))
    plans = Plans(postgres_servers, major)
    page = await store.tasks(TaskFilter(state="failed"), 2)
    assert len(page.tasks) == 2
    plan = plans.new()
    assert re.search(r"Index Scan Backward using history_\d+_id_idx1 ", plan), plan


MOMENTS = ["of the empty tables", "of a table with jobs alone", "of a table with watches alone", "fresh"]


@pytest.mark.parametrize("plans_are", ["force_custom_plan", "force_generic_plan"])
@pytest.mark.parametrize("statistics", MOMENTS)
async def test_watches_among_many_jobs_are_found_by_indexes_of_their_own(
    stage: Stage, store: PostgresStore, postgres_servers: PostgresServers, major: int, statistics: str, plans_are: str
) -> None:
    """By page, by key and by name, live and ended; whatever moment autovacuum chose, so the test chooses each."""

    async def analyzed(moment: str) -> None:
        if moment == statistics:
            await store._queries.row("vacuum analyze everpoll.tasks")
            await store._queries.row("vacuum analyze everpoll.history")

    worker = await stage.worker()
    await keep_autovacuum_away(store)
    await analyzed("of the empty tables")
    for turn in range(5):
        await stage.put(400)
        if turn == 2:
            await analyzed("of a table with jobs alone")
        await store.enqueue([NewTask(name=f"w{turn}", **WATCH, key=f"k{turn}-{one}") for one in range(100)])
        leases = await stage.take(worker, 500)
        await store.settle(worker, [done(one, 1) for one in leases if not one.name.startswith("w")])
        if turn == 3:
            await analyzed("of a table with watches alone")
        await store.settle(worker, [done(one, 1) for one in leases if one.name.startswith("w")])
    await stage.put(2_000)
    await stage.put_one(**WATCH, name="w", key="live")
    await analyzed("fresh")
    orders = f"{EXPLAIN}; set plan_cache_mode = {plans_are}"
    await store._queries.call(lambda connection: connection.execute(orders))
    await find_by_index(store, Plans(postgres_servers, major))


async def keep_autovacuum_away(store: PostgresStore) -> None:
    """From the live tasks and from every part of history."""
    parts = "select inhrelid::regclass::text from pg_inherits where inhparent = 'everpoll.history'::regclass"
    for (table,) in [("everpoll.tasks",), *await store._queries.rows(parts)]:
        await store._queries.row(f"alter table {table} set (autovacuum_enabled = off)")


async def find_by_index(store: PostgresStore, plans: Plans) -> None:
    """Ask for watches in every way, and look at the plans."""
    page = await store.tasks(TaskFilter(kind="watch", indexed=True), 3)
    assert len(page.tasks) == 3
    plan = plans.new()
    assert "using tasks_indexed on tasks" in plan, plan
    assert re.search(r"Index Scan Backward using history_\d+_kind_id_idx ", plan), plan
    assert [one.key for one in await store.live("watch")] == ["live"]
    plan = plans.new()
    assert "using tasks_indexed on tasks" in plan, plan
    assert "Sort Key" not in plan, plan
    assert await store.find("watch", "k3-3") is not None
    plan = plans.new()
    # A key is unique: by a bitmap or not, one row is read.
    assert re.search(r"(using|Bitmap Index Scan on) tasks_key ", plan), plan
    assert re.search(r"using history_\d+_kind_key_ended_at_id_idx ", plan), plan
    assert len(await store.last_results("watch", "w3")) == 100
    plan = plans.new()
    assert "Sort Key" not in re.sub(r"Merge Append.*\n.*Sort Key", "", plan), plan
    assert re.search(r"using history_\d+_kind_name_ended_at_id_idx ", plan), plan


async def test_beginning_once_and_events_walk_their_indexes(
    stage: Stage, store: PostgresStore, postgres_servers: PostgresServers, major: int
) -> None:
    worker = await stage.worker()
    watches = [NewTask(name="w", **WATCH, key=str(number), once=True) for number in range(200)]
    await store.enqueue(watches)
    events = (NewEvent(1, "{}"),)
    ended = [Ended(one.id, one.sequence, events=events) for one in await stage.take(worker, 100)]
    assert await store.settle(worker, ended) == set()
    await stage.put(1_000)
    for lane in (store._entrance, store._settlements, store._queries):
        await lane.call(lambda connection: connection.execute(EXPLAIN))
    plans = Plans(postgres_servers, major)
    assert not any(one.is_new for one in await store.enqueue(watches[:3] + watches[-3:]))
    plan = plans.new()
    assert "using tasks_key on tasks" in plan
    assert re.search(r"using history_\d+_kind_key_ended_at_id_idx ", plan)
    leases = await stage.take(worker, 100)
    plans.new()
    batch = [Again(one.id, one.sequence, 5.0, events=events) for one in leases[:50]]
    assert (
        await store.settle(worker, [*batch, *(Ended(one.id, one.sequence, events=events) for one in leases[50:])])
        == set()
    )
    plan = plans.new()
    assert BAD.findall(plan) == []
    assert "using tasks_pkey on tasks" in plan
    assert not re.search(r"Seq Scan on (tasks|history_\d+|events)\b", plan), plan
    assert len((await store.events("0", 10)).events) == 10
    assert "using events_pkey on events" in plans.new()


@pytest.mark.parametrize("statistics", ["of the empty tables", "fresh"])
async def test_what_people_do_walks_indexes(
    stage: Stage, store: PostgresStore, postgres_servers: PostgresServers, major: int, statistics: str
) -> None:
    """Retry, delete, run now, and what was done to one task, beside many tasks and events."""
    worker = await stage.worker()
    await keep_autovacuum_away(store)
    tables = ("tasks", "history", "events")
    await store._queries.row("alter table everpoll.events set (autovacuum_enabled = off)")
    if statistics == "of the empty tables":
        for table in tables:
            await store._queries.row(f"analyze everpoll.{table}")
    await stage.put(2_000)
    ended = [one.id for _ in range(2) for one in await stage.take(worker, 500)]
    await store.settle(worker, [Ended(one, 1, "failed", events=(NewEvent(1, "{}"),)) for one in ended])
    live = await stage.put(1_000, delay_s=HOUR_S)
    if statistics == "fresh":
        for table in tables:
            await store._queries.row(f"analyze everpoll.{table}")
    for lane in (store._calls, store._queries):
        await lane.call(lambda connection: connection.execute(EXPLAIN))
    plans = Plans(postgres_servers, major)
    note = '{"what":"test"}'
    hurry = [Revision(task_id=one, hurry=True, note=note) for one in live[:20]]
    await store.revise(hurry[:1])
    await store.revise(hurry)
    await store.retry_many([(one, note) for one in ended[:20]])
    await store.delete([(one, note) for one in ended[20:40]])
    await store.cancel_many([(one, note) for one in live[:20]])
    await store.actions_of(live[0])
    await store.events("0", 10)
    await store.queues()
    plan = plans.new()
    assert re.findall(r"Seq Scan on (?:tasks|history_\d+|events)\b[^\n]*", plan) == []
    assert "using events_task on events" in plan
    assert re.search(r"using history_\d+_id_idx on history_\d+", plan)


HISTORY = r"using history_\w+_"
LISTS: list[tuple[TaskFilter, tuple[str, ...]]] = [
    (TaskFilter(), ("using tasks_pkey on tasks", HISTORY + "id_idx ")),
    (TaskFilter(name="job", queue="default"), ("using tasks_pkey on tasks", HISTORY + "id_idx ")),
    (TaskFilter(q="user:7"), ("using tasks_pkey on tasks", HISTORY + "id_idx ")),
    (
        TaskFilter(since=datetime(2026, 1, 1, tzinfo=UTC), until=datetime(2099, 1, 1, tzinfo=UTC)),
        ("using tasks_pkey on tasks", HISTORY + "id_idx "),
    ),
    (TaskFilter(state="running"), ("using tasks_pkey on tasks",)),
    (TaskFilter(ended_since=datetime(2026, 1, 1, tzinfo=UTC)), (HISTORY + "id_idx ",)),
    (TaskFilter(state="failed", ended_since=datetime(2026, 1, 1, tzinfo=UTC)), (HISTORY + "id_idx1? ",)),
    (TaskFilter(error="ValueError"), (r"using tasks_(error|retrying) on tasks", HISTORY + "error_type_id_idx ")),
    (TaskFilter(error="ValueError", state="failed", name="job"), (HISTORY + "error_type_id_idx ",)),
    (TaskFilter(is_retrying=True), ("using tasks_retrying on tasks",)),
]


@pytest.mark.parametrize("statistics", ["of the empty tables", "fresh"])
async def test_every_list_is_read_by_an_index(
    stage: Stage, store: PostgresStore, postgres_servers: PostgresServers, major: int, statistics: str
) -> None:
    worker = await stage.worker()
    await keep_autovacuum_away(store)
    if statistics == "of the empty tables":
        await store._queries.row("vacuum analyze everpoll.tasks")
        await store._queries.row("vacuum analyze everpoll.history")
    note = '{"what":"failed","type":"ValueError","error":"no"}'
    for _ in range(4):
        await stage.put(500)
        leases = await stage.take(worker, 500)
        odd = [Ended(one.id, one.sequence, "failed", None, note) for one in leases if one.id % 50 == 0]
        retried = [Again(one.id, one.sequence, HOUR_S, note=note) for one in leases if one.id % 50 == 1]
        await store.settle(worker, [*(done(one) for one in leases if one.id % 50 > 1), *odd, *retried])
    await stage.put(2_000, delay_s=HOUR_S)
    await stage.running(worker)
    if statistics == "fresh":
        await store._queries.row("vacuum analyze everpoll.tasks")
        await store._queries.row("vacuum analyze everpoll.history")
    await store._queries.call(lambda connection: connection.execute(EXPLAIN))
    plans = Plans(postgres_servers, major)
    for wanted, indexes in LISTS:
        await store.tasks(wanted, 20)
        plan = plans.new()
        assert BAD.findall(plan) == [], wanted
        assert not re.search(r"Seq Scan on history_\d+", plan), (wanted, plan)
        for index in indexes:
            assert re.search(index, plan), f"{wanted} {index} {plan}"


@pytest.mark.parametrize("statistics", STATISTICS)
async def test_limited_tasks_are_found_and_counted_by_their_own_indexes(
    stage: Stage, store: PostgresStore, postgres_servers: PostgresServers, major: int, statistics: str
) -> None:
    """Whatever the statistics say, beside many that wait behind a limit that is full."""
    worker = await stage.worker(aging_s=600.0)
    await prepare(stage, store, worker, statistics)
    await stage.put(2_000, limit=Limit("stuck", running=1))
    calls = [
        NewTask(name="job", limit=Limit(f"k{number % 50}", running=2, starts=3, per_s=60.0)) for number in range(300)
    ]
    await stage.store.enqueue(calls)
    await stage.put(2, priority=3)
    await explained(store)
    plans = Plans(postgres_servers, major)
    await stage.put(2, priority=-3, limit=Limit("aged", running=2))
    await stage.pass_time(660.0)
    await stage.put(2, limit=Limit("fresh", running=2))
    for most in (1, 10, 100):
        store._leasing._limit_visits._aged_at = 0.0
        await turn(stage, worker, most)
        plan = plans.new()
        assert BAD.findall(plan) == []
        assert "Seq Scan on starts" not in plan
        assert "using tasks_limited on tasks" in plan
        assert "using tasks_limited_running on tasks" in plan
    await store._queries.call(lambda connection: connection.execute(EXPLAIN))
    plans.new()
    await stage.store.limit("stuck")
    await stage.store.queues()
    assert BAD.findall(plans.new()) == []
