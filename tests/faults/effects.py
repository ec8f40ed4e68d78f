"""What the handlers did, in a file that every worker process appends to: it is there whatever happens to the database.

One line, one write, with O_APPEND: lines of several processes never mix, and one that was written survives kill -9.
"""

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from everpoll import Task

EFFECTS = "FAULTS_EFFECTS"


@contextmanager
def recorded(task: Task) -> Iterator[None]:
    """Inside a handler: that it began, and how it was over."""
    descriptor = os.open(os.environ[EFFECTS], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    over = "stopped"
    try:
        _write(descriptor, task, "began")
        yield
        over = "ended"
    finally:
        _write(descriptor, task, over)
        os.close(descriptor)


def _write(descriptor: int, task: Task, what: str) -> None:
    run = task._run
    assert run is not None, "it runs"
    entry = {
        "what": what,
        "task": task.id,
        "attempt": task.attempt,
        "incarnation": run.incarnation,
        "sequence": run.lease.sequence,
        "fence": task.fence,
        "worker": os.environ["WORKER_ID"],
        "at": time.monotonic(),  # one clock for all processes of a machine
    }
    os.write(descriptor, json.dumps(entry).encode() + b"\n")


@dataclass(frozen=True, slots=True)
class Effect:
    """One run of a handler."""

    task: int
    attempt: int
    incarnation: int
    sequence: int
    fence: str
    worker: str
    began_at: float
    over_at: float | None = None
    has_ended: bool = False
    """By itself: not stopped, and not cut off with its process."""

    @property
    def is_running(self) -> bool:
        """As far as it has told us: its process may be dead."""
        return self.over_at is None


class EffectsFile:
    """The file, read as it grows."""

    def __init__(self, path: Path) -> None:
        path.touch()
        self.path = path
        self._read = 0
        self._runs: dict[tuple[int, str], Effect] = {}

    def runs(self) -> list[Effect]:
        """All so far, in the order in which they began."""
        with self.path.open("rb") as file:
            file.seek(self._read)
            *lines, unfinished = file.read().split(b"\n")
            self._read = file.tell() - len(unfinished)
        for line in lines:
            self._note(json.loads(line))
        return list(self._runs.values())

    def _note(self, entry: dict[str, Any]) -> None:
        what, at, key = entry.pop("what"), entry.pop("at"), (entry["task"], entry["fence"])
        if what == "began":
            assert key not in self._runs, f"one lease was run twice: {entry}"
            self._runs[key] = Effect(**entry, began_at=at)
        else:
            self._runs[key] = replace(self._runs[key], over_at=at, has_ended=what == "ended")
