"""Worker processes on an adopted table, as a fleet starts them, and what may be done to them.

Promises: waits on what the workers say and do, never for a time; what does not come within GIVE_UP_S fails with the
logs of all workers. Nothing that was started outlives the block.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from everpoll.tables import Table
from tables.crew import EFFECTS, MAPPING, SLOTS, TOKEN, URL
from tables.stages import GIVE_UP_S, LOOK_S, MAPPED, TableStage

TESTS = Path(__file__).parents[1]
LOG_SHOWN = 25


class TableWorker:
    """`everpoll run`, in a process of its own, its log in a file."""

    def __init__(self, label: str, folder: Path, env: dict[str, str], grace: str) -> None:
        self.label = label
        self._log = folder / f"{label}.log"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "everpoll", "run", "tables.crew:app", "--grace", grace],
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
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED)

    def thaw(self) -> None:
        """SIGCONT."""
        self.process.send_signal(signal.SIGCONT)

    def end(self) -> None:
        """SIGTERM."""
        self.process.send_signal(signal.SIGTERM)


class TableFleet:
    """Workers of one table, and what their handlers did."""

    def __init__(self, stage: TableStage, folder: Path, *, slots: int = 4, grace: str = "0s", **options: Any) -> None:
        self.stage = stage
        self.workers: dict[str, TableWorker] = {}
        self._folder = folder
        self._grace = grace
        self._effects = folder / "effects"
        self._effects.touch()
        self._options = {"name": "jobs", **MAPPED, **options}
        self._env = {name: value for name, value in os.environ.items() if name != "WORKER_ID"}
        self._env |= {URL: stage.url, TOKEN: stage.token or "", SLOTS: str(slots)}
        self._env[EFFECTS] = str(self._effects)

    def share_name(self, worker_id: str) -> None:
        """Workers that start from now on all have the same, as a careless deployment has it."""
        self._env["WORKER_ID"] = worker_id

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for worker in self.workers.values():
            if worker.is_running:
                worker.kill()

    async def start(self, count: int = 1, **options: Any) -> list[TableWorker]:
        """Start some more, with other options if need be, and wait until they have signed on."""
        whole = {**self._options, **options}
        await self.stage.prepare(Table(**whole))
        env = self._env | {MAPPING: json.dumps(whole)}
        started = []
        for _ in range(count):
            worker = TableWorker(f"w{len(self.workers) + 1}", self._folder, env, self._grace)
            self.workers[worker.label] = worker
            started.append(worker)
        await self.until(lambda: all(one.said("signed on as") for one in started), "all have signed on")
        return started

    def effects(self, what: str) -> list[dict[str, Any]]:
        """The runs that began, ended or were stopped, in order."""
        lines = self._effects.read_text().split("\n")[:-1]
        return [entry for entry in map(json.loads, lines) if entry["what"] == what]

    async def until(self, condition: Callable[[], bool], wanted: str) -> None:
        """Wait for it."""
        try:
            async with asyncio.timeout(GIVE_UP_S):
                while not condition():  # noqa: ASYNC110 - other processes make it true
                    await asyncio.sleep(LOOK_S)
        except TimeoutError:
            raise AssertionError(f"not within {GIVE_UP_S:g} s: {wanted}\n{self.told()}") from None

    async def until_begun(self, count: int) -> None:
        """So many runs."""
        await self.until(lambda: len(self.effects("began")) >= count, f"{count} runs have begun")

    def told(self) -> str:
        """The last that each worker said, for a test that fails."""
        parts = []
        for worker in self.workers.values():
            lines = [f"{entry.get('at', 0):.3f} {entry['level']} {entry['message']}" for entry in worker.log()]
            parts.append("\n".join([f"--- {worker.label} ({worker.process.poll()})", *lines[-LOG_SHOWN:]]))
        return "\n".join(parts)
