"""A read that no caller waits for any more stops: it does not hold up the reads behind it."""

import asyncio

import pytest

from everpoll.stores.contract import TaskFilter
from everpoll.stores.sqlite import SqliteStore

ENDLESS = "with recursive n(i) as (select 1 union all select i + 1 from n) select max(i) from n"
LIMIT_S = 60.0


async def test_a_statement_whose_caller_gave_up_is_interrupted(store: SqliteStore) -> None:
    reading = asyncio.ensure_future(store._read(lambda con: con.execute(ENDLESS).fetchone()))
    begun: list[int] = []
    behind = asyncio.ensure_future(store._read(lambda con: begun.append(1)))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(reading, 0.05)
    behind.cancel()
    async with asyncio.timeout(LIMIT_S):
        assert (await store.tasks(TaskFilter())).tasks == ()
    assert begun == [], "nor is a read begun whose caller gave up before its turn"


async def test_a_read_goes_on_as_long_as_its_caller_waits(store: SqliteStore) -> None:
    counted = "with recursive n(i) as (select 1 union all select i + 1 from n limit 300000) select max(i) from n"
    assert await store._read(lambda con: con.execute(counted).fetchone()) == (300_000,)
