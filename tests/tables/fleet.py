"""Worker processes on an adopted table, as a fleet starts them, and what may be done to them.

Promises: waits on what the workers say and do, never for a time; what does not come within GIVE_UP_S fails with the
logs of all workers. Nothing that was started outlives the block.
"""

import asyncio
import json
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from everpoll.tables import Table
from tables.crew import EFFECTS, MAPPING, SLOTS, TOKEN, URL
from tables.stages import GIVE_UP_S, LOOK_S, MAPPED, TableStage
from worker_processes import WorkerProcess, story_of


class TableFleet:
    """Workers of one table, and what their handlers did."""

    def __init__(self, stage: TableStage, folder: Path, *, slots: int = 4, grace: str = "0s", **options: Any) -> None:
        self.stage = stage
        self.workers: dict[str, WorkerProcess] = {}
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

    async def start(self, count: int = 1, **options: Any) -> list[WorkerProcess]:
        """Start some more, with other options if need be, and wait until they have signed on."""
        whole = {**self._options, **options}
        await self.stage.prepare(Table(**whole))
        env = self._env | {MAPPING: json.dumps(whole)}
        started = []
        for _ in range(count):
            worker = WorkerProcess(f"w{len(self.workers) + 1}", self._folder, env, "tables.crew:app", self._grace)
            self.workers[worker.label] = worker
            started.append(worker)
        await self.until(lambda: all(one.said("signed on as") for one in started), "all have signed on")
        return started

    async def freeze(self, worker: WorkerProcess) -> None:
        """Freeze it at a moment at which it holds no lock of a file, which every other worker would wait for."""
        async with asyncio.timeout(GIVE_UP_S):
            worker.freeze()
            while self._is_locked():
                worker.thaw()
                await asyncio.sleep(0.02)
                worker.freeze()

    def _is_locked(self) -> bool:
        if not self.stage.url.startswith("sqlite:///"):
            return False
        path = self.stage.url.removeprefix("sqlite:///").split("?", maxsplit=1)[0]
        with closing(sqlite3.connect(path, timeout=0.2, isolation_level=None)) as connection:
            try:
                connection.execute("begin immediate")
            except sqlite3.OperationalError:
                return True
            connection.execute("rollback")
        return False

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
            raise AssertionError(f"not within {GIVE_UP_S:g} s: {wanted}\n{story_of(self.workers.values())}") from None

    async def until_begun(self, count: int) -> None:
        """So many runs."""
        await self.until(lambda: len(self.effects("began")) >= count, f"{count} runs have begun")
