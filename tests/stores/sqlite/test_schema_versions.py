"""Migrations: each once, in order, by name; an older schema is brought up to date, a newer one is left alone."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from everpoll.errors import SchemaOutdated
from everpoll.stores.contract import NewTask
from everpoll.stores.sqlite import SqliteStore, schema
from stores.sqlite.processes import finish, start

ALL = ["0001_tables"]


@pytest.fixture
def later_release(monkeypatch: pytest.MonkeyPatch) -> str:
    """This release has one more migration, which has semicolons in odd places."""
    known = schema.migrations()
    script = """-- adds; a column
        alter table everpoll_tasks add column mood text default 'calm;';
        create table everpoll_moods (mood text);
    """
    monkeypatch.setattr(schema, "migrations", lambda: {**known, "9999_mood": script})
    return "9999_mood"


async def test_the_names_of_what_was_applied_are_told(url: str) -> None:
    store = SqliteStore(url)
    assert await store.migrate() == ALL
    assert await store.migrate() == []
    await store.open(migrate=False)
    await store.close()


async def test_four_processes_at_once(url: str) -> None:
    """One of them migrates, the others wait for it."""
    starters = [start(url, "say(len(await store.migrate()))") for _ in range(4)]
    assert finish(*starters) == [["0"]] * 4
    with closing(sqlite3.connect(Path(url.removeprefix("sqlite:///")))) as con:
        assert con.execute("select name from everpoll_migrations").fetchall() == [(name,) for name in ALL]


async def test_an_older_schema_is_brought_up_to_date_with_its_rows(
    path: Path, url: str, request: pytest.FixtureRequest
) -> None:
    old = SqliteStore(url)
    await old.open()
    [task] = await old.enqueue([NewTask(name="job", args="[1]")])
    await old.close()
    name = request.getfixturevalue("later_release")
    with pytest.raises(SchemaOutdated, match=rf"{path}.*{name}.*everpoll migrate"):
        await SqliteStore(url).open(migrate=False)
    new = SqliteStore(url)
    assert await new.migrate() == [name]
    await new.open(migrate=False)
    assert (await new.info([task.id]))[task.id].args == [1]
    await new.close()


async def test_all_missing_migrations_or_none(path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    known = schema.migrations()
    monkeypatch.setattr(schema, "migrations", lambda: {**known, "9999_wrong": "create table a (x);\ncreate nonsense;"})
    with pytest.raises(sqlite3.OperationalError, match="nonsense"):
        await SqliteStore(url).open()
    with closing(sqlite3.connect(path)) as con:
        assert con.execute("select name from sqlite_master").fetchall() == []


async def test_a_newer_schema_is_refused(path: Path, url: str) -> None:
    """Also by a store that is open while it changes, as soon as it connects again."""
    store = SqliteStore(url)
    await store.open()
    with closing(sqlite3.connect(path)) as con, con:
        con.execute("insert into everpoll_migrations values ('9999_future', 0)")
    for migrate in (True, False):
        with pytest.raises(SchemaOutdated, match=r"9999_future.*upgrade everpoll"):
            await SqliteStore(url).open(migrate=migrate)
    with pytest.raises(SchemaOutdated, match="upgrade everpoll"):
        await store.info([1])
    await store.close()
