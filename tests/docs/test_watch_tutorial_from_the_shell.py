"""The tutorial of watches works as typed: a worker is killed midway, and nothing is lost."""

import json
import os
import re
import signal
from pathlib import Path

import pytest
from doc_pages import ROOT, blocks

import warm_processes
from servers.ports import reserved_port
from warm_processes import PIPE, WarmProcess

EVERPOLL = ("-m", "everpoll")


class Reader:
    """Saves the files and types the commands, with a port of its own.

    Its cloud is ready when a file says so: no clock decides here.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.url = f"http://127.0.0.1:{reserved_port()}"
        for block in blocks(ROOT / "docs/tutorial/first-watch.md"):
            if block.file is not None:
                code = block.code.replace("8765", self.url.rpartition(":")[2])
                if block.file == "cloud.py":
                    assert "age_s < TAKES_S" in code
                    code = code.replace("age_s < TAKES_S", '__import__("os").path.exists("slow")')
                (folder / block.file).write_text(code, encoding="utf-8")
        kept = {name: value for name, value in os.environ.items() if name not in {"EVERPOLL_URL", "WORKER_ID"}}
        self._environment = {**kept, "COLUMNS": "100", "PYTHONUNBUFFERED": "1"}
        self._running: list[WarmProcess] = []

    def types(self, *command: str) -> str:
        done = warm_processes.run(command, cwd=self._folder, env=self._environment)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def runs(self, *command: str) -> WarmProcess:
        process = WarmProcess(command, cwd=self._folder, env=self._environment, stderr=PIPE, stdout=PIPE)
        self._running.append(process)
        return process

    def makes_the_cloud(self, what: str) -> None:
        slow = self._folder / "slow"
        slow.touch() if what == "slow" else slow.unlink()

    def waits_for_a_look(self) -> None:
        looks = 0
        while looks == 0:
            looks = json.loads(self.types(*EVERPOLL, "runs", "show", "report:2026", "--json"))["looks"]

    def leaves(self) -> None:
        for process in self._running:
            process.kill()
            process.communicate()


@pytest.fixture
def reader(tmp_path: Path) -> "Reader":  # type: ignore[misc]  # a generator, as pytest wants it
    reader = Reader(tmp_path)
    yield reader
    reader.leaves()


def test_a_reader_gets_what_the_tutorial_shows(reader: Reader) -> None:
    cloud = reader.runs("cloud.py", "20")
    answer = reader.types(*EVERPOLL, "until", f"{reader.url}/reports", "--method", "POST", "--every", "500ms")
    assert re.search(r"ready after \d+ looks? in", answer)
    reader.makes_the_cloud("slow")
    assert reader.types("begin.py", "2026") == "report:2026 is begun\n"
    assert reader.types("begin.py", "2026") == "report:2026 is there already\n"
    assert re.match(
        r"No worker is alive.\n  it has been due for .*\n  phase intent, 0 looks, 0 failed calls\n",
        reader.types(*EVERPOLL, "why", "report:2026"),
    )
    worker = reader.runs(*EVERPOLL, "run", "reports:app")
    reader.waits_for_a_look()
    worker.send_signal(signal.SIGKILL)
    worker.wait(timeout=600)
    assert re.search(r"report:2026 +looking +running", reader.types(*EVERPOLL, "runs", "list"))
    reader.runs(*EVERPOLL, "run", "reports:app")
    reader.makes_the_cloud("quick")
    followed = reader.types(*EVERPOLL, "runs", "events", "report:2026", "--follow")
    assert "ended      ready" in followed.splitlines()[-1]
    shown = reader.types(*EVERPOLL, "runs", "show", "report:2026")
    assert re.search(r"started: the first look in 1s +1s", shown)
    assert '{"pages":3}' in shown
    cloud.send_signal(signal.SIGTERM)
    _, log = cloud.communicate(timeout=600)
    # Once by `until`, once by the worker that was killed.
    assert log.count('"POST /reports') == 2


def test_the_tutorials_own_test_passes(reader: Reader) -> None:
    done = reader.types("-m", "pytest", "-q", "-p", "no:cacheprovider", "test_reports.py")
    assert "1 passed" in done
