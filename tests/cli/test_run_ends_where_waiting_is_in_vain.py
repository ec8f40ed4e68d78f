"""`everpoll run` with an address that leads nowhere ends with one line; a server that is away is waited for."""

import asyncio
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

from everpoll import CannotConnect, Everpoll, StoreUnavailable
from everpoll.drivers.postgres import faults
from everpoll.drivers.postgres.address import read_address
from everpoll.drivers.postgres.hosts import AllHostsFailed
from servers.postgres import Cluster, cluster
from warm_processes import PIPE, WarmProcess

APP = """
from everpoll import Everpoll

app = Everpoll()

@app.job()
async def work() -> None:
    pass
"""


@pytest.fixture(scope="module")
def guarded() -> Iterator[Cluster]:
    """A server that asks the role `guest` for a password."""

    async def make_guest() -> None:
        connection = await asyncpg.connect(server.url())
        await connection.execute("create role guest login password 'correct horse'")
        await connection.execute("create database closed")
        await connection.execute("revoke connect on database closed from public")
        await connection.close()

    with cluster() as server:
        asyncio.run(make_guest())
        rules = server.home / "data" / "pg_hba.conf"
        rules.write_text("host all guest 127.0.0.1/32 scram-sha-256\n" + rules.read_text())
        server.signal(signal.SIGHUP)
        yield server


def _start(folder: Path, url: str) -> WarmProcess:
    (folder / "shop.py").write_text(APP)
    env = {**os.environ, "EVERPOLL_URL": url, "COLUMNS": "200"}
    return WarmProcess(["-m", "everpoll", "run", "shop:app", "--grace", "0s"], cwd=folder, env=env, stderr=PIPE)


TROUBLES = [
    "wrong password",
    "no such role",
    "missing database",
    "closed database",
    "unknown host",
    "unknown parameter",
    "wrong value",
]


@pytest.mark.parametrize("trouble", TROUBLES)
def test_what_waiting_does_not_mend_ends_it_with_one_line(guarded: Cluster, tmp_path: Path, trouble: str) -> None:
    place = f"127.0.0.1:{guarded.port}"
    url, host, said = {
        "wrong password": (
            f"postgresql://guest:hunter2secret@{place}/postgres",
            place,
            "password authentication failed",
        ),
        "no such role": (f"postgresql://nemo:hunter2secret@{place}/postgres", place, 'role "nemo" does not exist'),
        "missing database": (f"postgresql://postgres@{place}/nowhere", place, 'database "nowhere" does not exist'),
        "closed database": (
            f"postgresql://guest:correct%20horse@{place}/closed",
            place,
            "grant guest the right to connect to the database",
        ),
        "unknown parameter": (f"{guarded.url()}?foo=bar", place, 'unrecognized configuration parameter "foo"'),
        "wrong value": (f"{guarded.url()}?work_mem=much", place, 'invalid value for parameter "work_mem"'),
        "unknown host": ("postgresql://guest:hunter2secret@db.invalid/postgres", "db.invalid", "check the host"),
    }[trouble]
    worker = _start(tmp_path, url)
    try:
        _, err = worker.communicate(timeout=60)
    finally:
        worker.kill()
    assert worker.returncode == 2, err
    lines = [line for line in err.splitlines() if "running shop:app" not in line]
    assert len(lines) == 1, err
    assert lines[0].startswith(f"everpoll: cannot connect to Postgres at {host}: ")
    assert said in lines[0]
    assert "hunter2secret" not in err


def test_a_role_that_lacks_a_right_ends_it_with_one_line(guarded: Cluster, tmp_path: Path) -> None:
    worker = _start(tmp_path, f"postgresql://guest:correct%20horse@127.0.0.1:{guarded.port}/postgres")
    try:
        _, err = worker.communicate(timeout=60)
    finally:
        worker.kill()
    assert worker.returncode == 2, err
    [line] = [line for line in err.splitlines() if "running shop:app" not in line]
    assert line.startswith("everpoll: the role guest may not create the schema everpoll")
    assert "grant create on database postgres to guest" in line


def test_a_server_that_is_down_is_waited_for(guarded: Cluster, tmp_path: Path) -> None:
    guarded.stop()
    worker = _start(tmp_path, guarded.url())
    assert worker.stderr is not None
    try:
        waiting = next(line for line in worker.stderr if "cannot start" in line)
        assert f"127.0.0.1:{guarded.port}" in waiting
        assert "trying again in" in waiting
    finally:
        guarded.start()
        worker.send_signal(signal.SIGTERM)
        worker.stderr.read()  # To its end: a worker that logs into a closed pipe exits with 120.
        worker.stderr.close()
    assert worker.wait(timeout=60) == 0


async def test_a_server_that_comes_up_late_is_worked_on(guarded: Cluster) -> None:
    app, began = Everpoll(guarded.url()), asyncio.Event()

    @app.job()
    async def work() -> None:
        began.set()

    guarded.stop()
    running = asyncio.ensure_future(app.run())
    try:
        with pytest.raises(StoreUnavailable) as away:
            await app.store()
        assert not isinstance(away.value, CannotConnect)
    finally:
        guarded.start()
    async with asyncio.timeout(30):
        await app.store()
        await work.enqueue()
        await began.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


AWAY = [
    asyncpg.CannotConnectNowError("the database system is starting up"),
    asyncpg.TooManyConnectionsError("sorry, too many clients already"),
    ConnectionRefusedError(111, "Connect call failed"),
    TimeoutError(),
    socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"),
]


@pytest.mark.parametrize("error", AWAY, ids=lambda error: type(error).__name__)
def test_what_may_pass_is_an_outage(error: Exception) -> None:
    meant = faults.while_connecting(error, read_address("postgresql://me:hunter2secret@db.example:6543/shop"))
    assert isinstance(meant, StoreUnavailable)
    assert not isinstance(meant, CannotConnect)
    assert "Postgres at db.example:6543" in str(meant)


def test_of_several_hosts_one_without_an_address_is_an_outage() -> None:
    """The others may come up."""
    address = read_address("postgresql://me@a.example,b.example/shop")
    unknown = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    both = zip(address.hosts, (unknown, ConnectionRefusedError()), strict=True)
    meant = faults.while_connecting(AllHostsFailed(list(both)), address)
    assert isinstance(meant, StoreUnavailable)
    assert not isinstance(meant, CannotConnect)
    assert "a.example" in str(meant)


def test_a_pooler_that_does_not_know_a_parameter_is_not_waited_for() -> None:
    """PgBouncer says it under the state of a protocol violation."""
    error = asyncpg.ProtocolViolationError("unsupported startup parameter: foo")
    meant = faults.while_connecting(error, read_address("postgresql://me@db.example/shop?foo=bar"))
    assert isinstance(meant, CannotConnect)
    assert "unsupported startup parameter: foo; check what follows the ? in the address" in str(meant)


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("postgresql://me:secret@[::1]:6543/shop", "[::1]:6543"),
        ("postgresql:///shop?host=/run/postgresql", "/run/postgresql"),
        ("postgresql:///shop?host=/run/postgresql&port=6543", "/run/postgresql:6543"),
        ("postgresql:///shop", "localhost"),
    ],
)
def test_the_place_is_named(url: str, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PGHOST", raising=False)
    monkeypatch.delenv("PGPORT", raising=False)
    assert read_address(url).place == place
