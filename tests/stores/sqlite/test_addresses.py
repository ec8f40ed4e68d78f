"""The address names the file and how careful to be with it; what cannot be meant is refused with an example."""

import os
import sqlite3
from pathlib import Path

import pytest

from everpoll.drivers.sqlite.address import read_address
from everpoll.drivers.sqlite.lane import Op
from everpoll.errors import BadInput, SchemaOutdated
from everpoll.stores.contract import NewTask
from everpoll.stores.sqlite import SqliteStore


def test_three_slashes_are_relative_and_four_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """And a relative one stays the file that it was when it was read."""
    monkeypatch.chdir(tmp_path)
    assert read_address("sqlite:///a/b.db").path == tmp_path / "a" / "b.db"
    assert read_address("sqlite:////var/b.db").path == Path("/var/b.db")


@pytest.mark.parametrize(
    ("options", "synchronous"),
    [("", "full"), ("?synchronous=full", "full"), ("?synchronous=normal", "normal"), ("?synchronous=NORMAL", "normal")],
)
async def test_the_synchronous_option_reaches_the_connection(url: str, options: str, synchronous: str) -> None:
    assert read_address(url + options).synchronous == synchronous
    store = SqliteStore(url + options)
    await store.open()
    level = await store._write(Op(lambda con: con.execute("pragma synchronous").fetchone()[0]))
    await store.close()
    assert level == {"full": 2, "normal": 1}[synchronous]


@pytest.mark.parametrize(
    "address",
    [
        "sqlite://",
        "sqlite:///",
        "sqlite:///:memory:",
        "sqlite:///folder/",
        "sqlite://host/a.db",
        "sqlite:///a%00b.db",
        "postgresql:///a.db",
        "a.db",
        "",
        "sqlite:///a.db?synchronous=off",
        "sqlite:///a.db?synchronous",
        "sqlite:///a.db?journal=wal",
    ],
)
def test_what_cannot_be_meant_is_refused(address: str) -> None:
    with pytest.raises(BadInput, match=r"sqlite:///|MemoryStore|synchronous=full"):
        SqliteStore(address)


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("with space.db", "with space.db"),
        ("with%20space.db", "with space.db"),
        ("ünïcødé ✓.db", "ünïcødé ✓.db"),
        ("100%25.db", "100%.db"),
        ("what%3F.db", "what?.db"),
        ("a#b.db", "a#b.db"),
        ("a&mode=ro.db", "a&mode=ro.db"),
        ("'quoted';--.db", "'quoted';--.db"),
        ("no-suffix", "no-suffix"),
        (".hidden", ".hidden"),
    ],
)
async def test_odd_names(tmp_path: Path, written: str, name: str) -> None:
    store = SqliteStore(f"sqlite:///{tmp_path}/{written}")
    await store.open()
    [task] = await store.enqueue([NewTask(name="job")])
    assert task.id in await store.info([task.id])
    heartbeat = store.heartbeat_connection()
    assert not heartbeat.beat(1, 30, []).is_alive
    heartbeat.close()
    await store.close()
    assert os.listdir(tmp_path) == [name]  # noqa: PTH208 - the names as the system has them


async def test_a_link_to_the_file_is_the_file(tmp_path: Path) -> None:
    """Also for wake-ups: a listener that uses the link hears what is enqueued beside it."""
    real, link = tmp_path / "real.db", tmp_path / "link.db"
    link.symlink_to(real)
    one, other = SqliteStore(f"sqlite:///{link}"), SqliteStore(f"sqlite:///{real}")
    await one.open()
    await other.open()
    assert one._lanes.file_listeners is other._lanes.file_listeners
    [task] = await one.enqueue([NewTask(name="job")])
    assert task.id in await other.info([task.id])
    await one.close()
    await other.close()


async def test_a_path_that_cannot_be_used_is_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("this is not a database, but it is long enough to be taken for one" * 50)
    (tmp_path / "folder.db").mkdir()
    for name in ("text.db", "folder.db", "missing/tasks.db", "text.db/tasks.db"):
        with pytest.raises(BadInput, match=rf"{tmp_path}/{name}.*: "):
            await SqliteStore(f"sqlite:///{tmp_path}/{name}").open()


async def test_without_migrating_no_file_is_made(path: Path, url: str) -> None:
    with pytest.raises(SchemaOutdated, match="everpoll migrate"):
        await SqliteStore(url).open(migrate=False)
    assert os.listdir(path.parent) == []  # noqa: PTH208 - the names as the system has them


async def test_the_users_own_database_file_is_fine(path: Path, url: str) -> None:
    """Its tables, its version and its application id stay as they were."""
    con = sqlite3.connect(path)
    con.executescript("pragma user_version = 7; pragma application_id = 42; create table tasks (x); create table t (y)")
    con.execute("insert into tasks values ('mine')")
    con.commit()
    store = SqliteStore(url)
    await store.open()
    await store.enqueue([NewTask(name="job")] * 3)
    await store.close()
    assert con.execute("select * from tasks").fetchall() == [("mine",)]
    assert con.execute("pragma user_version").fetchone() == (7,)
    assert con.execute("pragma application_id").fetchone() == (42,)
    made = con.execute(
        "select name from sqlite_master where name not like 'sqlite_%' and tbl_name not in ('tasks', 't')"
    )
    assert {name[:9] for (name,) in made} == {"everpoll_"}
    con.close()
