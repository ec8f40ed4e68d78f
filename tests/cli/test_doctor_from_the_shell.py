"""`everpoll doctor`: a table for people, JSON for scripts, an exit code for both."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from cli.shell import Shell, shell_fixture

__all__ = ["shell_fixture"]

APP = """
from everpoll import Everpoll

app = Everpoll("sqlite:///shop.db")

@app.job()
async def add(a: int, b: int) -> int:
    return a + b
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EVERPOLL_URL", "sqlite:///shop.db")
    (tmp_path / "doctor_shop.py").write_text(APP)
    return tmp_path


def test_all_is_well_ends_with_0(folder: Path, shell: Shell) -> None:
    """The URL of the environment, or the app's own, after a migration."""
    assert shell("migrate", "--url", "sqlite:///shop.db").code == 0
    for which in (["--url", "sqlite:///shop.db"], ["doctor_shop:app"]):
        ended = shell("doctor", *which)
        assert ended.code == 0, ended.out + ended.err
        assert "✓ schema" in ended.words
        assert "All is well" in ended.words
        found = shell.json("doctor", *which)
        assert found["ok"] is True
        assert {"schema", "indexes", "clock", "leases", "transactions"} <= {one["name"] for one in found["checks"]}


def test_a_warning_ends_with_1_and_its_remedy_is_shown(folder: Path, shell: Shell) -> None:
    shell("migrate", "--url", "sqlite:///shop.db")
    (folder / "shop.db").chmod(0o644)
    ended = shell("doctor", "--url", "sqlite:///shop.db")
    assert ended.code == 1
    assert "! files" in ended.words
    assert "→ run `chmod o-rwx" in ended.words
    assert "1 warning" in ended.words


def test_a_problem_ends_with_2(folder: Path, shell: Shell) -> None:
    """Without a file, and with a part of the schema missing; what could not be seen is one line."""
    ended = shell("doctor", "--url", "sqlite:///shop.db")
    assert ended.code == 2
    assert "does not exist" in ended.words
    assert ended.words.count("not looked at") == 1
    shell("migrate", "--url", "sqlite:///shop.db")
    with closing(sqlite3.connect(folder / "shop.db")) as connection, connection:
        connection.execute("drop index everpoll_tasks_key")
    found = shell.json("doctor", "--url", "sqlite:///shop.db", code=2)
    assert found["ok"] is False
    [indexes] = [one for one in found["checks"] if one["name"] == "indexes"]
    assert indexes["level"] == "problem"
    assert indexes["remedy"].startswith("run: create unique index everpoll_tasks_key")


def test_what_cannot_be_asked_is_refused(folder: Path, shell: Shell) -> None:
    assert "exists only in the process of its app" in shell("doctor", "--url", "memory://").err
    assert "--transaction-age" in shell("doctor", "--transaction-age", "soon").err
    assert "address of its own" in shell("doctor", "doctor_shop:app", "--url", "sqlite:///x.db").err
