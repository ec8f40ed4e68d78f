"""A process has the connections that it uses, no others: servers have few to give."""

import asyncpg

from everpoll.stores.contract import NewTask
from everpoll.stores.postgres import PostgresStore

OTHERS = """select count(*) from pg_stat_activity
    where datname = current_database() and application_name = 'everpoll'"""


async def test_who_only_enqueues_has_one_and_its_first_job_waits_for_none(url: str) -> None:
    """Opening connects the lane that enqueues; nothing is left to connect when the first job comes."""
    store = PostgresStore(url)
    watcher = await asyncpg.connect(url)
    try:
        await store.open()
        assert await watcher.fetchval(OTHERS) == 1
        opened = store._entrance.pid
        await store.enqueue([NewTask(name="job")])
        assert store._entrance.pid == opened
        assert await watcher.fetchval(OTHERS) == 1
    finally:
        await watcher.close()
        await store.close()
