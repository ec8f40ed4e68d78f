"""`everpoll runs` and `everpoll why` print what remotes wrote as text, and what is stored without its secrets."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import warm_processes
from cli.test_runs_from_the_shell import Office
from everpoll.http.stored_secrets import without_secrets

ESCAPES = "\x1b]52;c;ZXZpbA==\x07\x1b[2J\x9b31m"
REMOTE = f"""
import asyncio

from everpoll import Backoff, Budget, Everpoll
from everpoll.watches import Fail, Wait

app = Everpoll("sqlite:///office.db")
ESCAPES = {ESCAPES!r}


@app.watch(every=Backoff("10ms"), budget=Budget("1d"))
async def report(op, w):
    w.count(ESCAPES)
    w.memory["token"] = "m3mory-s3cret"
    if w.looks == 1:
        return Wait(status=ESCAPES, note=ESCAPES)
    return Fail(ESCAPES, evidence={{"said": ESCAPES, "url": "https://h/op?sig=3vidence-s3cret"}}, status=ESCAPES)


async def main() -> None:
    handle = {{"home": "https://h/x", "url": "https://h/op?page=2&sig=h4ndle-s3cret", "token": "t0ken-s3cret"}}
    op = {{"url": "https://bob:passw-s3cret@h/x", "headers": {{"Authorization": "Bearer op-s3cret-1"}}, "year": 2026}}
    async with app:
        run = await report.begin(op, id="1", handle=handle)
        async for event in run.events():
            if event.phase == "ended":
                return


asyncio.run(main())
"""
COMMANDS = [["runs", "show", "report:1"], ["runs", "list"], ["runs", "events", "report:1"], ["why", "report:1"]]


@pytest.fixture
def office(tmp_path: Path) -> Office:
    office = Office(tmp_path)
    (tmp_path / "remote.py").write_text(REMOTE)
    warm_processes.run(["remote.py"], cwd=tmp_path, env=office.env, check=True)
    return office


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_nothing_that_a_remote_wrote_talks_to_the_terminal(office: Office, more: list[str]) -> None:
    for command in COMMANDS:
        printed = office.everpoll(*command, *more)
        assert not set(printed) & set("\x1b\x07\x9b"), command
    shown = "".join(office.everpoll("runs", "show", "report:1", *more).split())
    assert r"\x1b]52;c;ZXZpbA==\x07" in shown or r"\u001b]52;c;ZXZpbA==\u0007" in shown


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_secrets_in_what_is_stored_are_not_printed(office: Office, more: list[str]) -> None:
    for command in COMMANDS:
        assert "s3cret" not in "".join(office.everpoll(*command, *more).split()), command
    shown = "".join(office.everpoll("runs", "show", "report:1", *more).split())
    assert "https://h/op?page=2&sig=***" in shown, "what is none is there"
    assert "2026" in shown


def test_secrets_are_told_by_their_names() -> None:
    stored = {
        "headers": {"Authorization": "Bearer abc", "X-Api-Key": "abc", "Cookie": "a=b", "Accept": "text/csv"},
        "access_token": "abc",
        "password": "abc",
        "next_page_token": "2",
        "key": "run-42",
        "tokens": 7,
        "links": ["https://h/x?sig=abc&page=2", "https://user:pw@h/x", "sent Bearer abcdefgh.ijkl"],
    }
    assert without_secrets(stored) == {
        "headers": {"Authorization": "***", "X-Api-Key": "***", "Cookie": "***", "Accept": "text/csv"},
        "access_token": "***",
        "password": "***",
        "next_page_token": "2",
        "key": "run-42",
        "tokens": 7,
        "links": ["https://h/x?sig=***&page=2", "https://***@h/x", "sent Bearer ***"],
    }


def test_events_go_on_to_the_last_of_them(office: Office) -> None:
    """However many there are: a page of the store has 1,000."""
    with closing(sqlite3.connect(office.folder / "office.db")) as database, database:
        database.executemany(
            "insert into everpoll_events (task_id, seq, at, kind, name, key, body) "
            "select task_id, seq + ?, at, kind, name, key, body from everpoll_events where seq = 1",
            [(more,) for more in range(10, 1_510)],
        )
    lines = office.everpoll("runs", "events", "report:1", "--json").splitlines()
    numbers = [json.loads(line)["seq"] for line in lines]
    assert numbers[-1_500:] == list(range(11, 1_511))
    assert numbers == sorted(set(numbers))


@pytest.mark.parametrize("command", [["runs", "list"], ["runs", "events", "report:1"]])
@pytest.mark.parametrize("number", ["99999999999999999999", "-1"])
def test_a_number_that_there_cannot_be_is_one_line(office: Office, command: list[str], number: str) -> None:
    said = office.everpoll(*command, "--after", number, code=2)
    assert f"--after {number}: must be between 0 and 2^63-1" in said
    assert len(said.splitlines()) == 1
