"""The `-wal` or `-shm` file is deleted under way: it is noticed, said and mended; nothing acknowledged is lost."""

import asyncio
import os
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from everpoll.drivers.sqlite import connection, lane
from everpoll.drivers.wake import Wake
from everpoll.errors import StoreUnavailable
from everpoll.stores.contract import NewTask, WorkerCard
from everpoll.stores.sqlite import SqliteStore
from stores.sqlite.processes import finish, start

JOB = NewTask(name="job")
CARD = WorkerCard(incarnation=5, label="w", host="h", pid=1, queues=("default",), slots=1, version="0")
GIVE_UP_S = 30.0
DELETED = pytest.mark.parametrize("suffixes", [["-wal"], ["-wal", "-shm"], ["-shm"]], ids=" and ".join)


@pytest.fixture(autouse=True)
def _inattentive(monkeypatch: pytest.MonkeyPatch) -> None:
    """An idle lane does not notice it before the operation does whose error the test is about."""
    monkeypatch.setattr(lane, "WATCH_S", 600.0)


@pytest.fixture
def outsider(path: Path, store: SqliteStore) -> Iterator[sqlite3.Connection]:
    """Another program's connection."""
    with closing(sqlite3.connect(path, isolation_level=None)) as con:
        yield con


def beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def delete(path: Path, suffixes: list[str]) -> None:
    for suffix in suffixes:
        beside(path, suffix).unlink()


async def enqueued(store: SqliteStore, count: int = 1) -> list[int]:
    """Enqueue, and again while that is an outage."""
    ids: list[int] = []
    async with asyncio.timeout(GIVE_UP_S):
        while len(ids) < count:
            try:
                ids += [one.id for one in await store.enqueue([JOB])]
            except StoreUnavailable:
                await asyncio.sleep(0.005)
    return ids


async def shown(store: SqliteStore, ids: list[int]) -> set[int]:
    async with asyncio.timeout(GIVE_UP_S):
        while True:
            try:
                return set(await store.info(ids))
            except StoreUnavailable:
                await asyncio.sleep(0.005)


def is_sound(path: Path) -> bool:
    with closing(sqlite3.connect(path)) as con:
        return con.execute("pragma integrity_check").fetchall() == [("ok",)]


@DELETED
async def test_it_is_said_and_work_goes_on(
    path: Path, store: SqliteStore, suffixes: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """The error names the file; what was acknowledged is in the database; nothing has to be restarted."""
    acknowledged = await enqueued(store, 21)
    assert await shown(store, acknowledged) == set(acknowledged)
    delete(path, suffixes)
    with pytest.raises(StoreUnavailable, match=f"{path}{suffixes[0]} was deleted .* copied into {path}"):
        await store.enqueue([JOB])
    assert f"{path}{suffixes[0]} was deleted while it was in use" in caplog.text
    assert await shown(store, acknowledged) == set(acknowledged)
    acknowledged += await enqueued(store)
    assert await shown(store, acknowledged) == set(acknowledged)
    assert beside(path, "-wal").exists()
    assert beside(path, "-shm").exists()
    await store.close()
    assert is_sound(path)


async def test_the_folder_tells_of_it(path: Path, store: SqliteStore) -> None:
    """Where nothing changes in the folder for a while, the files are not looked at one by one."""
    await enqueued(store)
    os.utime(path.parent, (1, 1))
    await enqueued(store)
    assert store._lanes.writer is not None
    assert store._lanes.writer._con is not None
    assert store._lanes.writer._con.paths.is_untouched()
    await enqueued(store)
    delete(path, ["-wal"])
    with pytest.raises(StoreUnavailable, match=f"{path}-wal was deleted"):
        await store.enqueue([JOB])


@DELETED
def test_what_was_acknowledged_survives_the_process(path: Path, url: str, suffixes: list[str]) -> None:
    """It is killed right after it was told that the file is gone."""
    process = start(
        url,
        f"""
        import os, signal
        from everpoll.errors import StoreUnavailable
        for _ in range(21):
            say(*(one.id for one in await store.enqueue([NewTask(name="job")])))
        await store.info([1])  # a second connection: SQLite itself saves what the last one has
        for suffix in {suffixes}:
            os.unlink({str(path)!r} + suffix)
        try:
            await store.enqueue([NewTask(name="job")])
        except StoreUnavailable as error:
            os.kill(os.getpid(), signal.SIGKILL)
        """,
    )
    said, _ = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    acknowledged = {int(line) for line in said.splitlines()}
    assert len(acknowledged) == 21
    with closing(sqlite3.connect(path)) as con:
        assert acknowledged <= {one for (one,) in con.execute("select id from everpoll_tasks")}
    assert is_sound(path)


@DELETED
async def test_several_processes_lose_nothing(path: Path, url: str, store: SqliteStore, suffixes: list[str]) -> None:
    """Each notices it by itself, and none writes beside another that still has the old file."""
    others = [
        start(
            f"{url}?synchronous=normal",
            """
            from everpoll.errors import StoreUnavailable
            for number in range(150):
                try:
                    say("id", (await store.enqueue([NewTask(name="job")]))[0].id)
                except StoreUnavailable as error:
                    say("outage", error)
                    await asyncio.sleep(0.02)
                if number == 50:
                    say("ready")
                    sys.stdin.readline()
            """,
        )
        for _ in range(2)
    ]
    acknowledged = await enqueued(store, 10)
    lines: list[list[str]] = []
    for one in others:
        assert one.stdout is not None
        lines.append(list(iter(one.stdout.readline, "ready\n")))
    delete(path, suffixes)
    with pytest.raises(StoreUnavailable, match="was deleted"):
        await store.enqueue([JOB])
    for one in others:
        assert one.stdin is not None
        one.stdin.write("\n")
        one.stdin.flush()
    acknowledged += await enqueued(store, 10)
    for one, more in zip(others, await asyncio.to_thread(finish, *others), strict=True):
        assert one.returncode == 0
        lines.append(more)
    acknowledged += [int(line.split()[1]) for some in lines for line in some if line.startswith("id ")]
    assert len(set(acknowledged)) == len(acknowledged)
    assert await shown(store, acknowledged) == set(acknowledged)
    await store.close()
    assert is_sound(path)


async def test_an_idle_process_notices_it(path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would hold the others up for ever: none can connect while it has the old file open."""
    monkeypatch.setattr(lane, "WATCH_S", 0.02)
    idle = SqliteStore(url)
    await idle.open()
    busy = SqliteStore(url)
    await busy.open()
    try:
        acknowledged = [*await enqueued(idle), *await enqueued(busy)]
        assert await shown(idle, acknowledged) == set(acknowledged)
        delete(path, ["-wal"])
        acknowledged += await enqueued(busy)
        assert await shown(busy, acknowledged) == set(acknowledged)
    finally:
        await idle.close()
        await busy.close()


async def test_a_listener_is_woken_when_it_is_mended(path: Path, store: SqliteStore) -> None:
    woken: asyncio.Queue[Wake] = asyncio.Queue()
    await store.listen(woken.put_nowait)
    async with asyncio.timeout(GIVE_UP_S):
        await woken.get()
        delete(path, ["-wal"])
        await woken.get()
    assert beside(path, "-wal").exists()


async def test_a_beat_is_refused(path: Path, store: SqliteStore) -> None:
    """A worker that cannot prove that it lives must not go on as if it had."""
    await store.sign_on(CARD, 600)
    heartbeat = store.heartbeat_connection()
    assert heartbeat.beat(5, 600, []).is_alive
    delete(path, ["-wal"])
    with pytest.raises(StoreUnavailable, match=f"{path}-wal was deleted"):
        heartbeat.beat(5, 600, [])
    await enqueued(store)
    assert heartbeat.beat(5, 600, []).is_alive
    heartbeat.close()


async def test_another_program_that_keeps_the_old_file_is_waited_for(
    path: Path, store: SqliteStore, outsider: sqlite3.Connection
) -> None:
    """Beside it nothing is written: each would overwrite what the other has written."""
    acknowledged = await enqueued(store, 3)
    outsider.execute("select count(*) from everpoll_tasks").fetchone()
    delete(path, ["-wal", "-shm"])
    with pytest.raises(StoreUnavailable, match="was deleted"):
        await store.enqueue([JOB])
    for _ in range(3):
        with pytest.raises(StoreUnavailable, match=f"{path}: another program .* still uses a -wal file"):
            await store.enqueue([JOB])
    with pytest.raises(StoreUnavailable, match="close every program that has it open"):
        await SqliteStore(f"sqlite:///{path}", patience_s=0.05).open()
    assert not beside(path, "-wal").exists()
    outsider.close()
    acknowledged += await enqueued(store)
    assert await shown(store, acknowledged) == set(acknowledged)


async def test_what_cannot_be_saved_yet_is_saved_later(
    path: Path, store: SqliteStore, outsider: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader is in the way. The connection is kept until then: closing it would throw away what the file held."""
    monkeypatch.setattr(connection, "SAVE_S", 0.02)
    acknowledged = await enqueued(store, 3)
    outsider.execute("begin")
    outsider.execute("select count(*) from everpoll_tasks").fetchone()
    acknowledged += await enqueued(store, 3)
    delete(path, ["-wal"])
    for _ in range(3):
        with pytest.raises(StoreUnavailable, match=f"could not be copied into {path} yet: leave this process running"):
            await store.enqueue([JOB])
    outsider.execute("commit")
    outsider.close()
    acknowledged += await enqueued(store)
    assert await shown(store, acknowledged) == set(acknowledged)


async def test_a_log_that_was_replaced(path: Path, tmp_path: Path, store: SqliteStore) -> None:
    """Nothing can be mended then, and the error says what to do."""
    await enqueued(store, 3)
    (tmp_path / "other").write_bytes(b"")
    os.replace(tmp_path / "other", beside(path, "-wal"))  # noqa: PTH105 - as a program would
    with pytest.raises(StoreUnavailable, match=f"{path}-wal was replaced .* `pragma integrity_check`"):
        await store.enqueue([JOB])


async def test_a_link_to_the_file(path: Path, tmp_path: Path) -> None:
    """The other files are beside the file that it leads to."""
    link = tmp_path / "link.db"
    real = SqliteStore(f"sqlite:///{path}")
    await real.open()
    await real.close()
    link.symlink_to(path)
    store = SqliteStore(f"sqlite:///{link}")
    await store.open()
    acknowledged = await enqueued(store, 3)
    delete(path, ["-wal"])
    with pytest.raises(StoreUnavailable, match=f"{path}-wal was deleted"):
        await store.enqueue([JOB])
    acknowledged += await enqueued(store)
    assert await shown(store, acknowledged) == set(acknowledged)
    await store.close()
