"""The doctor on a SQLite file: each check is made red on purpose, and the file stays as it was."""

import asyncio
import os
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from everpoll.doctor import Check, diagnose
from everpoll.drivers.sqlite.address import read_address
from everpoll.stores import examination
from everpoll.stores.contract import NewTask
from everpoll.stores.sqlite import SqliteStore
from everpoll.stores.sqlite import examination as sqlite_examination
from everpoll.stores.sqlite.examination import SqliteExaminer

MB = 2**20


def checks(url: str, ahead_s: float = 0.0) -> dict[str, Check]:
    found = asyncio.run(diagnose(SqliteExaminer(read_address(url), lambda: time.time() + ahead_s)))
    return {one.name: one for one in found.checks}


@pytest.fixture
def made(runner: asyncio.Runner, url: str, path: Path) -> Path:
    """A file with the schema, closed."""
    store = SqliteStore(url)
    runner.run(store.open())
    runner.run(store.close())
    return path


async def _enqueued(store: SqliteStore) -> None:
    await store.enqueue([NewTask(name="job")])


def run(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


def test_a_file_that_is_not_there_is_a_problem_and_is_not_made(url: str, path: Path) -> None:
    """The doctor says where it looked, and creates nothing there."""
    found = checks(url)
    assert found["database"].level == found["schema"].level == "problem"
    assert str(path) in found["database"].says
    assert found["leases"].says == "not looked at: the database does not answer"
    assert not path.exists()


def test_a_file_that_is_no_database_is_a_problem(url: str, path: Path) -> None:
    path.write_text("this is a text " * 1000)
    found = checks(url)
    assert found["database"].level == "problem"
    assert "not an SQLite database" in found["database"].says


def test_a_database_without_everpoll_is_a_problem(url: str, path: Path) -> None:
    run(path, "create table orders (id integer)")
    found = checks(url)
    assert (found["database"].level, found["schema"].level) == ("ok", "problem")
    assert "everpoll migrate" in found["schema"].remedy
    assert found["integrity"].level == "ok"
    assert found["queues"].level == "warning"


def test_an_older_and_a_newer_schema_are_problems(url: str, made: Path) -> None:
    run(made, "delete from everpoll_migrations where name = '0001_tables'")
    found = checks(url)
    assert found["schema"].level == "problem"
    assert "0001_tables" in found["schema"].says
    run(made, "insert into everpoll_migrations values ('0001_tables', 0), ('9999_future', 0)")
    found = checks(url)
    assert "9999_future" in found["schema"].says
    assert "upgrade" in found["schema"].remedy


def test_a_missing_index_is_a_problem_with_the_statement_that_makes_it(url: str, made: Path) -> None:
    run(made, "drop index everpoll_tasks_ready")
    found = checks(url)["indexes"]
    assert found.level == "problem"
    assert "everpoll_tasks_ready" in found.says
    statement = found.remedy.removeprefix("run: ")
    run(made, statement)
    assert checks(url)["indexes"].level == "ok"


def test_an_index_that_the_planner_leaves_alone_is_a_warning(url: str, made: Path) -> None:
    """An index of the same name on other columns is there, and of no use."""
    run(made, "drop index everpoll_tasks_waiting", "create index everpoll_tasks_waiting on everpoll_tasks (args)")
    found = checks(url)["indexes"]
    assert found.level == "warning"
    assert "everpoll_tasks_waiting" in found.says


def test_instants_from_the_future_show_a_wrong_clock(url: str, made: Path, runner: asyncio.Runner) -> None:
    store = SqliteStore(url)
    runner.run(store.open())
    runner.run(_enqueued(store))
    runner.run(store.close())
    assert checks(url)["clock"].level == "ok"
    assert checks(url, ahead_s=-10.0)["clock"].level == "warning"
    assert checks(url, ahead_s=-600.0)["clock"].level == "problem"


def test_a_program_that_keeps_the_write_lock_is_a_problem(
    url: str, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_examination, "LIMIT_S", 0.1)
    with closing(sqlite3.connect(made, isolation_level=None)) as connection:
        connection.execute("begin immediate")
        found = checks(url)["transactions"]
        connection.execute("rollback")
    assert found.level == "problem"
    assert "write lock" in found.says
    assert f"fuser {made}" in found.remedy
    assert checks(url)["transactions"].level == "ok"


def test_a_log_that_grows_is_told(url: str, made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that keeps its snapshot keeps the log; here the limits are small instead of the log large."""
    monkeypatch.setattr(sqlite_examination, "LOG_BYTES", 1_000)
    with closing(sqlite3.connect(made, isolation_level=None)) as reader, closing(sqlite3.connect(made)) as writer:
        reader.execute("begin")
        reader.execute("select count(*) from everpoll_tasks").fetchone()
        writer.execute("pragma wal_autocheckpoint = 0")
        writer.execute("create table notes (text)")
        writer.execute("insert into notes values (randomblob(100000))")
        writer.commit()
        found = checks(url)["log"]
    assert found.level == "warning"
    assert f"fuser {made}-wal" in found.remedy


def test_a_damaged_file_is_a_problem(url: str, made: Path) -> None:
    """Random bytes in the middle of a table are found by the quick check."""
    run(made, "create table notes (text)", "insert into notes select randomblob(3000) from everpoll_migrations")
    run(made, "pragma wal_checkpoint(truncate)", "create index notes_text on notes (text)")
    with closing(sqlite3.connect(made)) as connection:
        (root,) = connection.execute("select rootpage from sqlite_master where name = 'notes'").fetchone()
        (size,) = connection.execute("pragma page_size").fetchone()
    with made.open("r+b") as file:
        file.seek((root - 1) * size)
        file.write(b"\xff" * 200)
    found = checks(url)["integrity"]
    assert found.level == "problem"
    assert ".recover" in found.remedy


def test_a_check_of_a_file_that_takes_too_long_says_how_to_run_it(
    url: str, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No alarm: a large file is not a sick one."""
    run(made, "create table notes (text)")
    run(
        made,
        """insert into notes with recursive n(i) as (select 1 union all select i + 1 from n where i < 20000)
            select i from n""",
    )
    monkeypatch.setattr(sqlite_examination, "LIMIT_S", 0.0)
    monkeypatch.setattr(sqlite_examination, "STEPS", 1)
    found = checks(url)
    assert found["integrity"].level == "ok"
    assert "quick_check" in found["integrity"].says
    assert found["queues"].level == "warning"
    assert "no answer within" in found["schema"].says


@pytest.mark.skipif(os.name != "posix", reason="modes of files are POSIX")
def test_a_file_that_every_user_may_read_is_a_warning(url: str, made: Path) -> None:
    made.chmod(0o644)
    found = checks(url)["files"]
    assert found.level == "warning"
    assert found.remedy == f"run `chmod o-rwx {made.resolve()}`"
    made.chmod(0o640)
    assert checks(url)["files"].level == "ok"


def test_a_diagnosis_leaves_the_files_as_they_were(url: str, made: Path) -> None:
    """Neither a log where there was none, nor a log that is brought into the file."""
    checks(url)
    assert sorted(one.name for one in made.parent.iterdir()) == [made.name]
    with closing(sqlite3.connect(made)) as writer:
        writer.execute("create table notes (text)")
        writer.commit()
        copied = made.with_name("crashed.db")
        copied.write_bytes(made.read_bytes())
        log = copied.with_name("crashed.db-wal")
        log.write_bytes(made.with_name(f"{made.name}-wal").read_bytes())
    before = copied.read_bytes(), log.read_bytes()
    assert checks(f"sqlite:///{copied}")["schema"].level == "ok"
    assert (copied.read_bytes(), log.read_bytes()) == before


def test_one_question_takes_two_seconds_at_most() -> None:
    assert examination.LIMIT_S == 2.0
