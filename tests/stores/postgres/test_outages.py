"""The database goes away and comes back: every call says so and the next one works; nothing hangs, nothing is lost."""

import asyncio
import contextlib
import signal
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

import asyncpg
import pytest

from everpoll.errors import BadInput, SchemaOutdated, StoreUnavailable
from everpoll.stores.contract import Lease, NewTask, Store, TaskFilter
from everpoll.stores.postgres import PostgresStore
from servers.postgres import Cluster
from stores.backends import PostgresBackend
from stores.postgres.proxy import Proxy
from stores.stage import LEASE_S, Stage, card_of, done, json

NOTE = json({"what": "test"})
SECRET = "s3cr%2Fet"  # noqa: S105 - the password that must not show up
PLAIN = "s3cr/et"
T = TypeVar("T")


def calls(store: PostgresStore) -> dict[str, Callable[[], Awaitable[object]]]:
    """Every operation that reaches the database."""
    heartbeat = store.heartbeat_connection()
    return {
        "open": store.open,
        "migrate": store.migrate,
        "enqueue": lambda: store.enqueue([NewTask(name="job")]),
        "enqueue many": lambda: store.enqueue([NewTask(name="job", key=key) for key in ("a", None)]),
        "sign_on": lambda: store.sign_on(card_of(), LEASE_S),
        "sign_off": lambda: store.sign_off(1),
        "lease": lambda: store.lease(1, {"default": 1}, 1),
        "settle": lambda: store.settle(1, [done(_lease())]),
        "progress": lambda: store.progress(1, _lease(), "1"),
        "cancel": lambda: store.cancel(1, NOTE),
        "retry": lambda: store.retry(1, NOTE),
        "note_loss": lambda: store.note_loss(1, NOTE),
        "losses": lambda: store.losses(1),
        "info": lambda: store.info([1]),
        "ended": lambda: store.ended([1]),
        "tasks": lambda: store.tasks(TaskFilter()),
        "workers": store.workers,
        "queues": store.queues,
        "prune": lambda: store.prune(1.0),
        "beat": lambda: asyncio.to_thread(_beat, store),
        "beat on": lambda: asyncio.to_thread(heartbeat.beat, 1, LEASE_S, []),
        "close the heartbeat connection": lambda: asyncio.to_thread(heartbeat.close),
    }


def _lease() -> Lease:
    return Lease(1, 1, 1, "job", "default", "null")


def _beat(store: PostgresStore) -> None:
    heartbeat = store.heartbeat_connection()
    try:
        heartbeat.beat(1, LEASE_S, [])
    finally:
        heartbeat.close()


def hears(store: Store) -> bool:
    """Whether notifications arrive, by now."""
    return store.has_push


async def soon(call: Callable[[], Awaitable[T]]) -> T:
    """What broke may take a failure or two to be noticed, and a server its time to be back."""
    async with asyncio.timeout(30):
        while True:
            with contextlib.suppress(StoreUnavailable):
                return await call()


async def test_a_server_that_is_not_there(own_server: Cluster) -> None:
    """Each operation says so, and none of them waits for better times."""
    own_server.stop()
    store = PostgresStore(own_server.url())
    for name, call in calls(store).items():
        if name == "close the heartbeat connection":
            await call()
            continue
        with pytest.raises(StoreUnavailable):
            await call()
    await store.close()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT], ids=["stopped", "crashed"])
async def test_a_restart_in_the_middle(own_server: Cluster, how: signal.Signals) -> None:
    """Leases stand, results are settled afterwards, wake-ups arrive again."""
    backend = PostgresBackend("own", own_server.url())
    stage = Stage(backend)
    await stage.open()
    store = stage.store
    worker = await stage.worker()
    woken = asyncio.Event()
    await store.listen(lambda _: woken.set())
    assert store.has_push
    lease = await stage.running(worker)
    await stage.beat(worker, [lease.id])
    await asyncio.to_thread(own_server.stop, how)
    for call in (lambda: store.settle(worker, [done(lease)]), lambda: stage.take(worker), stage.put):
        with pytest.raises(StoreUnavailable):
            await call()
    with pytest.raises(StoreUnavailable):
        await stage.beat(worker)
    woken.clear()
    await asyncio.to_thread(own_server.start)
    assert await soon(lambda: store.settle(worker, [done(lease, 7)])) == set()
    assert (await stage.show(lease.id)).result == 7
    assert (await stage.beat(worker)).is_alive
    async with asyncio.timeout(30):
        while not hears(store):
            # Woken by the first part that got through, and again by the listener.
            woken.clear()
            await woken.wait()
    assert len(await stage.put(2)) == 2
    assert len(await stage.take(worker)) == 2
    await stage.close()


async def test_every_connection_is_cut(stage: Stage, store: PostgresStore) -> None:
    """Three times over, in the middle of whatever it is."""
    worker = await stage.worker()
    await stage.beat(worker)
    ids: list[int] = []
    for _ in range(3):
        [answer] = await soon(lambda: store.enqueue([NewTask(name="job")]))
        ids.append(answer.id)
        await stage.backend.cut_connections()
        assert (await stage.beat(worker)).is_alive
        leases = await soon(lambda: stage.take(worker))
        await stage.backend.cut_connections()
        await soon(partial(store.settle, worker, [done(one) for one in leases]))
        await stage.backend.cut_connections()
        assert await soon(store.queues) == []
    assert {one.state for one in (await store.info(ids)).values()} == {"done"}


async def test_a_server_that_stops_answering(url: str) -> None:
    """Neither a new connection nor a statement under way waits longer than it was told to."""
    async with Proxy(url) as proxy:
        store = PostgresStore(f"{proxy.url}?command_timeout=0.1&connect_timeout=0.1")
        await store.queues()
        proxy.hold_answers()
        with pytest.raises(StoreUnavailable, match=r"did not answer within 0\.1 s"):
            await store.queues()
        with pytest.raises(StoreUnavailable, match=r"cannot connect|did not answer"):
            await store.queues()
        many = await asyncio.gather(*(store.queues() for _ in range(5)), return_exceptions=True)
        assert [type(one) for one in many] == [StoreUnavailable] * 5
        proxy.let_through()
        assert await soon(store.queues) == []
        await store.close()


async def test_a_canceled_call_does_not_spoil_the_next(stage: Stage, store: PostgresStore) -> None:
    worker = await stage.worker()
    await stage.put(50)
    for _ in range(5):
        for make in (store.queues, lambda: stage.take(worker, 1), lambda: stage.put(1)):
            call = asyncio.ensure_future(make())
            await asyncio.sleep(0)
            call.cancel()
            await asyncio.wait([call])
    assert len(await store.workers()) == 1
    assert await stage.take(worker, 100)


async def test_passwords_stay_secret(own_server: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    """Wrong, or the server away: neither the error nor the log tells it."""
    port = own_server.port
    own_server.stop()
    texts = []
    for address in (
        f"postgresql://someone:{SECRET}@127.0.0.1:{port}/postgres",
        f"postgresql://someone@127.0.0.1:{port}/postgres?password={SECRET}",
        f"postgresql://someone:{SECRET}@no.such.host.invalid/postgres",
    ):
        store = PostgresStore(address)
        with pytest.raises(StoreUnavailable) as raised:
            await store.open()
        await store.listen(lambda _: None)
        await store.close()
        texts += [str(raised.value), repr(store._connector.address)]
    for address in (
        f"postgresql://someone:pa/{PLAIN}@host:x/db",
        f"mysql://someone:{SECRET}@host/db",
        f"postgresql://someone:{SECRET}@host/db?statement_cache=many",
    ):
        with pytest.raises(BadInput) as refused:
            PostgresStore(address)
        texts.append(str(refused.value))
    with pytest.raises(BadInput) as refused:
        await PostgresStore(f"postgresql://someone:{SECRET}@host/db?sslmode=perhaps").open()
    texts.append(str(refused.value))
    for text in [*texts, caplog.text]:
        assert SECRET not in text
        assert PLAIN not in text


async def test_a_wrong_password_says_what_the_server_says(own_server: Cluster) -> None:
    connection = await asyncpg.connect(own_server.url())
    await connection.execute("create role someone login password 'right'")
    await connection.close()
    rules = own_server.home / "data" / "pg_hba.conf"
    rules.write_text("host all someone 127.0.0.1/32 scram-sha-256\n" + rules.read_text())
    own_server.restart()
    store = PostgresStore(own_server.url().replace("postgres@", f"someone:{SECRET}@"))
    with pytest.raises(StoreUnavailable, match="password authentication failed for user") as raised:
        await store.open()
    assert PLAIN not in str(raised.value)


async def test_a_schema_that_is_not_there(bare_url: str) -> None:
    """Who forgot to open the store is told what to do."""
    store = PostgresStore(bare_url)
    place = bare_url.split("@")[1].partition("/")[0]
    with pytest.raises(SchemaOutdated, match=rf"no everpoll tables in the database 'test_\d+' at {place}. Check "):
        await store.open(migrate=False)
    with pytest.raises(SchemaOutdated, match="everpoll migrate"):
        await store.enqueue([NewTask(name="job")])
    with pytest.raises(SchemaOutdated, match="everpoll migrate"):
        await store.queues()
    await store.close()


async def test_a_server_that_may_not_write(stage: Stage, url: str) -> None:
    """After a failover the old address may lead to a standby: that passes."""
    database = url.rsplit("/", 1)[1]
    admin = await asyncpg.connect(url)
    try:
        await admin.execute(f"alter database {database} set default_transaction_read_only = on")
        store = PostgresStore(url)
        with pytest.raises(StoreUnavailable, match="read-only"):
            await store.enqueue([NewTask(name="job")])
        await admin.execute("set default_transaction_read_only = off")
        await admin.execute(f"alter database {database} reset default_transaction_read_only")
        assert len(await store.enqueue([NewTask(name="job")])) == 1
        await store.close()
    finally:
        await admin.close()
    del stage


async def test_values_that_postgres_cannot_keep(store: PostgresStore) -> None:
    """A mistake of the caller does not count as an outage, or it would be tried again for ever."""
    for task in (
        NewTask(name="nul \0"),
        NewTask(name="job", priority=-(2**31)),
        NewTask(name="job", version=2**40),
        NewTask(name="lone surrogate \ud800"),
    ):
        with pytest.raises(BadInput):
            await store.enqueue([task])
        with pytest.raises(BadInput):
            await store.enqueue([task, NewTask(name="fine")])
    assert await store.queues() == []
