"""The tutorial of services works as typed: a service goes down, alerts once, and recovers."""

import json
import os
import re
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from doc_pages import ROOT, blocks

import warm_processes
from servers.ports import reserved_port
from warm_processes import PIPE, WarmProcess

EVERPOLL = ("-m", "everpoll")


class Reader:
    """Saves the files and types the commands, with a port of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = reserved_port()
        for block in blocks(ROOT / "docs/tutorial/first-service.md"):
            if block.file is not None:
                (folder / block.file).write_text(block.code.replace("8766", str(self.port)), encoding="utf-8")
        kept = {name: value for name, value in os.environ.items() if name not in {"EVERPOLL_URL", "WORKER_ID"}}
        self._environment = {**kept, "COLUMNS": "120", "PYTHONUNBUFFERED": "1"}
        self._running: list[WarmProcess] = []

    def types(self, *command: str, code: int = 0) -> str:
        done = warm_processes.run(command, cwd=self.folder, env=self._environment)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    def runs(self, *command: str) -> WarmProcess:
        process = WarmProcess(command, cwd=self.folder, env=self._environment, stdout=PIPE)
        self._running.append(process)
        return process

    def waits_until_billing_is(self, status: str) -> None:
        while self._billing() != status:
            pass

    def _billing(self) -> str | None:
        command = [*EVERPOLL, "services", "list", "--json"]
        done = warm_processes.run(command, cwd=self.folder, env=self._environment)
        services: list[dict[str, Any]] = json.loads(done.stdout) if done.returncode == 0 else []
        return next((one["status"] for one in services if one["name"] == "billing"), None)

    def leaves(self) -> None:
        for process in self._running:
            process.kill()
            process.communicate()


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    reader = Reader(tmp_path)
    yield reader
    reader.leaves()


def listening(port: int) -> None:
    """Waits until the reader's server accepts connections."""
    while True:
        with socket.socket() as trying:
            if trying.connect_ex(("127.0.0.1", port)) == 0:
                return


def test_a_reader_gets_what_the_tutorial_shows(reader: Reader) -> None:
    reader.runs("billing.py")
    listening(reader.port)
    looked = reader.types(*EVERPOLL, "check", f"http://127.0.0.1:{reader.port}/health")
    assert looked.startswith("● up  http://127.0.0.1:")
    assert re.search(r"HTTP 200 · .* · 127.0.0.1 · spring\n", looked)
    assert re.search(r"^db +up", looked, re.MULTILINE)

    worker = reader.runs(*EVERPOLL, "run", "monitor:app")
    assert worker.stdout is not None
    reader.waits_until_billing_is("up")
    (reader.folder / "broken").touch()
    # Each line is read as soon as it is printed; nothing else is printed before.
    assert worker.stdout.readline() == "db of billing is down\n"
    assert re.fullmatch(
        r"  db of billing has been down for .*: too many connections; affects billing\n", worker.stdout.readline()
    )
    answer = reader.types(*EVERPOLL, "why", "billing")
    assert re.match(r"billing has been down for .*: HTTP 503, db: too many connections\.\n", answer)
    assert "held back, because db below it is down" in answer
    assert "failed below it: db" in answer
    assert "down db of billing: too many connections" in reader.types(*EVERPOLL, "services", "incidents")
    reader.types(*EVERPOLL, "check", f"http://127.0.0.1:{reader.port}/health", code=1)

    (reader.folder / "broken").unlink()
    assert worker.stdout.readline() == "db of billing recovered\n"
    reader.waits_until_billing_is("up")
    assert reader.types(*EVERPOLL, "services", "check", "billing").startswith("● up")
    assert "over db of billing" in reader.types(*EVERPOLL, "services", "show", "billing")
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(timeout=600) == 0
