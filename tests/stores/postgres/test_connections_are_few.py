"""A process has the connections that it uses, no others: servers have few to give."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import asyncpg
import pytest

from everpoll import Everpoll
from everpoll.drivers.postgres import connections
from everpoll.drivers.postgres.address import read_address
from everpoll.errors import BadInput, StoreUnavailable
from everpoll.stores.contract import NewTask
from everpoll.stores.postgres import PostgresStore
from everpoll.stores.postgres.heartbeat_connection import PostgresHeartbeatConnection
from stores.stage import LEASE_S, Stage, card_of, done

OTHERS = """select count(*) from pg_stat_activity
    where datname = current_database() and application_name = 'everpoll'"""
SLEEP = "select pg_sleep(600)"
GIVE_UP_S = 60.0
ROLE = "frugal"


@asynccontextmanager
async def watching(url: str) -> AsyncIterator[asyncpg.Connection]:
    """A connection of another kind, which counts ours."""
    watcher = await asyncpg.connect(url)
    try:
        yield watcher
    finally:
        await watcher.close()


async def until(condition: Callable[[], object]) -> None:
    """Look again and again; what does not come is an error."""
    async with asyncio.timeout(GIVE_UP_S):
        while True:
            answer = condition()
            if await answer if asyncio.iscoroutine(answer) else answer:
                return
            await asyncio.sleep(0.01)


async def beat(heartbeat: PostgresHeartbeatConnection, worker: int) -> None:
    await asyncio.to_thread(heartbeat.beat, worker, LEASE_S, [])


async def use_everything(store: PostgresStore, worker: int) -> None:
    """All lanes at the same time, a few times over."""
    for _ in range(10):
        await store.enqueue([NewTask(name="job")])
        leased, *_ = await asyncio.gather(
            store.lease(worker, {"default": 5}, 5),
            store.enqueue([NewTask(name="job")]),
            store.queues(),
            store.info([1]),
            store.cancel(1, "{}"),
        )
        await asyncio.gather(store.settle(worker, [done(one) for one in leased.leases]), store.workers())


async def test_who_only_enqueues_has_one_and_its_first_job_waits_for_none(url: str) -> None:
    """Opening connects the lane that enqueues; nothing is left to connect when the first job comes."""
    store = PostgresStore(url)
    async with watching(url) as watcher:
        await store.open()
        assert await watcher.fetchval(OTHERS) == 1
        opened = store._entrance.pid
        await store.enqueue([NewTask(name="job")])
        assert store._entrance.pid == opened
        await store.info([1])
        assert await watcher.fetchval(OTHERS) == 1
        await store.close()


@pytest.mark.parametrize(("option", "most"), [("", 3), ("?connections=2", 2), ("?connections=6", 6)])
async def test_a_worker_has_three_unless_told_otherwise(url: str, option: str, most: int) -> None:
    """However much it does at once: leasing, settling, enqueueing, reading, listening and beating."""
    store = PostgresStore(url + option)
    async with watching(url) as watcher:
        await store.open()
        card = card_of()
        await store.sign_on(card, LEASE_S)
        heartbeat = store.heartbeat_connection()
        await beat(heartbeat, card.incarnation)
        await store.listen(lambda _: None)
        assert store.has_push
        counts = []
        for _ in range(5):
            await use_everything(store, card.incarnation)
            counts.append(await watcher.fetchval(OTHERS))
        assert max(counts) <= most
        await asyncio.to_thread(heartbeat.close)
        await store.close()


async def test_a_slow_read_holds_up_nothing_else(url: str) -> None:
    """Neither leases nor settlements, enqueues or notifications of others: it keeps to one connection, not theirs."""
    store, other = PostgresStore(url), PostgresStore(url)
    await store.open()
    card = card_of()
    await store.sign_on(card, LEASE_S)
    woken = asyncio.Event()
    await store.listen(lambda _: woken.set())
    slow = asyncio.ensure_future(store._queries.row(SLEEP))
    try:
        async with watching(url) as watcher:
            await until(lambda: watcher.fetchval("select count(*) from pg_stat_activity where query = $1", SLEEP))
        async with asyncio.timeout(GIVE_UP_S):
            woken.clear()
            await other.enqueue([NewTask(name="job")])
            await woken.wait()
            [lease] = (await store.lease(card.incarnation, {"default": 5}, 5)).leases
            await store.enqueue([NewTask(name="job")])
            assert await store.settle(card.incarnation, [done(lease)]) == set()
        assert not slow.done()
    finally:
        slow.cancel()
        await asyncio.wait([slow])
        await store.close()
        await other.close()


async def test_idle_connections_are_closed(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """But for the last one, which listens if any does."""
    monkeypatch.setattr(connections, "IDLE_S", 0.05)
    store = PostgresStore(url)
    async with watching(url) as watcher:
        await store.open()
        await store.listen(lambda _: None)
        await asyncio.gather(store.queues(), store.enqueue([NewTask(name="job")]), store.info([1]))

        async def is_one() -> bool:
            return bool(await watcher.fetchval(OTHERS) == 1)

        await until(is_one)
        assert store.has_push
        assert len(await store.queues()) == 1
        await store.close()


async def test_a_break_is_a_doubt_for_leases_whichever_part_notices_it(stage: Stage, store: PostgresStore) -> None:
    """The server may have forgotten what it had answered: the next look asks what its worker holds."""
    worker = await stage.worker()
    await stage.take(worker)
    woken = asyncio.Event()
    await store.listen(lambda _: woken.set())
    await stage.take(worker)
    assert not store._held_leases.has_doubts(worker)
    await stage.backend.cut_connections()
    async with asyncio.timeout(GIVE_UP_S):
        await woken.wait()  # by the listener, which was the first to notice
    assert store._held_leases.has_doubts(worker)
    await stage.take(worker)
    assert not store._held_leases.has_doubts(worker)


async def frugal(url: str, limit: int) -> str:
    """The address for a role that may have so many connections."""
    async with watching(url) as admin:
        if not await admin.fetchval("select true from pg_roles where rolname = $1", ROLE):
            await admin.execute(f"create role {ROLE} login")
        await admin.execute(f"alter role {ROLE} connection limit {limit}")
        await admin.execute(f"grant usage on schema everpoll to {ROLE}")
        await admin.execute(f"grant all on all tables in schema everpoll to {ROLE}")
        await admin.execute(f"grant all on all sequences in schema everpoll to {ROLE}")
    return url.replace("postgres@", f"{ROLE}@")


async def both_used(store: PostgresStore) -> None:
    """As far as the server lets it."""
    slow = asyncio.ensure_future(store._queries.row("select pg_sleep(0.2)"))
    await asyncio.sleep(0)
    await store.enqueue([NewTask(name="job")])
    await slow


async def beats_soon(heartbeat: PostgresHeartbeatConnection, worker: int) -> None:
    """As a heartbeat does: again and again."""
    async with asyncio.timeout(GIVE_UP_S):
        while True:
            try:
                return await beat(heartbeat, worker)
            except StoreUnavailable:
                await asyncio.sleep(0.1)


async def test_the_heartbeat_goes_first(stage: Stage, url: str, caplog: pytest.LogCaptureFixture) -> None:
    """Where the server has no connection left for it, the lanes give up one of theirs, and go on with the other."""
    store = PostgresStore(await frugal(url, 2))
    await store.open()
    card = card_of()
    await both_used(store)
    assert len(store._connections.pids) == 2
    heartbeat = store.heartbeat_connection()
    with pytest.raises(StoreUnavailable, match="refuses a further connection"):
        await beat(heartbeat, card.incarnation)
    await beats_soon(heartbeat, card.incarnation)
    for _ in range(3):
        await both_used(store)
        await beat(heartbeat, card.incarnation)
    assert len(store._connections.pids) == 1
    assert sum("this is logged once" in one.message for one in caplog.records) <= 1
    await asyncio.to_thread(heartbeat.close)
    await store.close()
    del stage


async def test_others_give_up_what_a_heartbeat_needs(stage: Stage, url: str) -> None:
    """A worker that has no connection for its heartbeat asks: the other one gives up its second, too."""
    address = await frugal(url, 4)
    rich, poor = PostgresStore(address), PostgresStore(address)
    await poor.open()
    await poor.listen(lambda _: None)
    await rich.open()
    await rich.listen(lambda _: None)
    await both_used(rich)
    assert len(rich._connections.pids) == 2
    heartbeat = poor.heartbeat_connection()
    with pytest.raises(StoreUnavailable):
        await beat(heartbeat, 1)
    await until(lambda: len(rich._connections.pids) == 1)
    await beats_soon(heartbeat, 1)
    await both_used(rich)
    await both_used(poor)
    await asyncio.to_thread(heartbeat.close)
    await poor.close()
    await rich.close()
    del stage


@pytest.mark.parametrize("text", ["1", "0", "-3", "2.5", "many", ""])
def test_too_few_connections_are_refused(text: str) -> None:
    with pytest.raises(BadInput, match="2 or more"):
        read_address(f"postgresql://u@h/d?connections={text}")


def test_the_app_says_how_many() -> None:
    """The address carries it to the store and to adopted tables; other stores have no use for it."""
    app = Everpoll("postgresql://u@h/d?sslmode=require", connections=6)
    assert read_address(app.url).connections == 6
    assert read_address(Everpoll("postgresql://u@h/d").url).connections == 3
    assert Everpoll("memory://", connections=6).url == "memory://"
    with pytest.raises(BadInput, match="2 or more"):
        Everpoll("postgresql://u@h/d", connections=1)
