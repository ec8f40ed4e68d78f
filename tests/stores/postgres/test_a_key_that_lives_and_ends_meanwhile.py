"""A whole life passes between the look for a key and the insert under it: it is remembered, and not begun again."""

import asyncio

import asyncpg

from everpoll.stores.contract import Enqueued, NewTask, TaskFilter
from everpoll.stores.postgres import PostgresStore
from everpoll.stores.postgres.functions import versioned
from stores.stage import WATCH, Stage

BEGIN = """insert into everpoll.tasks (name, kind, indexed, key, owner, sequence, is_leased)
    values ('w', 'watch', true, 'k', 7, 1, true) returning id"""
END = versioned("select everpoll.settle(7, array[$1::bigint], 1" + ", null" * 11 + ")")
IS_WAITED_FOR = "select exists (select from pg_locks where not granted and locktype = 'transactionid')"


async def test_it_is_seen_by_the_look_after_the_insert(stage: Stage, store: PostgresStore, url: str) -> None:
    """The insert waits for a transaction that begins and ends a watch with that key, and then finds the key free."""
    other = await asyncpg.connect(url)
    watching = await asyncpg.connect(url)
    life = other.transaction()
    await life.start()
    task_id = await other.fetchval(BEGIN)
    beginning = asyncio.create_task(store.enqueue([NewTask(name="w", **WATCH, key="k", once=True)]))
    async with asyncio.timeout(20):
        while not await watching.fetchval(IS_WAITED_FOR):
            pass
    await other.execute(END, task_id)
    await life.commit()
    assert await beginning == [Enqueued(task_id, is_new=False)]
    assert [one.state for one in (await store.tasks(TaskFilter())).tasks] == ["done"]
    await other.close()
    await watching.close()
