"""A row of any table, by any driver, and any function: a listed word ends it, every other one is pending."""

import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import asyncpg
import pytest
import sqlalchemy

from everpoll.errors import BadInput
from everpoll.watches.adapters import Adapter
from everpoll.watches.adapters.sql_row import Call, SqlRow
from everpoll.watches.verdicts import Done, Fail, Wait
from watches.adapters.looking import ended, timeline

STATEMENT = "SELECT state, rows, error FROM exports WHERE id = ?"
WORDS: dict[str, Any] = {"done": ["finished"], "failed": ["broken"], "canceled": ["stopped"]}


def no_connection() -> Any:
    raise AssertionError("judging needs no connection")


@pytest.mark.parametrize(
    ("row", "verdict"),
    [
        ({"state": "finished", "rows": 3}, Done({"state": "finished", "rows": 3})),
        ({"state": " Finished "}, Done({"state": " Finished "})),
        ({"state": "broken", "rows": 0}, Fail("the row says 'broken'", evidence={"state": "broken", "rows": 0})),
        ({"state": "stopped"}, Fail("the row says 'stopped'", evidence={"state": "stopped"}, canceled=True)),
        ({"state": "polishing"}, Wait(status="polishing")),
        ({"state": None}, Wait(note="the row has no status yet: it is NULL")),
        (None, Wait(note="the row is not there")),
    ],
)
def test_a_listed_word_ends_it_and_every_other_is_pending(row: Any, verdict: Any) -> None:
    assert SqlRow(no_connection, STATEMENT, **WORDS).judge(row) == verdict


def test_a_missing_row_may_be_a_failure() -> None:
    assert SqlRow(no_connection, STATEMENT, **WORDS, missing="fail").judge(None) == Fail("the row is not there")


def test_words_are_lists_and_there_is_at_least_one() -> None:
    with pytest.raises(BadInput, match="list of words"):
        SqlRow(no_connection, STATEMENT, done="finished")
    with pytest.raises(BadInput, match="ended well"):
        SqlRow(no_connection, STATEMENT, done=[])


def database(path: Path, *, state: str = "running") -> Callable[[], sqlite3.Connection]:
    connection = sqlite3.connect(path)
    with connection:
        connection.execute("CREATE TABLE exports (id TEXT PRIMARY KEY, state TEXT, rows INTEGER, error TEXT)")
        connection.execute("INSERT INTO exports VALUES ('a', ?, 3, NULL)", (state,))
    connection.close()
    return lambda: sqlite3.connect(path)


def change(connect: Callable[[], sqlite3.Connection], state: str) -> None:
    connection = connect()
    with connection:
        connection.execute("UPDATE exports SET state = ?", (state,))
    connection.close()


async def test_a_row_by_a_dbapi_connection(tmp_path: Path) -> None:
    connect = database(tmp_path / "a.db")
    adapter = SqlRow(connect, STATEMENT, **WORDS)
    assert isinstance(adapter, Adapter)
    assert await adapter.look("b") == Wait(note="the row is not there")
    assert await adapter.look("a") == Wait(status="running")
    # The handle is a parameter, never a part of the statement.
    assert await adapter.look("a' OR '1'='1") == Wait(note="the row is not there")
    change(connect, "finished")
    assert await adapter.look("a") == Done({"state": "finished", "rows": 3, "error": None})


async def test_a_row_by_an_engine_of_sqlalchemy(tmp_path: Path) -> None:
    connect = database(tmp_path / "a.db")
    engine = sqlalchemy.create_engine(f"sqlite:///{tmp_path / 'a.db'}", poolclass=sqlalchemy.NullPool)
    adapter = SqlRow(lambda: engine, STATEMENT, **WORDS)
    assert await adapter.look("a") == Wait(status="running")
    change(connect, "broken")
    assert isinstance(await adapter.look("a"), Fail)
    engine.dispose()


async def test_a_row_by_asyncpg(postgres_url: str) -> None:
    statement = "SELECT state, rows FROM exports WHERE id = $1"
    pool = await asyncpg.create_pool(postgres_url, min_size=1, max_size=2)
    try:
        await pool.execute("CREATE TABLE exports (id int PRIMARY KEY, state text, rows int)")
        await pool.execute("INSERT INTO exports VALUES (1, 'running', 3)")

        made = []

        async def connect() -> Any:
            made.append(await asyncpg.connect(postgres_url))
            return made[-1]

        def wrapper() -> Any:
            return connect()

        for way in (connect, lambda: pool, wrapper):
            await pool.execute("UPDATE exports SET state = 'running'")
            adapter = SqlRow(way, statement, **WORDS)
            assert await adapter.look(2) == Wait(note="the row is not there")
            assert await adapter.look(1) == Wait(status="running")
            await pool.execute("UPDATE exports SET state = 'finished'")
            assert await adapter.look(1) == Done({"state": "finished", "rows": 3})
        assert len(made) == 6
        assert all(one.is_closed() for one in made), "a connection that was made for a look is closed after it"
    finally:
        await pool.close()


async def test_a_driver_set_to_dictionaries_serves_too(tmp_path: Path) -> None:
    connect = database(tmp_path / "a.db", state="finished")

    def with_dictionaries() -> sqlite3.Connection:
        connection = connect()
        connection.row_factory = lambda cursor, row: dict(
            zip([column[0] for column in cursor.description], row, strict=True)
        )
        return connection

    assert isinstance(await SqlRow(with_dictionaries, STATEMENT, **WORDS).look("a"), Done)


async def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    """The second would take the place of the first, which is the status."""
    connect = database(tmp_path / "a.db")
    engine = sqlalchemy.create_engine(f"sqlite:///{tmp_path / 'a.db'}", poolclass=sqlalchemy.NullPool)
    statement = "SELECT state, 'finished' AS state FROM exports WHERE id = ?"
    for way in (connect, lambda: engine):
        with pytest.raises(BadInput, match="two columns named 'state'"):
            await SqlRow(way, statement, **WORDS).look("a")
    engine.dispose()


async def test_the_status_is_the_first_column_whatever_order_a_driver_gives(tmp_path: Path) -> None:
    connect = database(tmp_path / "a.db", state="finished")

    def backwards() -> sqlite3.Connection:
        connection = connect()
        connection.row_factory = lambda cursor, row: dict(
            reversed(list(zip([column[0] for column in cursor.description], row, strict=True)))
        )
        return connection

    assert isinstance(await SqlRow(backwards, STATEMENT, **WORDS).look("a"), Done)


async def test_null_is_no_word_not_even_none(tmp_path: Path) -> None:
    statement = "SELECT NULL AS state FROM exports WHERE id = ?"
    verdict = await SqlRow(database(tmp_path / "a.db"), statement, done=["none"]).look("a")
    assert verdict == Wait(note="the row has no status yet: it is NULL")


async def test_a_database_that_is_away_is_the_watchs_to_count(tmp_path: Path) -> None:
    closed = 0

    class Broken:
        def cursor(self) -> Any:
            raise sqlite3.OperationalError("away")

        def close(self) -> None:
            nonlocal closed
            closed += 1

    with pytest.raises(sqlite3.OperationalError):
        await SqlRow(Broken, STATEMENT, **WORDS).look("a")
    assert closed == 1


async def test_a_function_is_judged_by_predicates() -> None:
    answers = iter([{"state": "new", "pages": 0}, {"state": "busy", "pages": 0}, {"state": "ok", "pages": 4}])
    threads = set()

    def report(handle: str) -> dict[str, Any]:
        threads.add(threading.current_thread().name)
        assert handle == "r-1"
        return next(answers)

    adapter = Call(report, done=lambda one: one["pages"] > 0, status=lambda one: one["state"])
    assert isinstance(adapter, Adapter)
    verdicts = await timeline(adapter, "r-1")
    assert verdicts == [Wait(status="new"), Wait(status="busy"), Done({"state": "ok", "pages": 4})]
    assert "MainThread" not in threads


async def test_failure_is_asked_first_and_may_give_its_reason() -> None:
    async def both(handle: Any) -> dict[str, Any]:
        return {"ready": True, "error": "disk full"}

    answer = Call(both, done=lambda one: one["ready"], failed=lambda one: one["error"])
    assert await ended(answer, None) == Fail("disk full", evidence={"ready": True, "error": "disk full"})
    plain = Call(both, done=lambda one: one["ready"], failed=lambda one: "error" in one)
    verdict = await ended(plain, None)
    assert isinstance(verdict, Fail)
    assert verdict.reason == "failed= found a failure in the answer"


async def test_a_function_may_answer_a_verdict_itself() -> None:
    assert await ended(Call(Done, done=bool), 7) == Done(7)


async def test_what_a_function_raises_is_the_watchs_to_count() -> None:
    def broken(handle: Any) -> Any:
        raise ConnectionError("away")

    with pytest.raises(ConnectionError):
        await Call(broken, done=bool).look(1)
