"""The `-wal` file stays within its bound, beside readers and on a small disk. A full disk is an outage that passes."""

import asyncio
import os
import sqlite3
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from everpoll.drivers.sqlite import checkpoints
from everpoll.drivers.sqlite.connection import LOG_BYTES
from everpoll.errors import StoreUnavailable
from everpoll.stores.contract import NewTask, WorkerCard
from everpoll.stores.sqlite import SqliteStore
from stores.sqlite.processes import finish, start

JOB = NewTask(name="job")
GIVE_UP_S = 30.0
BOUND = LOG_BYTES + checkpoints.MEASURE_BYTES + 256 * 1024
"""With room for a transaction of these tests."""
WRITES = 800
"""Of 20 kB or more: four times the bound."""


@pytest.fixture
def url(path: Path) -> str:
    """Commits that need no flush: these tests make thousands, and what they prove is the same."""
    return f"sqlite:///{path}?synchronous=normal"


def card(number: int, incarnation: int = 5) -> WorkerCard:
    """Each different from the one before: what stays the same is not written."""
    label = str(number % 10) * 16_000
    return WorkerCard(incarnation=incarnation, label=label, host="h", pid=1, queues=("default",), slots=1, version="0")


CARD = card(0)


def log_bytes(path: Path) -> int:
    try:
        return path.with_name(path.name + "-wal").stat().st_size
    except FileNotFoundError:
        return 0


@asynccontextmanager
async def readers_without_a_gap(path: Path) -> AsyncIterator[None]:
    """At every moment some other connection has a read transaction open; each ends soon after the next has begun."""

    async def read(cons: list[sqlite3.Connection]) -> None:
        _begin_reading(cons[0])
        while True:
            for before, after in zip(cons, [*cons[1:], cons[0]], strict=True):
                _begin_reading(after)
                await asyncio.sleep(0.002)
                before.execute("commit")

    with closing(_connect(path)) as one, closing(_connect(path)) as two, closing(_connect(path)) as three:
        reading = asyncio.ensure_future(read([one, two, three]))
        try:
            yield
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)


def _connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, isolation_level=None)


def _begin_reading(con: sqlite3.Connection) -> None:
    con.execute("begin")
    con.execute("select count(*) from everpoll_workers").fetchone()


async def _largest_log(store: SqliteStore, path: Path, writes: int = WRITES) -> int:
    largest = 0
    for number in range(writes):
        await store.sign_on(card(number), 600)
        largest = max(largest, log_bytes(path))
    return largest


async def test_without_readers(path: Path, store: SqliteStore) -> None:
    assert await _largest_log(store, path) <= BOUND


async def test_beside_readers_that_leave_no_gap(path: Path, store: SqliteStore) -> None:
    await store.sign_on(CARD, 600)
    async with readers_without_a_gap(path):
        assert await _largest_log(store, path) <= BOUND


async def test_with_large_rows(path: Path, store: SqliteStore) -> None:
    """The bound is one of bytes, however many rows they are."""
    large = NewTask(name="job", args=f'"{"x" * 100_000}"')
    largest = 0
    for _ in range(150):
        await store.enqueue([large])
        largest = max(largest, log_bytes(path))
    assert largest <= BOUND


async def test_with_many_large_calls_at_once(path: Path, store: SqliteStore) -> None:
    """They share transactions, but not one that is as large as all of them."""
    large = NewTask(name="job", args=f'"{"x" * 1_000_000}"')
    calls = [asyncio.ensure_future(store.enqueue([large])) for _ in range(40)]
    largest = 0
    while not all(call.done() for call in calls):
        await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED, timeout=0.001)
        largest = max(largest, log_bytes(path))
    assert len({(await call)[0].id for call in calls}) == 40
    # One transaction that fills the log, and the next one, before the log begins anew.
    assert largest <= 3 * LOG_BYTES


async def test_a_large_transaction_is_given_back(path: Path, store: SqliteStore) -> None:
    await store.enqueue([NewTask(name="job", args=f'"{"x" * 100_000}"')] * 100)
    assert log_bytes(path) > 2 * LOG_BYTES
    async with asyncio.timeout(GIVE_UP_S):
        while log_bytes(path) > BOUND:
            await store.sign_on(CARD, 600)


async def test_several_processes(path: Path, url: str, store: SqliteStore) -> None:
    """Each keeps the log small for all of them, beside readers."""
    await store.sign_on(CARD, 600)
    writers = [
        start(
            url,
            f"""
            for count in range({WRITES}):
                await store.sign_on(
                    WorkerCard(
                        incarnation={number},
                        label=str(count % 10) * 16_000,
                        host="h",
                        pid=1,
                        queues=("default",),
                        slots=1,
                        version="0",
                    ),
                    600,
                )
            """,
        )
        for number in (1, 2)
    ]
    largest = 0
    async with readers_without_a_gap(path), asyncio.timeout(GIVE_UP_S):
        while any(one.poll() is None for one in writers):
            largest = max(largest, log_bytes(path))
            await asyncio.sleep(0.001)
    finish(*writers)
    # A writer that slips in between two tries makes the readers of that moment old.
    assert largest <= 2 * LOG_BYTES


async def test_a_reader_that_stays_is_told_and_waited_for(
    path: Path, store: SqliteStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Then the log grows. When the reader ends it is small again, although nothing is written any more."""
    monkeypatch.setattr(checkpoints, "READERS_S", 0.02)
    monkeypatch.setattr(checkpoints, "LONGEST_READERS_S", 0.02)
    monkeypatch.setattr(checkpoints, "RETRY_S", 0.02)
    monkeypatch.setattr("everpoll.drivers.sqlite.lane.WATCH_S", 0.02)
    large = NewTask(name="job", args=f'"{"x" * 500_000}"')
    await store.enqueue([large])
    with closing(_connect(path)) as reader:
        _begin_reading(reader)
        async with asyncio.timeout(GIVE_UP_S):
            while "grown" not in caplog.text:
                await store.enqueue([large])
            assert log_bytes(path) > 4 * LOG_BYTES
            assert f"{path}-wal has grown to " in caplog.text
            assert "another program keeps a read transaction open" in caplog.text
            reader.execute("commit")
            while log_bytes(path) > LOG_BYTES:  # noqa: ASYNC110 - the writer's thread makes it so
                await asyncio.sleep(0.005)
    assert caplog.text.count("has grown") == 1


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    try:
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=8m", "none", folder], capture_output=True, text=True, check=False
        )
    except FileNotFoundError as error:
        pytest.skip(f"a file system of 8 MB cannot be mounted here: {error}")
    if mounted.returncode:
        pytest.skip(f"a file system of 8 MB cannot be mounted here: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


async def test_a_small_disk_does_not_fill_up(small_disk: Path) -> None:
    path = small_disk / "tasks.db"
    store = SqliteStore(f"sqlite:///{path}")
    await store.open()
    try:
        await store.sign_on(CARD, 600)
        async with readers_without_a_gap(path):
            assert await _largest_log(store, path) <= BOUND
    finally:
        await store.close()


async def test_a_full_disk_is_an_outage_that_passes(small_disk: Path) -> None:
    """What was acknowledged is there, what was not is not; nothing has to be restarted."""
    path = small_disk / "tasks.db"
    store = SqliteStore(f"sqlite:///{path}")
    await store.open()
    large = NewTask(name="job", args=f'"{"x" * 50_000}"')
    acknowledged = [one.id for one in await store.enqueue([JOB])]

    async def enqueue_many() -> None:
        for _ in range(100):
            acknowledged.append((await store.enqueue([large]))[0].id)

    ballast = small_disk / "ballast"
    try:
        with ballast.open("wb") as file:
            room = os.statvfs(small_disk)
            file.write(bytes(room.f_bavail * room.f_frsize - 300_000))
        with pytest.raises(StoreUnavailable, match=f"{path}: its disk is full"):
            await enqueue_many()
        with pytest.raises(StoreUnavailable, match=str(path)):
            await enqueue_many()
        ballast.unlink()
        acknowledged += [one.id for one in await store.enqueue([large])]
        assert list(await store.info(acknowledged)) == acknowledged
        assert sum(one.ready for one in await store.queues()) == len(acknowledged)
    finally:
        await store.close()


async def test_the_log_is_given_back_when_the_disk_is_full(small_disk: Path) -> None:
    """A reader was in the way, and the log has taken all the room. The reader ends: work goes on, nothing is freed."""
    path = small_disk / "tasks.db"
    store = SqliteStore(f"sqlite:///{path}")
    await store.open()
    try:
        await store.sign_on(CARD, 600)
        with closing(_connect(path)) as reader:
            _begin_reading(reader)
            with pytest.raises(StoreUnavailable, match="disk is full"):
                await _largest_log(store, path)
            reader.execute("commit")
        async with asyncio.timeout(GIVE_UP_S):
            while True:
                try:
                    await store.sign_on(CARD, 600)
                except StoreUnavailable:
                    await asyncio.sleep(0.01)
                else:
                    break
            assert await _largest_log(store, path) <= BOUND
    finally:
        await store.close()
