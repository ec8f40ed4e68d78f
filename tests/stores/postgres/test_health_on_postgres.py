"""Records of services on Postgres: lost answers, roll-ups in between, and plans that read what they need."""

import asyncio
import math
import re
from collections.abc import Awaitable, Callable

import asyncpg
import pytest

from everpoll.errors import StoreUnavailable
from everpoll.stores.health_batches import batch_of
from everpoll.stores.postgres import PostgresStore
from everpoll.stores.postgres.health_recording import rows_of
from servers.databases import PostgresServers
from stores.backends import PostgresBackend
from stores.health_looks import DAY_S, HOUR_S, START, dependency, error, look, looks_every, record_all, roll_up_all
from stores.postgres.proxy import Proxy
from stores.postgres.test_plans_do_not_flip import EXPLAIN, Plans
from stores.stage import Stage

# A walk through a whole index is one without a condition on it. The first (a) and the last row (z) are one step away.
SCANNED = re.compile(
    r"(?:(?:Seq Scan|Parallel \w+ Scan) on|Index (?:Only )?Scan using \w+ on) "
    r"health_(?:looks|packed|minutes|hours|days|errors|dependencies)\b(?! [az] )[^\n]*\n"
    r"(?!\s+(?:Index|Tid|TID) Cond)[^\n]*"
)


async def test_a_batch_whose_answer_got_lost_may_be_repeated(stage: Stage, url: str) -> None:
    """Also if it was rolled up meanwhile."""
    watching = stage.store.health
    batch = [look(at_s, errors=(error(),), dependencies=(dependency(),)) for at_s in (0, 30)]
    async with Proxy(url) as proxy:
        store = PostgresStore(proxy.url)
        await store.health.record([look(0, "other")])
        proxy.hold_answers()
        recording = asyncio.get_running_loop().create_task(store.health.record(batch))
        while not await watching.looks("billing", 0, math.inf):
            pass
        proxy.cut()
        proxy.let_through()
        with pytest.raises(StoreUnavailable):
            await recording
        await roll_up_all(watching)
        await store.health.record(batch)
        await store.close()
    assert (await watching.summary("billing", 0, math.inf)).count == 2
    assert len(await watching.errors("billing", "db")) == 2
    assert len(await watching.looks("billing", 0, math.inf)) == 2


async def test_a_roll_up_that_another_process_is_at_is_left_to_it(stage: Stage, url: str) -> None:
    health = stage.store.health
    await health.record([look(0, name) for name in ("a", "b", "c")])
    other = await asyncpg.connect(url)
    try:
        async with other.transaction():
            await other.fetch("select 1 from everpoll.health_services where name = 'b' for no key update")
            assert await health.roll_up(START + DAY_S) is None
            left = await other.fetch(
                "select s.name from everpoll.health_looks l join everpoll.health_services s on s.id = l.service"
            )
            assert [row[0] for row in left] == ["b"]
            await health.record([look(30, "b")])
    finally:
        await other.close()
    await roll_up_all(health)
    for name, count in (("a", 1), ("b", 2), ("c", 1)):
        assert (await health.summary(name, 0, math.inf)).count == count


async def test_a_roll_up_in_the_middle_of_a_repeated_batch_is_noticed(stage: Stage, url: str) -> None:
    """The look that the batch would have met was taken away by a transaction that was not committed yet."""
    health = stage.store.health
    await health.record([look(0), look(30)])
    other = await asyncpg.connect(url)
    try:
        async with other.transaction():
            await other.execute("update everpoll.health_services set packed_ms = $1", round((START + 30) * 1_000))
            await other.execute("delete from everpoll.health_looks")
            # Waits for the transaction, because the keys of its looks are still there.
            again = asyncio.get_running_loop().create_task(health.record([look(0), look(30)]))
            waiting = "select count(*) from pg_locks where not granted"
            while not await other.fetchval(waiting):
                pass
        await again
    finally:
        await other.close()
    # Nothing was packed by that transaction, so both are late looks, and are written once.
    assert len(await health.looks("billing", 0, math.inf)) == 2


LEFT = " union all ".join(
    f"select '{table}' from everpoll.health_{table} where service not in (select id from everpoll.health_services)"  # noqa: S608 - names of this test
    for table in ("looks", "dependencies", "errors")
)


async def test_a_look_that_is_recorded_while_its_service_is_forgotten_leaves_nothing_behind(
    stage: Stage, url: str
) -> None:
    """The transaction that records ends after the forgetting transaction has begun."""
    health = stage.store.health
    await health.record([look(0)])
    rows = rows_of(batch_of([look(30, dependencies=(dependency(),), errors=(error(),))]))
    other = await asyncpg.connect(url)
    try:
        async with other.transaction():
            await other.fetchrow(*rows.call(is_checked=False))
            forgetting = asyncio.get_running_loop().create_task(health.forget("billing"))
            while not forgetting.done() and not await other.fetchval("select count(*) from pg_locks where not granted"):
                pass
        assert await forgetting
        assert [row[0] for row in await other.fetch(LEFT)] == []
        assert await health.looks("billing", 0, math.inf) == []
    finally:
        await other.close()


async def test_a_service_is_forgotten_with_all_its_rows_or_not_at_all(stage: Stage, url: str) -> None:
    health = stage.store.health
    await health.record([look(0, dependencies=(dependency(),), errors=(error(),))])
    other = await asyncpg.connect(url)
    try:
        await other.execute(
            """create function pg_temp.refuse() returns trigger language plpgsql as
                $$ begin raise exception 'refused'; end $$;
            create trigger refuse before delete on everpoll.health_errors execute function pg_temp.refuse()"""
        )
        with pytest.raises(Exception, match="refused"):
            await health.forget("billing")
        assert [row[0] for row in await other.fetch(LEFT)] == []
        assert len(await health.looks("billing", 0, math.inf)) == 1
        await other.execute("drop trigger refuse on everpoll.health_errors")
        assert await health.forget("billing")
        assert [row[0] for row in await other.fetch(LEFT)] == []
    finally:
        await other.close()


async def test_two_batches_with_the_same_rows_do_not_deadlock(stage: Stage, store: PostgresStore) -> None:
    others = [await stage.another_store() for _ in range(3)]
    names = [f"service-{number}" for number in range(40)]
    for at_s in range(0, 300, 30):
        batch = [look(at_s, name, dependencies=(dependency("db", at_s),), errors=(error(),)) for name in names]
        await asyncio.gather(
            *(one.health.record(batch[::step]) for one, step in zip([store, *others], (1, -1, 1, -1), strict=True))
        )
    assert (await store.health.summary(names[7], 0, math.inf)).count == 10


async def test_a_long_backlog_is_rolled_up_in_parts(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("everpoll.stores.postgres.health_upkeep.STEP_LOOKS", 40)
    health = stage.store.health
    await record_all(health, [*looks_every(60, 300), *looks_every(60, 30, service="other")])
    assert await roll_up_all(health) >= 8
    assert (await health.summary("billing", 0, math.inf)).count == 300
    assert (await health.summary("other", 0, math.inf)).count == 30


@pytest.fixture
def backend(backend: PostgresBackend) -> PostgresBackend:
    """One connection for all lanes, which can be told to write its plans into the log."""
    backend.url = f"{backend.url}&connections=2"
    return backend


@pytest.mark.parametrize("statistics", ["none", "of empty tables", "of small tables", "fresh"])
async def test_no_plan_scans_a_history(
    stage: Stage, store: PostgresStore, postgres_servers: PostgresServers, major: int, statistics: str
) -> None:
    """Whatever is known about the tables; what a plan was made with, it keeps."""
    health = store.health
    tables = [
        str(row[0])
        for row in await store._queries.rows(
            "select relname from pg_class where relname ~ '^health_[a-z]+$' and relkind = 'r'"
        )
    ]
    for table in tables:
        await store._queries.row(f"alter table everpoll.{table} set (autovacuum_enabled = off)")
    if statistics == "of empty tables":
        await _analyze(store, tables)
    if statistics == "of small tables":
        await health.record([look(0, dependencies=(dependency(),), errors=(error(),))])
        await roll_up_all(health)
        await health.record([look(60)])
        await _analyze(store, tables)
    names = [f"service-{number}" for number in range(150)]
    for at_s in range(0, 30 * 3_600, 1_800):
        await health.record([look(at_s, name, errors=(error(),)) for name in names])
    await health.record([look(30 * HOUR_S, name, dependencies=(dependency(), dependency("x"))) for name in names])
    await roll_up_all(health)
    for at_s in range(31 * 3_600, 31 * 3_600 + 600, 60):
        await health.record([look(at_s, name, latencies={"db": 1.0}) for name in names])
    if statistics == "fresh":
        await _analyze(store, tables)
    for lane in (health._records, health._reads, health._upkeep):
        await lane.call(lambda connection: connection.execute(EXPLAIN))
    plans = Plans(postgres_servers, major)
    calls: dict[str, Callable[[], Awaitable[object]]] = {
        "record": lambda: health.record([look(DAY_S * 2, name, errors=(error(),)) for name in names[:20]]),
        "looks": lambda: health.looks("service-7", START, START + DAY_S, 10),
        "last looks": lambda: health.last_looks(names[:5], 30),
        "dependencies": lambda: health.dependencies("service-7"),
        "edges": lambda: health.edges(("service-7", "db"), 10),
        "errors": lambda: health.errors("service-7", "db", 5),
        "latencies": lambda: health.latencies("service-7", "db", START, START + 3 * DAY_S),
        "summary": lambda: health.summary("service-7", START + 90, START + 29 * HOUR_S + 61),
        "hours": lambda: health.rollups("service-7", "hour", START, START + DAY_S),
        "minutes": lambda: health.rollups("service-7", "minute", START, START + 3 * HOUR_S),
        "a few": lambda: health.availability(names[:3], START + 3_700),
        "roll up": lambda: health.roll_up(START + 40 * DAY_S, 140),
        "prune": lambda: health.prune(START + DAY_S),
    }
    for name, call in calls.items():
        await call()
        plan = plans.new()
        assert "Scan" in plan, name
        assert SCANNED.findall(plan) == [], (name, plan)


async def _analyze(store: PostgresStore, tables: list[str]) -> None:
    for table in tables:
        await store._queries.row(f"analyze everpoll.{table}")
