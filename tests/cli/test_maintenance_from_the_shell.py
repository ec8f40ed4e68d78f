"""`everpoll maintenance`: windows are planned, listed and removed from the shell, and mistakes are told in words."""

import re
from pathlib import Path

import pytest

from cli.health_answers import CONTROLS, ESCAPES
from cli.monitored import Monitored
from cli.shell import Ended, Shell
from everpoll.monitors.options import define

ABOUT_2H = r"(2h|1h ?5\dm)"
"""Of two hours some time has passed: how much is up to the machine."""


@pytest.fixture
def database(tmp_path: Path) -> Monitored:
    monitored = Monitored(f"sqlite:///{tmp_path}/tasks.db")
    monitored.publish(define("billing", "https://h/", {}))
    return monitored


def run(shell: Shell, database: Monitored, *arguments: str) -> Ended:
    return shell("maintenance", *arguments, "--url", database.url)


def test_a_window_lives_from_add_to_remove(shell: Shell, database: Monitored) -> None:
    added = run(shell, database, "add", "--for", "2h", "--service", "billing", "--reason", "new rack", "--id", "rack")
    assert (added.code, added.err) == (0, "")
    assert added.out.startswith("rack is planned: ")
    [one] = shell.json("maintenance", "list", "--url", database.url)
    assert (one["id"], one["open"], one["services"], one["reason"]) == ("rack", True, ["billing"], "new rack")
    assert one["ends_at"] - one["starts_at"] == 7200
    listed = run(shell, database, "list")
    assert "rack" in listed.out
    assert re.search(f"open, ends in {ABOUT_2H}", listed.words)
    assert run(shell, database, "remove", "rack").out == "rack is removed\n"
    assert run(shell, database, "list").out == "No maintenance is planned.\n"
    again = run(shell, database, "remove", "rack")
    assert again.code == 2
    assert "no maintenance window has the id 'rack'" in again.err


def test_why_names_the_window_that_was_added(shell: Shell, database: Monitored) -> None:
    run(shell, database, "add", "--for", "2h")
    printed = shell("why", "billing", "--url", database.url).words
    assert re.search(f"in maintenance for another {ABOUT_2H}", printed)


def test_a_weekly_window_and_one_at_another_time(shell: Shell, database: Monitored) -> None:
    weekly = ("add", "--weekly", "sat,sun", "--at", "02:00", "--for", "2h", "--zone", "Europe/Berlin", "--id", "a")
    assert "sat, sun at 02:00 Europe/Berlin for 2h, all services" in run(shell, database, *weekly).out
    once = ("add", "--from", "2090-01-05T20:00+00:00", "--until", "2090-01-05T22:00+00:00", "--id", "b")
    assert run(shell, database, *once).code == 0
    first, second = shell.json("maintenance", "list", "--url", database.url)
    assert (first["days"], first["minute"], first["lasts_s"], first["zone"]) == ([5, 6], 120, 7200.0, "Europe/Berlin")
    assert (second["open"], second["starts_at"]) == (False, 3787329600.0)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "write either --for 2h or --until"),
        (("--for", "2h", "--until", "2090-01-01T00:00"), "write either --for 2h or --until"),
        (("--for", "soon"), "--for"),
        (("--for", "999999999d"), "--for"),
        (("--until", "tomorrow"), "is not an instant"),
        (("--until", "2001-01-01T00:00"), "is over already"),
        (("--from", "2090-01-02", "--until", "2090-01-01"), "must be later than"),
        (("--weekly", "sunday", "--at", "02:00", "--for", "2h"), "write some of mon"),
        (("--weekly", "sun", "--for", "2h"), "--weekly needs --at 02:00"),
        (("--weekly", "sun", "--at", "25:00", "--for", "2h"), "must be from"),
        (("--weekly", "sun", "--at", "02:00", "--for", "2h", "--zone", "../x"), "not a known time zone"),
        (("--for", "2h", "--at", "02:00"), "belong to --weekly"),
        (("--for", "2h", "--id", ""), "must be 1 to 100 printable"),
    ],
)
def test_mistakes_are_told_in_words(shell: Shell, database: Monitored, arguments: tuple[str, ...], words: str) -> None:
    ended = run(shell, database, "add", *arguments)
    assert (ended.code, ended.out) == (2, "")
    assert words in ended.err
    assert "Traceback" not in ended.err
    assert shell.json("maintenance", "list", "--url", database.url) == []


def test_a_service_that_is_not_there_is_told(shell: Shell, database: Monitored) -> None:
    ended = run(shell, database, "add", "--for", "2h", "--service", "biling")
    assert ended.code == 0
    assert "No service is called biling" in ended.err


def test_what_others_wrote_is_shown_and_not_obeyed(shell: Shell, database: Monitored) -> None:
    run(shell, database, "add", "--for", "2h", "--reason", ESCAPES, "--service", ESCAPES)
    for more in ((), ("--json",)):
        assert not CONTROLS & set(run(shell, database, "list", *more).out)
