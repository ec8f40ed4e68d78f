"""An address with several hosts leads to the writable host, whichever that is by now."""

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest

from everpoll.drivers.postgres import hosts
from everpoll.drivers.postgres.address import read_address
from everpoll.drivers.postgres.hosts import AllHostsFailed, Host, first_usable
from everpoll.errors import BadInput, CannotConnect, StoreUnavailable
from everpoll.stores.contract import NewTask
from everpoll.stores.postgres import PostgresStore
from servers.postgres import Cluster, Standby, standby_of
from stores.postgres.proxy import Proxy

NOWHERE = "127.0.0.1:1"
GIVE_UP_S = 20.0
TASKS = "select count(*) from everpoll.tasks"
CUT = "select count(pg_terminate_backend(pid)) from pg_stat_activity where application_name = 'everpoll'"


def both(*servers: Cluster, options: str = "") -> str:
    """One address for all of them, in that order."""
    return f"postgresql://postgres@{','.join(f'127.0.0.1:{one.port}' for one in servers)}/postgres{options}"


@pytest.fixture
def standby(own_server: Cluster) -> Iterator[Standby]:
    """It follows, may be read, and may not be written to."""
    with standby_of(own_server) as server:
        yield server


async def test_a_standby_is_never_taken_for_the_primary(own_server: Cluster, standby: Standby) -> None:
    """Whichever comes first, and whether or not the address says what is wanted."""
    for order in ((standby, own_server), (own_server, standby)):
        for option in ("", "?target_session_attrs=read-write"):
            store = PostgresStore(both(*order, options=option))
            await store.open()
            assert len(await store.enqueue([NewTask(name="job")])) == 1
            await store.close()
    alone = PostgresStore(both(standby, options="?target_session_attrs=read-write"))
    with pytest.raises(StoreUnavailable, match="accepts no writes"):
        await alone.open()


async def enqueued_soon(store: PostgresStore) -> None:
    """A connection that broke is noticed by a failure or two."""
    async with asyncio.timeout(GIVE_UP_S):
        while True:
            with contextlib.suppress(StoreUnavailable):
                await store.enqueue([NewTask(name="job")])
                return


async def enqueued_until_refused(store: PostgresStore) -> None:
    async with asyncio.timeout(GIVE_UP_S):
        while True:
            await store.enqueue([NewTask(name="job")])


async def ask(server: Cluster, sql: str) -> Any:
    connection = await asyncpg.connect(server.url())
    try:
        return await connection.fetchval(sql)
    finally:
        await connection.close()


async def test_a_promoted_standby_is_followed_and_the_old_primary_left_alone(
    own_server: Cluster, standby: Standby
) -> None:
    """By callers, reads, heartbeats and the listener; the old primary comes back, and may not be written to."""
    store = PostgresStore(both(own_server, standby))
    await store.open()
    woken = asyncio.Event()
    await store.listen(lambda _: woken.set())
    await store.enqueue([NewTask(name="job")])
    before = await ask(own_server, TASKS)
    await asyncio.to_thread(own_server.stop)
    assert await ask(standby, "select pg_promote()")
    await enqueued_soon(store)
    own_server.set(default_transaction_read_only="on")
    await asyncio.to_thread(own_server.start)
    try:
        for _ in range(3):
            await ask(standby, CUT)
            await enqueued_soon(store)
        late = PostgresStore(both(own_server, standby))
        await late.open()
        await late.enqueue([NewTask(name="job")])
        await late.close()
        assert await ask(standby, TASKS) == before + 5
        assert await ask(own_server, TASKS) == before
        async with asyncio.timeout(GIVE_UP_S):
            while not store.has_push:  # noqa: ASYNC110 - a store has no event for it
                await asyncio.sleep(0.01)
    finally:
        await store.close()
        await asyncio.to_thread(own_server.stop)
        own_server.set(default_transaction_read_only=None)


async def test_a_server_that_becomes_read_only_is_left(own_server: Cluster, standby: Standby) -> None:
    """A switchover that ends no connection: the refused write does."""
    store = PostgresStore(both(own_server, standby))
    await store.open()
    await store.enqueue([NewTask(name="job")])
    try:
        await ask(own_server, "alter system set default_transaction_read_only = on")
        await ask(own_server, "select pg_reload_conf()")
        with pytest.raises(StoreUnavailable, match=r"read-only|accepts no writes"):
            await enqueued_until_refused(store)
        assert await ask(standby, "select pg_promote()")
        await enqueued_soon(store)
        assert {host.place for host in store._connector._sessions.hosts[:1]} == {f"127.0.0.1:{standby.port}"}
    finally:
        await store.close()
        (own_server.home / "data" / "postgresql.auto.conf").write_text("")
        await asyncio.to_thread(own_server.restart)


async def test_a_host_that_is_silent_holds_up_nothing(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that is gone takes packets and gives no answer: the next host is asked meanwhile."""
    monkeypatch.setattr(hosts, "STAGGER_S", 0.05)
    async with Proxy(url) as proxy:
        proxy.hold_answers()
        store = PostgresStore(url.replace("postgres@", f"postgres@{urlsplit(proxy.url).netloc.split('@')[1]},"))
        async with asyncio.timeout(GIVE_UP_S / 4):  # less than connecting may take
            await store.open()
            await asyncio.gather(store.queues(), store.enqueue([NewTask(name="job")]))
        await store.close()


async def test_when_no_host_will_do_each_is_told_of(own_server: Cluster, standby: Standby) -> None:
    del own_server
    store = PostgresStore(f"postgresql://postgres@{NOWHERE},127.0.0.1:{standby.port}/postgres")
    with pytest.raises(StoreUnavailable) as raised:
        await store.open()
    assert f"at {NOWHERE}: " in str(raised.value)
    assert f"at 127.0.0.1:{standby.port}: it accepts no writes" in str(raised.value)
    unknown = PostgresStore("postgresql://no.such.host.invalid,nor.this.invalid/postgres")
    with pytest.raises(CannotConnect):
        await unknown.open()
    # One that cannot be resolved may be one that is being replaced.
    mixed = PostgresStore(f"postgresql://postgres@no.such.host.invalid,{NOWHERE}/postgres")
    with pytest.raises(StoreUnavailable) as raised:
        await mixed.open()
    assert not isinstance(raised.value, CannotConnect)


async def test_connections_that_come_too_late_are_let_go() -> None:
    """Of hosts that answer at the same time one is used."""
    let_go: list[str] = []
    gate = asyncio.Event()

    async def connect(host: Host) -> str:
        if host.place == "a":
            gate.set()
            raise OSError("away")
        await gate.wait()
        return host.place

    host, found = await first_usable([Host(name, "") for name in "abc"], connect, let_go.append)
    assert (host.place, found) == ("b", "b")
    with pytest.raises(AllHostsFailed, match="a: away"):
        await first_usable([Host("a", "")], connect, let_go.append)
    assert let_go == []


@pytest.mark.parametrize(
    ("address", "places"),
    [
        ("postgresql://u:p@a:1,b:2/d", ["a:1", "b:2"]),
        ("postgresql://u@a,[::1]:5433/d?sslmode=require", ["a", "[::1]:5433"]),
        ("postgresql://u@/d?host=a,b&port=1,2&connections=4", ["a:1", "b:2"]),
        ("postgresql://u@/d?host=/run/pg,b&port=7", ["/run/pg:7", "b:7"]),
        ("postgresql://u@a/d", ["a"]),
        ("postgresql://u@/d?host=/run/pg&port=7", ["/run/pg:7"]),
    ],
)
def test_hosts_are_taken_one_by_one(address: str, places: list[str]) -> None:
    read = read_address(address)
    assert [host.place for host in read.hosts] == places
    assert read.place == ",".join(places)
    assert read.target == (None if len(places) == 1 else "read-write")
    assert all("," not in host.dsn and "connections" not in host.dsn for host in read.hosts)


def test_the_caller_may_say_which_server_is_meant() -> None:
    assert read_address("postgresql://a,b/d?target_session_attrs=primary").target is None


@pytest.mark.parametrize(
    "address", ["postgresql://a,,b/d", "postgresql://a:1,b:x/d", "postgresql:///d?host=a,b,c&port=1,2"]
)
def test_hosts_that_cannot_be_read_are_refused(address: str) -> None:
    with pytest.raises(BadInput, match="the address of the database"):
        read_address(address)
