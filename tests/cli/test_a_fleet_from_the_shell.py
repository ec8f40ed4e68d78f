"""Workers and jobs from the shell: run, list, show, cancel, retry, workers, why, migrate, on a SQLite file."""

import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import warm_processes
from warm_processes import PIPE, WarmProcess

EVERPOLL = ["-m", "everpoll"]
SHOP = """
import asyncio
from everpoll import Backoff, Everpoll, Retry

app = Everpoll("sqlite:///shop.db")

@app.job()
async def add(a: int, b: int) -> int:
    return a + b

@app.job(retry=Retry(2, Backoff("10ms")))
async def broken(order: int) -> None:
    raise ValueError(f"order {order} is [red]broken[/red]")

@app.job(queue="slow")
async def forever() -> None:
    await asyncio.Event().wait()
"""
ENQUEUE = """
import asyncio, sys
from shop import add, app, broken, forever

async def main():
    for job, *args in eval(sys.argv[1]):
        task = await globals()[job].enqueue(*args, **({"delay": "1h"} if job == "add" and args == [0, 0] else {}))
        print(task.id)
    await app.close()

asyncio.run(main())
"""


class Shop:
    """A folder with an app in it, and the shell."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "shop.py").write_text(SHOP)
        (folder / "enqueue.py").write_text(ENQUEUE)
        self.env = {**os.environ, "EVERPOLL_URL": "sqlite:///shop.db", "COLUMNS": "160", "WORKER_ID": "till-1"}

    def everpoll(self, *arguments: str, code: int = 0) -> str:
        ended = warm_processes.run([*EVERPOLL, *arguments], cwd=self.folder, env=self.env)
        assert ended.returncode == code, ended.stdout + ended.stderr
        return ended.stdout if code == 0 else ended.stderr

    def json(self, *arguments: str) -> Any:
        return json.loads(self.everpoll(*arguments, "--json"))

    def enqueue(self, *calls: tuple[object, ...]) -> list[str]:
        command = ["enqueue.py", repr([list(call) for call in calls])]
        ended = warm_processes.run(command, cwd=self.folder, env=self.env, check=True)
        return ended.stdout.split()

    def start(self, app: str = "shop:app") -> WarmProcess:
        command = [*EVERPOLL, "run", app, "--grace", "0s"]
        return WarmProcess(command, cwd=self.folder, env={**self.env, "EVERPOLL_LOG": "json"}, stderr=PIPE)


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


@pytest.fixture
def worker(shop: Shop) -> Iterator[WarmProcess]:
    process = shop.start()
    yield process
    process.kill()
    process.communicate()


def log_until(process: WarmProcess, wanted: str) -> list[dict[str, Any]]:
    """Read the worker's log, one JSON object a line, until a message says what is waited for."""
    assert process.stderr is not None
    entries: list[dict[str, Any]] = []
    for line in process.stderr:
        entries.append(json.loads(line))
        if wanted in entries[-1]["message"]:
            return entries
    raise AssertionError(f"the worker ended without saying {wanted!r}: {entries}")


def state_once_ended(shop: Shop, task_id: str) -> str:
    command = (
        "import asyncio, shop, sys\n"
        "async def main():\n"
        "    try: await shop.app.task(int(sys.argv[1])).result(timeout=60)\n"
        "    except Exception: pass\n"
        "    print((await shop.app.task(int(sys.argv[1])).info()).state)\n"
        "    await shop.app.close()\n"
        "asyncio.run(main())"
    )
    ended = warm_processes.run(["-c", command, task_id], cwd=shop.folder, check=True)
    return ended.stdout.strip()


def test_a_worker_runs_what_was_enqueued_and_says_what_became_of_it(shop: Shop, worker: WarmProcess) -> None:
    good, bad = shop.enqueue(("add", 1, 2), ("broken", 7))
    assert (state_once_ended(shop, good), state_once_ended(shop, bad)) == ("done", "failed")
    shown = shop.json("jobs", "show", good)
    assert (shown["result"], shown["worker"], shown["attempt"]) == (3, "till-1", 1)
    errors = shop.json("jobs", "show", bad)["errors"]
    assert [(error["attempt"], error["type"]) for error in errors] == [(1, "ValueError"), (2, "ValueError")]
    assert all("Traceback" in error["traceback"] for error in errors)
    story = shop.everpoll("jobs", "show", bad)
    assert story.index("retry by till-1: attempt 1 of 2 failed") < story.index(
        "failed by till-1: attempt 2 of 2 failed"
    )
    assert story.count("Traceback") == 2
    # What a remote says is text, never markup.
    assert "order 7 is [red]broken[/red]" in shop.everpoll("jobs", "list", "--state", "failed")
    assert "failed after 2 attempts: ValueError: order 7" in shop.json("why", bad)["verdict"]
    assert "retry" in shop.everpoll("why", bad)
    workers = shop.json("workers")
    assert [(one["label"], one["is_alive"]) for one in workers] == [("till-1", True)]
    assert worker.poll() is None


def test_sigterm_hands_back_what_runs_at_no_attempts_cost(shop: Shop, worker: WarmProcess) -> None:
    (task,) = shop.enqueue(("forever",))
    log_until(worker, "leased 1 task:")
    assert shop.json("jobs", "show", task)["state"] == "running"
    assert "on worker till-1, last heard " in shop.json("why", task)["verdict"]
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(timeout=60) == 0
    shown = shop.json("jobs", "show", task)
    assert (shown["state"], shown["attempt"]) == ("queued", 0)
    assert shown["trail"][-1]["what"] == "hand-back"
    assert "hand-back by till-1: its worker shuts down" in shop.everpoll("jobs", "show", task)
    assert shop.json("why", task)["verdict"] == "No worker is alive."


def test_why_does_not_call_a_worker_alive_whose_process_is_gone_from_this_host(shop: Shop, worker: WarmProcess) -> None:
    (task,) = shop.enqueue(("forever",))
    log_until(worker, "leased 1 task:")
    worker.kill()
    worker.wait(timeout=60)
    verdict = shop.json("why", task)["verdict"]
    assert verdict.startswith("Its worker is gone: worker till-1, last heard ")
    assert f"this host has no process {worker.pid} any more" in verdict


def test_cancel_and_retry(shop: Shop, worker: WarmProcess) -> None:
    running, later = shop.enqueue(("forever",), ("add", 0, 0))
    log_until(worker, "leased 1 task:")
    assert "is canceled" in shop.everpoll("jobs", "cancel", later)
    assert "asked" in shop.everpoll("jobs", "cancel", running)
    assert state_once_ended(shop, running) == "canceled"
    assert "ended already" in shop.everpoll("jobs", "cancel", running, code=2)
    assert "queued again" in shop.everpoll("jobs", "retry", later)
    assert state_once_ended(shop, later) == "done"


def test_what_waits_is_run_now_and_what_has_ended_is_forgotten(shop: Shop, worker: WarmProcess) -> None:
    [later] = shop.enqueue(("add", 0, 0))
    assert "has not ended" in shop.everpoll("jobs", "delete", later, code=2)
    assert f"task {later} is due now" in shop.everpoll("jobs", "run-now", later)
    assert state_once_ended(shop, later) == "done"
    assert "it is done" in shop.everpoll("jobs", "run-now", later, code=2)
    [entry] = shop.json("jobs", "show", later)["trail"]
    assert entry["what"] == "run-now"
    assert re.fullmatch(r"\S+@\S+", entry["by"])
    assert "is deleted" in shop.everpoll("jobs", "delete", later)
    assert f"no task {later}" in shop.everpoll("jobs", "delete", later, code=2)


def test_a_queue_is_paused_listed_explained_and_resumed(shop: Shop, worker: WarmProcess) -> None:
    [first] = shop.enqueue(("add", 1, 1))
    assert state_once_ended(shop, first) == "done"
    assert "queue default is paused" in shop.everpoll("queues", "pause", "default", "--reason", "[red]stop[/red]")
    [task] = shop.enqueue(("add", 1, 2))
    [queue] = shop.json("queues", "list")
    assert (queue["queue"], queue["ready"], queue["paused"]["reason"]) == ("default", 1, "[red]stop[/red]")
    assert queue["oldest_due_at"] is not None
    shown = shop.everpoll("queues", "list")
    assert "blocked" not in shown, "no job waits for others: the names get the room of that column"
    assert "paused by" in shown
    assert "[red]stop[/red]" in shown, "text of others must not become markup"
    verdict = shop.json("why", task)["verdict"]
    assert verdict.startswith("Its queue 'default' is paused by ")
    assert verdict.endswith(": [red]stop[/red].")
    assert shop.json("queues", "pause", "other")["paused"]["reason"] == ""
    assert "queue other is open" in shop.everpoll("queues", "resume", "other")
    assert "it was not paused" in shop.everpoll("queues", "resume", "other")
    assert shop.json("queues", "resume", "default")["paused"] is None
    assert state_once_ended(shop, task) == "done"
    assert "No queue has tasks." in shop.everpoll("queues", "list")


def test_what_waits_is_explained_without_a_worker(shop: Shop) -> None:
    due, later = shop.enqueue(("add", 1, 1), ("add", 0, 0))
    assert shop.json("why", due)["verdict"] == "No worker is alive."
    assert shop.json("why", later)["verdict"].startswith("It is not due yet")
    page = shop.json("jobs", "list", "--limit", "1")
    assert [task["id"] for task in page] == [int(later)]
    rest = shop.json("jobs", "list", "--after", str(page[-1]["id"]))
    assert [task["id"] for task in rest] == [int(due)]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["run", "shop:nothing"], "apps in shop: app"),
        (["run", "nowhere:app"], "no module 'nowhere'"),
        (["run", "shop.py"], "'shop.py' is a file, not a module: write shop:app"),
        (["run", "./src/shop.py:till"], "write src.shop:till"),
        (["jobs", "show", "99"], "no task 99"),
        (["jobs", "list", "--after", "9" * 20], "must be between 0 and 2^63-1"),
        (["jobs", "list", "--url", "memory://"], "memory:// exists only in the process of its app"),
        (["jobs", "list", "--state", "lost"], "write one of queued, running"),
        (["migrate", "--url", "mysql://root:secret@localhost/x"], "is not the address of a store"),
    ],
)
def test_mistakes_are_explained_in_one_line(shop: Shop, arguments: list[str], complaint: str) -> None:
    shop.everpoll("migrate")
    said = shop.everpoll(*arguments, code=2)
    assert complaint in said
    assert "Traceback" not in said
    assert "secret" not in said


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("import requestz\n", "ModuleNotFoundError: No module named 'requestz'"),
        ("from everpoll import Everpoll\napp = Everpol()\n", "NameError: name 'Everpol' is not defined"),
        ("def f(:\n", "SyntaxError: "),
    ],
)
def test_a_module_that_fails_shows_its_own_lines_only(shop: Shop, code: str, error: str) -> None:
    """A mistake in the user's module is not hidden under thirty lines of the command line's own frames."""
    (shop.folder / "broken.py").write_text(code)
    said = shop.everpoll("run", "broken:app", code=2)
    assert f'File "{shop.folder}/broken.py", line ' in said
    assert error in said
    assert "'broken:app': broken cannot be imported" in said
    assert "importlib" not in said
    assert "typer" not in said


def test_a_place_without_tasks_is_named_before_anything_is_made_there(shop: Shop) -> None:
    """In the wrong folder `everpoll migrate` would make an empty file: the address is what to check first."""
    said = shop.everpoll("jobs", "list", code=2)
    assert f"no everpoll tables in {shop.folder}/shop.db, which does not exist" in said
    assert said.index("the folder that you are in") < said.index("EVERPOLL_URL") < said.index("everpoll migrate")
    (shop.folder / "shop.db").touch()
    assert f"no everpoll tables in {shop.folder}/shop.db. Check the file" in shop.everpoll("jobs", "list", code=2)


def test_looking_never_changes_a_database(shop: Shop) -> None:
    assert "everpoll migrate" in shop.everpoll("workers", code=2)
    assert "applied" in shop.everpoll("migrate")
    assert shop.everpoll("migrate") == "sqlite:///shop.db is up to date\n"
    assert "No workers" in shop.everpoll("workers")
    assert "No jobs" in shop.everpoll("jobs", "list")


def test_at_eighty_columns_errors_and_names_can_be_read(shop: Shop, worker: WarmProcess) -> None:
    (bad,) = shop.enqueue(("broken", 7))
    state_once_ended(shop, bad)
    shop.env |= {"COLUMNS": "80"}
    listed = shop.everpoll("jobs", "list")
    assert "ValueError: order 7 is" in listed
    assert "priority" not in listed  # none has one
    shown = shop.everpoll("jobs", "show", bad)
    assert "attempt 1 of 2 failed" in shown
    assert re.search(r"^args +7 *$", shown, re.MULTILINE)
    assert max(map(len, listed.splitlines())) <= 80
    assert worker.poll() is None


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("app = Everpoll('sqlite:///shop.db')", "nothing is registered on odd:app"),
        ("app = Everpoll('memory://')\n@app.job()\ndef f(): ...", "tasks in memory:// live in this process alone"),
    ],
)
def test_a_worker_that_can_have_nothing_to_do_says_so(shop: Shop, source: str, complaint: str) -> None:
    (shop.folder / "odd.py").write_text(f"from everpoll import Everpoll\n{source}\n")
    process = shop.start("odd:app")
    try:
        log_until(process, complaint)
    finally:
        process.kill()
        process.communicate()
