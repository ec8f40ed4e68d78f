"""Counts of running tasks have a bound on what they read, and say so where they reach it."""

import asyncpg

from everpoll.stores.contract import NewTask
from everpoll.stores.postgres import PostgresStore
from everpoll.stores.postgres.functions import versioned
from stores.stage import Stage

FRESH = versioned("select id from everpoll.fresh_leases($1, $2)")


async def test_more_priorities_than_are_looked_at(stage: Stage, store: PostgresStore) -> None:
    """The lowest of 5,001 priorities runs: the answer does not say that nothing does."""
    worker = await stage.worker()
    await stage.running(worker, priority=-1)
    await store.enqueue([NewTask(name="job", priority=nth) for nth in range(5_000)])
    [queue], [shown] = await store.queues(), await store.workers()
    assert (queue.running, queue.has_more_running) == (0, True)
    assert (shown.running, shown.has_more_running) == (0, True)


async def test_all_entries_together_are_bounded(stage: Stage, store: PostgresStore, url: str) -> None:
    worker = await stage.worker()
    await stage.put(30, queue="a")
    await stage.put(30, queue="b")
    leased = {one.id for one in await stage.take(worker, 60, "a", "b")}
    connection = await asyncpg.connect(url)
    try:
        whole = [row[0] for row in await connection.fetch(FRESH, 1_000, 10)]
        cut = [row[0] for row in await connection.fetch(FRESH, 40, 10)]
    finally:
        await connection.close()
    assert set(whole) == leased
    assert len(cut) == 41
    assert cut[-1] is None
    assert leased > set(cut[:-1])
