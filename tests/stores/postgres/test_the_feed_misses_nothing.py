"""Transactions commit in any order; the feed misses no event and never goes backwards (invariant 9).

Who appends in a transaction that stays open holds the feed up, before its own first event and nowhere else. No other
transaction does, however old it is.
"""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from everpoll.drivers.postgres.lane import Connection
from everpoll.stores.contract import Event, NewTask
from everpoll.stores.postgres import PostgresStore
from everpoll.stores.postgres.functions import versioned
from stores.stage import WATCH, Stage, done
from stores.test_events import happened, with_events

APPEND = versioned("select everpoll.append_events($1, $2, $3, null)")


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Connection]:
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


async def append(connection: Connection, task_id: int, *seqs: int) -> None:
    await connection.execute(APPEND, [task_id] * len(seqs), list(seqs), ["{}"] * len(seqs))


class Reader:
    """Goes from position to position, and sees that nothing is in front of one."""

    def __init__(self, store: PostgresStore, after: str) -> None:
        self._store = store
        self._after = after
        self.seen: list[Event] = []

    async def read(self, limit: int = 1000) -> list[int]:
        page = await self._store.events(self._after, limit)
        assert int(page.after) >= int(self._after), "it never goes backwards"
        assert [int(one.position) for one in page.events] == sorted(int(one.position) for one in page.events)
        assert all(int(one.position) > int(self._after) for one in page.events)
        self._after = page.after
        self.seen += page.events
        return [one.seq for one in page.events]


@pytest.fixture
def reader(stage: Stage, store: PostgresStore, runner: asyncio.Runner) -> Reader:
    """From now on."""
    return Reader(store, runner.run(store.events(None)).after)


@pytest.mark.parametrize("is_kept", [True, False])
async def test_the_later_id_commits_first(stage: Stage, url: str, reader: Reader, is_kept: bool) -> None:
    """What is behind a gap is held back until the gap is closed, by a commit or by a rollback."""
    task_id = await stage.put_one(**WATCH)
    async with connected(url) as first, connected(url) as second:
        slow = first.transaction()
        await slow.start()
        await append(first, task_id, 1)
        await append(second, task_id, 2)
        assert await first.fetchval("select max(id) from everpoll.events where seq = 1") < await second.fetchval(
            "select max(id) from everpoll.events where seq = 2"
        ), "the later id has committed first"
        assert await reader.read() == []
        assert [one.seq for one in await stage.store.task_events(task_id)] == [2]
        await (slow.commit() if is_kept else slow.rollback())
        assert await reader.read() == ([1, 2] if is_kept else [2])
        assert await reader.read() == []


async def test_a_reader_that_asks_for_now_beside_an_open_transaction_gets_it_later(
    stage: Stage, store: PostgresStore, url: str
) -> None:
    task_id = await stage.put_one(**WATCH)
    async with connected(url) as first, connected(url) as second:
        slow = first.transaction()
        await slow.start()
        await append(first, task_id, 1)
        await append(second, task_id, 2)
        late = Reader(store, (await store.events(None)).after)
        assert await late.read() == []
        await slow.commit()
        assert await late.read() == [1, 2]


async def test_what_was_committed_before_the_gap_is_read(stage: Stage, url: str, reader: Reader) -> None:
    """And what comes after it is when it is closed, in order, once."""
    task_id = await stage.put_one(**WATCH)
    async with connected(url) as first, connected(url) as second:
        await append(second, task_id, 1, 2)
        slow = first.transaction()
        await slow.start()
        await append(first, task_id, 3)
        await append(second, task_id, 4)
        assert await reader.read(1) == [1]
        assert await reader.read() == [2]
        assert await reader.read() == []
        await append(first, task_id, 5)
        await append(second, task_id, 6)
        await slow.commit()
        assert await reader.read() == [3, 4, 5, 6]


async def test_an_old_transaction_that_appends_late_is_not_missed(stage: Stage, url: str, reader: Reader) -> None:
    """Its number is older than those of transactions whose events were read long ago: it must not matter."""
    task_id = await stage.put_one(**WATCH)
    async with connected(url) as first, connected(url) as second:
        old = first.transaction()
        await old.start()
        await first.execute("select pg_current_xact_id()")
        await append(second, task_id, 1)
        assert await reader.read() == [1], "a transaction that has nothing to do with events holds no reader up"
        await append(first, task_id, 2)
        await append(second, task_id, 3)
        assert await reader.read() == []
        await old.commit()
        assert await reader.read() == [2, 3]


async def test_a_savepoint_that_is_undone_closes_its_gap(stage: Stage, url: str, reader: Reader) -> None:
    task_id = await stage.put_one(**WATCH)
    async with connected(url) as first, connected(url) as second:
        outer = first.transaction()
        await outer.start()
        inner = first.transaction()
        await inner.start()
        await append(first, task_id, 1)
        await inner.rollback()
        await append(second, task_id, 2)
        assert await reader.read() == [2]
        await append(first, task_id, 3)
        await outer.commit()
        assert await reader.read() == [3]


async def test_a_settlement_in_a_transaction_of_its_own(stage: Stage, url: str, reader: Reader) -> None:
    """The very function that settles, kept open while another one overtakes it."""
    worker = await stage.worker()
    await stage.put(2, **WATCH)
    slow_lease, quick_lease = await stage.take(worker)
    async with connected(url) as first:
        slow = first.transaction()
        await slow.start()
        lost = await first.fetchval(
            versioned("""select lost from everpoll.settle($1, null, 1, $2, $3, null, null, null, null, null, null, null,
                null, null, $2, '{1}', '{"{}"}')"""),
            worker,
            [slow_lease.id],
            [slow_lease.sequence],
        )
        assert lost is None
        assert await stage.store.settle(worker, [with_events(done(quick_lease), 2)]) == set()
        assert await reader.read() == []
        await slow.commit()
        assert await reader.read() == [1, 2]


async def test_the_server_may_forget_numbers_that_it_gave_out(stage: Stage, url: str, reader: Reader) -> None:
    """As in a crash before their commit: no reader has a position among them, so what gets them anew is not missed."""
    task_id = await stage.put_one(**WATCH)
    async with connected(url) as connection:
        last = await connection.fetchval(versioned("select everpoll.last_event()"))
        await connection.execute("select nextval('everpoll.events_id_seq') from generate_series(1, 10)")
        assert await reader.read() == []
        now = Reader(reader._store, (await stage.store.events(None)).after)
        await connection.execute("select setval('everpoll.events_id_seq', $1)", max(1, last))
        await append(connection, task_id, 1)
    assert await reader.read() == [1]
    assert await now.read() == [1]


async def test_many_transactions_that_commit_in_any_order(
    stage: Stage, store: PostgresStore, url: str, reader: Reader
) -> None:
    """Some append twice, some roll back, some are overtaken by all others; one reads all the while."""
    task_id = await stage.put_one(**WATCH)
    dice = random.Random(5)
    kept: list[int] = []
    async with connected(url) as a, connected(url) as b, connected(url) as c, connected(url) as d:
        lines: dict[Connection, Any] = dict.fromkeys((a, b, c, d))
        pending: dict[Connection, list[int]] = {one: [] for one in lines}
        for seq in range(1, 400):
            connection = dice.choice(list(lines))
            transaction = lines[connection]
            if transaction is None:
                lines[connection] = transaction = connection.transaction()
                await transaction.start()
            await append(connection, task_id, seq)
            pending[connection].append(seq)
            if dice.random() < 0.4:
                if dice.random() < 0.8:
                    await transaction.commit()
                    kept += pending[connection]
                else:
                    await transaction.rollback()
                lines[connection], pending[connection] = None, []
            if dice.random() < 0.5:
                await reader.read(dice.choice([1, 5, 1000]))
        for connection, transaction in lines.items():
            if transaction is not None:
                await transaction.commit()
                kept += pending[connection]
    while await reader.read():
        pass
    assert len(reader.seen) == len(kept)
    assert sorted(one.seq for one in reader.seen) == sorted(kept)


async def test_only_its_own_locks_are_looked_at(stage: Stage, url: str, reader: Reader) -> None:
    """Advisory locks of others, also with large numbers or two small ones, hold no reader up."""
    async with connected(url) as connection:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute(
            versioned(
                "select pg_advisory_xact_lock(1), pg_advisory_xact_lock(-1), pg_advisory_xact_lock(9223372036854775807)"
                ", pg_advisory_xact_lock((everpoll.feed_lock() >> 32)::int, 0), pg_advisory_xact_lock(0, 1)"
            )
        )
        await stage.store.enqueue([NewTask(name="w", **WATCH, events=happened(1))])
        assert await reader.read() == [1]
        await transaction.rollback()


async def test_a_transaction_that_tells_much_takes_one_lock(stage: Stage, store: PostgresStore) -> None:
    """However many tasks it cancels; the next transaction of the same connection takes its own again."""
    locks = (
        "select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid() and mode = 'ShareLock'"
    )
    ids = await stage.put(600)
    cancel = versioned("""select count(c.state) from unnest($1::bigint[]) u(id)
        cross join lateral everpoll.cancel(u.id, $2) c""")

    async def in_transactions(connection: Connection) -> list[int]:
        held = []
        for some in (ids[:300], ids[300:]):
            async with connection.transaction():
                assert await connection.fetchval(cancel, some, '{"what":"cancel"}') == 300
                held.append(await connection.fetchval(locks))
        return held

    assert await store._queries.call(in_transactions) == [1, 1]
