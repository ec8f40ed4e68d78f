"""While a snapshot is held elsewhere, what ended tasks leave behind is not read again and again.

Counted in blocks of the table of tasks: each index entry of an ended task would be checked there.
"""

import asyncpg
import pytest

from everpoll.stores.contract import TaskFilter
from everpoll.stores.postgres import PostgresStore
from stores.postgres.test_marks_skip_nothing import make_slow, transaction
from stores.stage import Stage, done

AGING_S = 600.0
ENDED, BATCH = 3_000, 500
FEW, MANY = 140, 200
"""Blocks that a poll reads: one that skips the ended tasks, and one that reads them all. If the tables have statistics,
the planner itself reads up to 100 blocks of ended tasks, to find the largest id."""
FETCHED = """select heap_blks_hit + heap_blks_read from pg_statio_all_tables
    where relid = 'everpoll.tasks'::regclass"""


async def end_many(stage: Stage, worker: int) -> None:
    """Leave behind what some thousand tasks leave behind while an old snapshot is held."""
    await stage.put(ENDED)
    for _ in range(ENDED // BATCH):
        leases = await stage.take(worker, BATCH)
        assert len(leases) == BATCH
        await stage.store.settle(worker, [done(one) for one in leases])


def asks_for_aged_tasks(store: PostgresStore) -> None:
    """Let the next look ask for aged tasks, as about one look a second does."""
    store._leasing._limit_visits._aged_at = float("-inf")


async def fetched(url: str, store: PostgresStore) -> int:
    """How many blocks of tasks were fetched so far, by any connection of the store."""
    for lane in (store._leasing._lane, store._queries):
        await lane.call(lambda connection: connection.execute("select pg_stat_force_next_flush()"))
    connection = await asyncpg.connect(url)
    try:
        return int(await connection.fetchval(FETCHED))
    finally:
        await connection.close()


@pytest.mark.parametrize("aging_s", [None, AGING_S])
async def test_a_look_at_marks_reads_nothing_before_them(
    stage: Stage, store: PostgresStore, url: str, aging_s: float | None
) -> None:
    worker = await stage.worker(aging_s=aging_s)
    async with transaction(url):
        await end_many(stage, worker)
        make_slow(store)
        asks_for_aged_tasks(store)
        await stage.put(5)
        before = await fetched(url, store)
        assert len(await stage.take(worker, 10)) == 5
        assert await fetched(url, store) - before < FEW


async def test_that_is_less_than_a_look_at_everything(stage: Stage, store: PostgresStore, url: str) -> None:
    """The premise of the others: without marks, a look does walk over what has ended."""
    worker = await stage.worker()
    async with transaction(url):
        await end_many(stage, worker)
        store._marks.forget()
        await stage.put(5)
        before = await fetched(url, store)
        assert len(await stage.take(worker, 10)) == 5
        assert await fetched(url, store) - before > MANY


@pytest.mark.parametrize("state", ["queued", "running"])
async def test_a_list_of_live_indexed_tasks_reads_no_others(
    stage: Stage, store: PostgresStore, url: str, state: str
) -> None:
    """Workers without services look for some with each wake-up, and the running ones among them too."""
    worker = await stage.worker()
    async with transaction(url):
        await end_many(stage, worker)
        before = await fetched(url, store)
        page = await store.tasks(TaskFilter(kind="check", indexed=True, state=state), 1)  # type: ignore[arg-type]
        assert not page.tasks
        assert await fetched(url, store) - before < FEW


async def test_aged_tasks_after_the_marks_go_first_all_the_same(stage: Stage, store: PostgresStore, url: str) -> None:
    worker = await stage.worker(aging_s=AGING_S)
    async with transaction(url):
        await end_many(stage, worker)
        make_slow(store)
        old = await stage.put(2, priority=-5)
        await stage.pass_time(AGING_S + 1)
        asks_for_aged_tasks(store)
        urgent = await stage.put(3, priority=9)
        taken = [lease.id for _ in range(5) for lease in await stage.take(worker, 1)]
    assert taken == [*old, *urgent]
