"""A new file, and what SQLite puts beside it, is for its owner alone; the mode of an existing file stays as it is."""

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from sqlite3 import connect

import pytest

from everpoll.errors import BadInput
from everpoll.stores.contract import NewTask
from everpoll.stores.sqlite import SqliteStore

JOB = NewTask(name="job")


@pytest.fixture(autouse=True)
def _generous() -> Iterator[None]:
    """By its mask, a new file of this process would be writable for every user."""
    before = os.umask(0)
    yield
    os.umask(before)


def modes(folder: Path) -> dict[str, int]:
    return {one.name: stat.S_IMODE(one.stat().st_mode) for one in folder.iterdir()}


async def test_a_new_file(path: Path, url: str) -> None:
    store = SqliteStore(url)
    await store.open()
    await store.enqueue([JOB])
    assert modes(path.parent) == {"tasks.db": 0o600, "tasks.db-wal": 0o600, "tasks.db-shm": 0o600}
    await store.close()
    assert modes(path.parent) == {"tasks.db": 0o600}


@pytest.mark.parametrize("mode", [0o644, 0o660])
async def test_an_existing_file_keeps_its_mode(path: Path, url: str, mode: int) -> None:
    """The other files follow it: a group that shares the file can be given access by `chmod`."""
    with closing(connect(path)) as con:
        con.execute("create table users_own (id)")
    os.chmod(path, mode)  # noqa: PTH101 - as a shell does
    store = SqliteStore(url)
    await store.open()
    await store.enqueue([JOB])
    assert modes(path.parent) == {"tasks.db": mode, "tasks.db-wal": mode, "tasks.db-shm": mode}
    await store.close()


async def test_an_empty_file_keeps_its_mode(path: Path, url: str) -> None:
    os.close(os.open(path, os.O_CREAT, 0o640))
    store = SqliteStore(url)
    await store.open()
    await store.close()
    assert modes(path.parent) == {"tasks.db": 0o640}


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="strace is a tool of Linux")
def test_there_is_no_moment_in_which_others_can_read_it(path: Path, url: str) -> None:
    """It is made with its mode, not changed to it."""
    code = f"import asyncio; from everpoll.stores.sqlite import SqliteStore; asyncio.run(SqliteStore({url!r}).open())"
    try:
        traced = subprocess.run(
            ["strace", "-f", "-e", "trace=open,openat,creat", sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError as error:
        pytest.skip(f"without strace it cannot be seen with which mode a file is made: {error}")
    if traced.returncode:
        pytest.skip(f"strace does not work here: {traced.stderr[-200:]}")
    made = [line for line in traced.stderr.splitlines() if "O_CREAT" in line and str(path.parent) in line]
    assert any(f'"{path}"' in line for line in made)
    assert all(", 0600)" in line for line in made)


async def test_a_folder_that_is_missing_is_told(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="the folder must exist"):
        await SqliteStore(f"sqlite:///{tmp_path}/no/tasks.db").open()
