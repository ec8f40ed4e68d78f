"""`everpoll run` in a process of its own, as a fleet starts it, and what may be done to it."""

import json
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from servers.postgres import wait_until_stopped
from warm_processes import WarmProcess

TESTS = Path(__file__).parent
LOG_SHOWN = 30


class WorkerProcess:
    """`everpoll run`, in a process of its own, its log in a file."""

    def __init__(self, label: str, folder: Path, env: dict[str, str], app: str, grace: str) -> None:
        self.label = label
        self._log = folder / f"{label}.log"
        with self._log.open("wb") as log:
            self.process = WarmProcess(
                ["-m", "everpoll", "run", app, "--grace", grace],
                cwd=TESTS,
                env={"WORKER_ID": label} | env | {"EVERPOLL_LOG": "json"},
                stdout=log,
                stderr=log,
            )

    def log(self) -> list[dict[str, Any]]:
        """What it said so far, one object a line; the last line may still be under way."""
        lines = self._log.read_text().split("\n")[:-1]
        return [json.loads(line) if line.startswith("{") else {"level": "raw", "message": line} for line in lines]

    def said(self, words: str) -> int:
        """How often."""
        return sum(words in entry["message"] for entry in self.log())

    def incarnations(self) -> list[str]:
        """Under which it has signed on, one after another."""
        return [entry["message"].split()[-1] for entry in self.log() if "signed on as" in entry["message"]]

    @property
    def is_running(self) -> bool:
        """The process; frozen or not."""
        return self.process.poll() is None

    def kill(self) -> None:
        """`kill -9`."""
        self.process.kill()
        self.process.wait()

    def freeze(self) -> None:
        """SIGSTOP; returns when it has stopped."""
        self.process.send_signal(signal.SIGSTOP)
        wait_until_stopped(self.process.pid)

    def thaw(self) -> None:
        """SIGCONT."""
        self.process.send_signal(signal.SIGCONT)

    def end(self) -> None:
        """SIGTERM."""
        self.process.send_signal(signal.SIGTERM)


def story_of(workers: Iterable[WorkerProcess]) -> str:
    """The last that each of them said, for a test that fails."""
    parts = []
    for worker in workers:
        lines = [f"{entry.get('time', '')} {entry['level']} {entry['message']}" for entry in worker.log()]
        parts.append("\n".join([f"--- {worker.label} ({worker.process.poll()})", *lines[-LOG_SHOWN:]]))
    return "\n".join(parts)
