"""`everpoll runs` and `everpoll why WATCH:RUN`: what was recorded about runs of watches, readable at 80 columns."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

import warm_processes
from warm_processes import PIPE, WarmProcess

EVERPOLL = ("-m", "everpoll")
OFFICE = """
import asyncio
import sys

from everpoll import Backoff, Budget, Everpoll
from everpoll.watches import Done, Fail, Wait

app = Everpoll("sqlite:///office.db")


@app.job()
async def note() -> None: ...


@app.watch(every=Backoff("1h", factor=1, jitter=0), budget=Budget("1d"), cancel_budget="2h")
async def report(op: dict, w):
    w.count("pages read")
    match op["end"]:
        case "ready":
            return Done({"rows": 3})
        case "failed":
            return Fail("the disk is [red]full[/red]", evidence={"free": 0})
    w.confirm("gone", True, times=2, gap="3h")
    return Wait(status="in progress", note="3 of 7 pages")


async def settled(run, wanted) -> None:
    async with asyncio.timeout(60):
        async for event in run.events():
            if event.phase == wanted or (event.status == wanted and event.looks == 1):
                return


async def look_again() -> None:
    run = await report.begin({"end": "pending"}, id="pending-0")
    async with asyncio.timeout(60):
        while (await run.info()).looks < 2:
            await asyncio.sleep(0.01)


async def main() -> None:
    await note.enqueue(delay="1h")
    async with app:
        if sys.argv[1:] == ["again"]:
            return await look_again()
        if sys.argv[1:] == ["other work"]:
            return await (await note.enqueue()).result(timeout="60s")
        for number, end in enumerate(sys.argv[1:]):
            run = await report.begin({"end": end}, id=f"{end}-{number}")
            await settled(run, "in progress" if end == "pending" else "ended")


if __name__ == "__main__":
    asyncio.run(main())
"""


class Office:
    """A folder with an app of one watch, and the shell."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "office.py").write_text(OFFICE)
        self.env = {**os.environ, "EVERPOLL_URL": "sqlite:///office.db", "COLUMNS": "80", "WORKER_ID": "desk-1"}

    def has(self, *ends: str) -> None:
        warm_processes.run(["office.py", *ends], cwd=self.folder, env=self.env, check=True)

    def everpoll(self, *arguments: str, code: int = 0) -> str:
        ended = warm_processes.run([*EVERPOLL, *arguments], cwd=self.folder, env=self.env)
        assert ended.returncode == code, ended.stdout + ended.stderr
        return ended.stdout if code == 0 else ended.stderr

    def json(self, *arguments: str) -> Any:
        return json.loads(self.everpoll(*arguments, "--json"))


@pytest.fixture
def office(tmp_path: Path) -> Office:
    return Office(tmp_path)


def test_runs_are_listed_apart_from_jobs_and_page_by_page(office: Office) -> None:
    office.has("ready", "failed", "pending")
    page = office.json("runs", "list", "--limit", "2")
    assert [(one["id"], one["phase"], one["outcome"]) for one in page] == [
        ("pending-2", "looking", None),
        ("failed-1", "ended", "failed"),
    ]
    rest = office.json("runs", "list", "--after", str(page[-1]["task_id"]))
    assert [(one["id"], one["outcome"]) for one in rest] == [("ready-0", "ready")]
    assert [one["name"] for one in office.json("jobs", "list")] == ["note"]
    assert [one["id"] for one in office.json("runs", "list", "--state", "failed")] == ["failed-1"]
    assert office.json("runs", "list", "--watch", "other") == []


def test_a_list_is_readable_at_eighty_columns(office: Office) -> None:
    office.has("ready", "pending")
    listed = office.everpoll("runs", "list")
    [pending, ready] = [line.split() for line in listed.splitlines() if "report:" in line]
    assert pending[1:6] == ["report:pending-1", "looking", "in", "progress", "1"]
    assert pending[6:8] == ["in", "3h"] or pending[7].startswith("2h59m")
    assert (ready[1], ready[2], ready[-1]) == ("report:ready-0", "ended", "ready")
    assert max(map(len, listed.splitlines())) <= 80
    assert "More: --after" in office.everpoll("runs", "list", "--limit", "1")


def test_a_run_is_shown_with_facts_counters_and_timeline(office: Office) -> None:
    office.has("pending")
    shown = office.everpoll("runs", "show", "report:pending-0")
    for words in ("in progress", "3 of 7 pages", "confirm:gone", "count 1, last", "pages read", "timeline", "hint"):
        assert words in shown
    assert max(map(len, shown.splitlines())) <= 80
    printed = office.json("runs", "show", "report:pending-0")
    [decision] = printed["log"]
    assert (decision["rule"], round(decision["next_s"])) == ("hint", 3 * 3600)
    assert decision["facts"] == {"confirm:gone": "1 of 2"}
    assert printed["counters"] == {"looks": 1, "pages read": 1, "confirm:gone": 1}
    assert printed["facts"]["confirm:gone"]["count"] == 1
    assert office.json("runs", "show", str(printed["task_id"]))["id"] == "pending-0"


def test_what_a_remote_says_is_text_never_markup(office: Office) -> None:
    office.has("failed")
    assert "the disk is [red]full[/red]" in office.everpoll("runs", "show", "report:failed-0")
    assert "the disk is [red]full[/red]" in office.everpoll("why", "report:failed-0")
    assert "the disk is [red]full[/red]" in office.everpoll("runs", "events", "report:failed-0")


def test_why_tells_the_rule_the_facts_and_the_next_time(office: Office) -> None:
    office.has("pending")
    printed = office.everpoll("why", "report:pending-0")
    assert printed.startswith("It has not ended, and is looked at again in ")
    assert "gone: sighting 2 of 2 counts 3h after the last" in " ".join(printed.split())
    assert "fact confirm:gone: count 1" in printed
    by_key, by_id = office.json("why", "report:pending-0"), office.json("why", "2")
    assert by_key["verdict"].partition(" in ")[0] == by_id["verdict"].partition(" in ")[0]


def test_cancel_asks_and_a_worker_ends_it(office: Office) -> None:
    office.has("pending")
    assert "is being canceled: a worker asks the remote" in office.everpoll("runs", "cancel", "report:pending-0")
    assert "a caller asked to cancel it: on the command line" in office.everpoll("why", "report:pending-0")
    office.has("ready")
    followed = office.everpoll("runs", "events", "report:pending-0", "--follow")
    assert "canceled" in followed.splitlines()[-1]
    assert "has its outcome already: it is canceled" in office.everpoll("runs", "cancel", "report:pending-0", code=2)


def test_a_run_is_looked_at_now_and_extended(office: Office) -> None:
    office.has("pending")
    assert "report:pending-0 is looked at as soon as" in office.everpoll("runs", "look-now", "report:pending-0")
    office.has("again")  # a worker comes by: one look more
    shown = office.json("runs", "show", "report:pending-0")
    assert shown["looks"] == 2
    assert (shown["budget_s"], shown["budget_looks"]) == (86_400.0, None)
    assert "may take 1d1h in all" in office.everpoll("runs", "extend", "report:pending-0", "--time", "1h")
    printed = office.json("runs", "extend", "report:pending-0", "--looks", "5")
    assert (printed["budget_s"], printed["budget_looks"]) == (90_000.0, None)
    assert [entry["what"] for entry in office.json("runs", "show", "report:pending-0")["trail"]] == [
        "look-now",
        "extend",
        "extend",
    ]
    assert " of 1d1h" in office.everpoll("runs", "show", "report:pending-0")
    assert "nothing to add" in office.everpoll("runs", "extend", "report:pending-0", code=2)
    office.has("ready")
    assert "it has its outcome, ready" in office.everpoll("runs", "look-now", "report:ready-0", code=2)


def test_a_run_is_paused_and_resumed(office: Office) -> None:
    office.has("pending")
    said = office.everpoll("runs", "pause", "report:pending-0", "--reason", "the remote is moved")
    assert "report:pending-0 is paused: its budget stands still" in said
    office.has("other work")  # a worker comes by, and does not look
    shown = office.json("runs", "show", "report:pending-0")
    assert (shown["phase"], shown["looks"], shown["paused"]["reason"]) == ("paused", 1, "the remote is moved")
    assert "paused" in office.everpoll("runs", "list")
    assert "is paused: resume it first" in office.everpoll("runs", "look-now", "report:pending-0", code=2)
    assert "report:pending-0 is looked at again" in office.everpoll("runs", "resume", "report:pending-0")
    office.has("again")
    assert office.json("runs", "show", "report:pending-0")["looks"] == 2
    assert "report:pending-0 was not paused" in office.everpoll("runs", "resume", "report:pending-0")


def test_events_are_printed_and_followed_to_the_end(office: Office) -> None:
    office.has("ready")
    lines = [json.loads(line) for line in office.everpoll("runs", "events", "report:ready-0", "--json").splitlines()]
    assert [(one["seq"], one["phase"]) for one in lines] == [(1, "looking"), (2, "ended")]
    assert lines[-1]["outcome"] == "ready"
    followed = office.everpoll("runs", "events", "report:ready-0", "--follow", "--json").splitlines()
    assert [json.loads(line)["kind"] for line in followed] == ["snapshot", "change", "change"]
    behind = office.everpoll("runs", "events", "report:ready-0", "--after", "1").splitlines()
    assert [line.split()[0] for line in behind] == ["2"]


def test_following_sees_what_another_process_does(office: Office) -> None:
    office.has("pending")
    command = [*EVERPOLL, "runs", "events", "report:pending-0", "--follow", "--json"]
    process = WarmProcess(command, cwd=office.folder, env=office.env, stdout=PIPE)
    try:
        assert process.stdout is not None
        first = json.loads(process.stdout.readline())
        assert (first["kind"], first["phase"], first["status"]) == ("snapshot", "looking", "in progress")
        office.everpoll("runs", "cancel", "report:pending-0")
        office.has("ready")
        last = json.loads(process.stdout.read().splitlines()[-1])
        assert (last["phase"], last["outcome"]) == ("ended", "canceled")
        assert process.wait(timeout=60) == 0
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["runs", "show", "report:nothing"], "no run report:nothing here"),
        (["runs", "show", "nothing"], "For a task write its number"),
        (["runs", "show", "1"], "task 1 is a job, not a run of a watch: everpoll jobs show 1"),
        (["runs", "cancel", "99"], "no task 99 here"),
        (["runs", "list", "--state", "lost"], "write one of queued, running"),
        (["why", "1" * 30], "no service is called"),
    ],
)
def test_mistakes_are_explained_in_one_line(office: Office, arguments: list[str], complaint: str) -> None:
    office.has()
    said = office.everpoll(*arguments, code=2)
    assert complaint in said
    assert len(said.splitlines()) == 1
