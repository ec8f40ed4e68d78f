"""Locked, full, moved away, broken: each is told as an outage that names the file, and passes when its cause does."""

import asyncio
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from everpoll.drivers.sqlite.lane import Op
from everpoll.drivers.wake import Wake
from everpoll.errors import StoreUnavailable
from everpoll.stores.contract import Enqueued, NewTask, WorkerCard
from everpoll.stores.sqlite import SqliteStore

JOB = NewTask(name="job")
CARD = WorkerCard(incarnation=5, label="w", host="h", pid=1, queues=("default",), slots=1, version="0")


@pytest.fixture
def intruder(path: Path, store: SqliteStore) -> Iterator[sqlite3.Connection]:
    """Another program's connection."""
    with closing(sqlite3.connect(path, isolation_level=None)) as con:
        yield con


async def test_a_lock_held_too_long(path: Path, store: SqliteStore, intruder: sqlite3.Connection) -> None:
    """Reading goes on meanwhile; writing and beating do so once it is released."""
    await store.sign_on(CARD, 600)
    heartbeat = store.heartbeat_connection()
    intruder.execute("begin immediate")
    with pytest.raises(StoreUnavailable, match=f"{path}.*locked"):
        await store.enqueue([JOB])
    with pytest.raises(StoreUnavailable, match=f"{path}.*locked"):
        heartbeat.beat(5, 600, [])
    assert await store.info([1]) == {}
    intruder.execute("rollback")
    assert await store.enqueue([JOB]) == [Enqueued(1)]
    assert heartbeat.beat(5, 600, []).is_alive
    heartbeat.close()


async def test_an_idle_look_needs_no_lock(store: SqliteStore, intruder: sqlite3.Connection) -> None:
    await store.sign_on(CARD, 600)
    await store.enqueue([NewTask(name="job", delay_s=60)])
    intruder.execute("begin immediate")
    looked = await store.lease(5, {"default": 5}, 5)
    assert looked.leases == []
    assert looked.next_due_s is not None
    intruder.execute("rollback")


async def test_a_full_disk(path: Path, store: SqliteStore) -> None:
    """It fails what does not fit, not what came with it, and passes."""

    def limit(pages: int) -> Any:
        return store._write(Op(lambda con: con.execute(f"pragma max_page_count = {pages}").fetchone()[0]))

    await store.enqueue([JOB])
    pages = await store._write(Op(lambda con: con.execute("pragma page_count").fetchone()[0]))
    await limit(pages + 1)
    large = NewTask(name="job", args=f'"{"x" * 50_000}"')
    refused, accepted = await asyncio.gather(store.enqueue([large]), store.enqueue([JOB]), return_exceptions=True)
    assert isinstance(refused, StoreUnavailable)
    assert str(path) in str(refused)
    assert "disk is full" in str(refused)
    assert isinstance(accepted, list)
    await limit(1_000_000)
    [task] = await store.enqueue([large])
    assert len((await store.info([task.id]))[task.id].args) == 50_000


async def test_a_deleted_file(path: Path, store: SqliteStore) -> None:
    """SQLite would go on writing into a file that no process can open again. And no new one appears in its place."""
    await store.sign_on(CARD, 600)
    heartbeat = store.heartbeat_connection()
    assert heartbeat.beat(5, 600, []).is_alive
    _delete(path.parent)
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match=f"{path} was deleted or replaced"):
            await store.enqueue([JOB])
        with pytest.raises(StoreUnavailable, match=f"{path} was deleted or replaced"):
            await store.info([1])
        with pytest.raises(StoreUnavailable, match=f"{path} was deleted or replaced"):
            heartbeat.beat(5, 600, [])
    heartbeat.close()
    assert os.listdir(path.parent) == []  # noqa: PTH208 - a folder that is not a Path stays out of the way of the lint


async def test_a_file_that_was_moved_and_put_back(path: Path, tmp_path: Path, store: SqliteStore) -> None:
    [before] = await store.enqueue([JOB])
    away = tmp_path / "away"
    _move(path.parent, away)
    with pytest.raises(StoreUnavailable, match="put the file back"):
        await store.enqueue([JOB])
    _move(away, path.parent)
    [after] = await store.enqueue([JOB])
    assert {before.id, after.id} <= (await store.info([before.id, after.id])).keys()


async def test_a_file_that_was_replaced_by_a_backup(path: Path, tmp_path: Path, store: SqliteStore) -> None:
    """What is not known to be in it is told as an outage; then it is used."""
    [kept] = await store.enqueue([JOB])
    assert kept.id in await store.info([kept.id])
    with closing(sqlite3.connect(path)) as con, closing(sqlite3.connect(tmp_path / "backup.db")) as backup:
        con.backup(backup)
    [gone] = await store.enqueue([JOB])
    shutil.move(tmp_path / "backup.db", path)
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink()
    with pytest.raises(StoreUnavailable, match="deleted or replaced"):
        await store.enqueue([NewTask(name="other")])
    await store.enqueue([NewTask(name="other")])
    with pytest.raises(StoreUnavailable, match="deleted or replaced"):
        await store.info([kept.id])
    found = await store.info([kept.id, gone.id])
    assert [one.name for one in found.values()] == ["job", "other"]


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (sqlite3.SQLITE_IOERR_WRITE, "disk reports errors"),
        (sqlite3.SQLITE_IOERR_FSYNC, "disk reports errors"),
        (sqlite3.SQLITE_CORRUPT, "integrity_check"),
        (sqlite3.SQLITE_NOTADB, "not an SQLite database"),
        (sqlite3.SQLITE_READONLY, "read-only"),
    ],
)
async def test_a_broken_connection_is_opened_anew(path: Path, store: SqliteStore, code: int, words: str) -> None:
    def break_off(con: sqlite3.Connection) -> None:
        con.execute("delete from everpoll_tasks")
        error = sqlite3.OperationalError("it broke")
        error.sqlite_errorcode = code
        raise error

    await store.enqueue([JOB])
    assert store._lanes.writer is not None
    broken = store._lanes.writer._con
    with pytest.raises(StoreUnavailable, match=f"{path}: .*{words}.*it broke"):
        await store._write(Op(break_off))
    with pytest.raises(StoreUnavailable, match=f"{path}: .*{words}.*it broke"):
        await store._read(break_off)
    assert await store.enqueue([JOB]) == [Enqueued(2)]
    assert store._lanes.writer._con is not broken
    assert len(await store.info([1, 2])) == 2


async def test_one_that_fails_does_not_take_its_group_with_it(store: SqliteStore) -> None:
    def fail(con: sqlite3.Connection) -> None:
        con.execute("insert into everpoll_tasks (id) values (1)")

    ops = [store.enqueue([JOB]), _awaited(store, Op(fail)), store.enqueue([JOB])]
    first, failed, last = await asyncio.gather(*ops, return_exceptions=True)
    assert isinstance(failed, sqlite3.IntegrityError)
    assert [first, last] == [[Enqueued(1)], [Enqueued(2)]]


async def test_a_mistake_of_our_own_is_no_outage_to_be_waited_out(store: SqliteStore) -> None:
    def unbound(con: sqlite3.Connection) -> None:
        con.execute("select :name", {})

    with pytest.raises(sqlite3.ProgrammingError, match="binding"):
        await store._write(Op(unbound))


async def _awaited(store: SqliteStore, op: Op[Any]) -> Any:
    return await store._write(op)


async def test_a_listener_is_woken_when_the_file_is_back(path: Path, tmp_path: Path, store: SqliteStore) -> None:
    woken: asyncio.Queue[Wake] = asyncio.Queue()
    away = tmp_path / "away"
    await store.listen(woken.put_nowait)
    async with asyncio.timeout(30):
        await woken.get()
        _move(path.parent, away)
        with pytest.raises(StoreUnavailable, match="deleted"):
            await store.enqueue([JOB])
        _move(away, path.parent)
        await woken.get()


def _move(source: Path, target: Path) -> None:
    target.mkdir(exist_ok=True)
    for one in source.glob("tasks.db*"):
        one.rename(target / one.name)


def _delete(folder: Path) -> None:
    for one in folder.iterdir():
        one.unlink()
