"""Nothing of ours lives in a session: a transaction pooler may deal every transaction to another connection."""

import asyncio
from collections.abc import Awaitable, Callable

import asyncpg
import pytest

from everpoll.drivers.postgres import listener
from everpoll.stores.contract import NewTask, Settlement, TaskFilter
from everpoll.stores.postgres import PostgresStore
from stores.postgres.pooler import Pooler
from stores.stage import HOUR_S, LEASE_S, Stage, again, done, json

NOTE = json({"what": "test"})


async def use(store: PostgresStore) -> None:
    """A little of everything, twice: the second time everything is cached that can be."""
    for turn in range(2):
        stage = Stage.around(store)
        worker = await stage.worker()
        first, second, third = await stage.put(3)
        [keyed] = await store.enqueue([NewTask(name="job", key=f"k{turn}")])
        late = await stage.put_one(delay_s=HOUR_S)
        leases = await stage.take(worker)
        assert [one.id for one in leases] == [first, second, third, keyed.id]
        assert await store.progress(worker, leases[0], "1")
        assert await store.cancel(third, NOTE) == "running"
        heartbeat = await asyncio.to_thread(store.heartbeat_connection)
        beat = await asyncio.to_thread(heartbeat.beat, worker, LEASE_S, [one.id for one in leases])
        await asyncio.to_thread(heartbeat.close)
        assert beat.canceled == (third,)
        batch: list[Settlement] = [
            done(leases[0], 1),
            done(leases[1]),
            again(leases[2]),
            done(leases[3], state="failed", note=NOTE),
        ]
        assert await store.settle(worker, batch) == set()
        assert await store.retry(keyed.id, NOTE)
        assert await store.cancel(late, NOTE) == "canceled"
        states = [one.state for one in (await store.info([first, second, third, keyed.id, late])).values()]
        assert states == ["done", "done", "canceled", "queued", "canceled"]
        assert await store.cancel(keyed.id, NOTE) == "canceled"
        assert await store.queues() == []
        assert len(await store.workers()) == turn + 1
        await store.note_loss(first, NOTE)
        assert len(await store.losses(first)) == 1
        await store.prune(HOUR_S)


@pytest.mark.parametrize("option", ["?statement_cache=0", ""])
async def test_every_transaction_on_another_connection(
    bare_url: str, option: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Also where the address does not mention a pooler: the store finds it, and says so."""
    async with Pooler(bare_url) as pooler:
        store = PostgresStore(pooler.url + option)
        assert await store.migrate()
        await store.open()
        await use(store)
        await store.close()
        assert pooler.switches > 50
    warned = [record for record in caplog.records if "statement_cache=0" in record.message]
    assert bool(warned) == (option == "")


async def test_notifications_do_not_arrive_and_the_store_says_so(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A listener behind a pooler looks healthy and hears nothing: `has_push` says so, and the log does."""
    monkeypatch.setattr(listener, "ANSWER_S", 0.1)
    async with Pooler(url) as pooler:
        store = PostgresStore(pooler.url + "?statement_cache=0")
        await store.listen(lambda _: None)
        assert not store.has_push
        await store.close()
    assert "polling instead" in caplog.text


LISTENING = "select pg_backend_pid(), array(select pg_listening_channels())"


async def listening_sessions(pooler: Pooler, size: int) -> dict[int, list[str]]:
    """What each session of the pooler listens to: transactions at the same time reach all of them."""
    clients = [await asyncpg.connect(pooler.url, statement_cache_size=0) for _ in range(size)]
    try:
        transactions = [client.transaction() for client in clients]
        for transaction in transactions:
            await transaction.start()
        found = dict([tuple(await client.fetchrow(LISTENING)) for client in clients])
        for transaction in transactions:
            await transaction.rollback()
    finally:
        for client in clients:
            client.terminate()
    return found


@pytest.mark.parametrize("is_lifo", [False, True], ids=["by turns", "last used first"])
@pytest.mark.parametrize("size", [1, 4])
async def test_no_session_of_a_pooler_is_left_listening(
    url: str, monkeypatch: pytest.MonkeyPatch, size: int, is_lifo: bool
) -> None:
    """It would collect notifications for clients that never asked for them, for as long as the pooler lives."""
    monkeypatch.setattr(listener, "ANSWER_S", 0.2)
    async with Pooler(url, size, is_lifo=is_lifo) as pooler:
        store = PostgresStore(pooler.url + "?statement_cache=0")
        for _ in range(3):
            await store.listen(lambda _: None)
            assert not store.has_push
            await store._listener.close()
        found = await listening_sessions(pooler, size)
        assert len(found) == size
        assert set(map(tuple, found.values())) == {()}
        await store.close()


async def test_a_session_pooler_lets_notifications_through(url: str) -> None:
    """It announces sessions of its own making, too; but what it lends to a client is that client's."""
    async with Pooler(url, 6, is_sticky=True) as pooler:
        store, other = PostgresStore(pooler.url), PostgresStore(pooler.url)
        await store.open()
        woken = asyncio.Event()
        await store.listen(lambda _: woken.set())
        assert store.has_push
        await other.enqueue([NewTask(name="job")])
        async with asyncio.timeout(20):
            await woken.wait()
        await other.close()
        await store.close()


async def test_what_was_listened_to_by_mistake_is_let_go(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pooler that nothing gives away until the proof fails: the session that listens is found, and stops."""
    monkeypatch.setattr(listener, "ANSWER_S", 0.2)
    monkeypatch.setattr(listener, "COMPARISONS", 0)
    async with Pooler(url, 4) as pooler:
        store = PostgresStore(pooler.url + "?statement_cache=0")
        await store.listen(lambda _: None)
        assert not store.has_push
        assert set(map(tuple, (await listening_sessions(pooler, 4)).values())) == {()}
        await store.close()


@pytest.mark.parametrize("forget", ["discard all", "deallocate all"])
async def test_a_session_that_was_wiped(store: PostgresStore, stage: Stage, forget: str) -> None:
    """Between any two calls."""
    worker = await stage.worker()

    async def wipe() -> None:
        for lane in (store._leasing._lane, store._settlements, store._entrance, store._queries):
            await lane.call(lambda connection: connection.execute(forget))

    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: stage.put(2),
        lambda: stage.put_one(key="k"),
        lambda: stage.take(worker, 2),
        lambda: store.info([1]),
        lambda: store.settle(worker, []),
        lambda: store.cancel(1, NOTE),
        store.workers,
    ]
    for _ in range(2):
        for call in calls:
            await call()
            await wipe()
    assert len((await store.tasks(TaskFilter())).tasks) == 5


async def test_no_session_holds_anything(store: PostgresStore, stage: Stage, url: str) -> None:
    """No lock, no open transaction, no setting, no temporary table outlives a call."""
    worker = await stage.worker()
    await stage.put(10)
    leases = await stage.take(worker)
    await stage.beat(worker, [one.id for one in leases])
    await store.settle(worker, [done(one) for one in leases])
    await store.migrate()
    other = await asyncpg.connect(url)
    try:
        assert (
            await other.fetchval(
                """select count(*) from pg_locks join pg_stat_activity using (pid)
               where datname = current_database() and pid <> pg_backend_pid()"""
            )
            == 0
        )
        assert await other.fetch("select query from pg_stat_activity where state like 'idle in%'") == []
        assert await other.fetchval("select count(*) from pg_class where relpersistence = 't'") == 0
    finally:
        await other.close()
    for lane in (store._leasing._lane, store._settlements, store._queries):
        changed = await lane.rows(
            "select name from pg_settings where source = 'session' and name <> 'application_name'"
        )
        assert [row[0] for row in changed] == []
