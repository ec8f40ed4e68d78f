"""Worker processes as a fleet starts them, and what may be done to them.

Promises: waits on what the workers say and do, never for a time; whatever does not come within its patience fails with
the logs of all workers. Nothing that was started outlives the block.
"""

import asyncio
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

from faults.crew import EFFECTS, LEASE, SLOTS, crew
from faults.effects import Effect, EffectsFile
from faults.ledger import Ledger
from worker_processes import WorkerProcess, story_of

GIVE_UP_S = 25.0
"""Shorter than the rest of an idle poller that trusts its push, 27 s: who should be told and is not comes too late."""
LOOK_S = 0.02
LOOKS_REST = 4.0
"""So many times as long as a look takes, no other is made."""


class Fleet:
    """Workers of one database, and what their handlers did."""

    def __init__(
        self,
        ledger: Ledger,
        folder: Path,
        *,
        lease: str,
        slots: int = 4,
        grace: str = "10s",
        url: str | None = None,
        patience_s: float = GIVE_UP_S,
    ) -> None:
        """`url` is the workers' own way to the database, if that is not the ledger's."""
        self.ledger = ledger
        self.slots = slots
        self.workers: dict[str, WorkerProcess] = {}
        self.ids: list[int] = []
        self._patience_s = patience_s
        self._folder = folder
        self._grace = grace
        self._effects = EffectsFile(folder / "effects")
        self._env = {
            **{name: value for name, value in os.environ.items() if name != "WORKER_ID"},
            "EVERPOLL_URL": url or ledger.url,
            EFFECTS: str(self._effects.path),
            LEASE: lease,
            SLOTS: str(slots),
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for worker in self.workers.values():
            if worker.is_running:
                worker.kill()

    def start(self, count: int = 1) -> list[WorkerProcess]:
        """Start some more, and wait until they have signed on."""
        started = [self._started() for _ in range(count)]
        self.until(lambda: all(one.said("signed on as") for one in started), "all have signed on")
        return started

    def start_one_soon(self) -> WorkerProcess:
        """Start one more without waiting for it."""
        return self._started()

    def _started(self) -> WorkerProcess:
        worker = WorkerProcess(f"w{len(self.workers) + 1}", self._folder, self._env, "faults.crew:app", self._grace)
        self.workers[worker.label] = worker
        return worker

    def enqueue(self, job: str, calls: Iterable[tuple[object, ...]]) -> list[int]:
        """The ids, which the proof will ask for."""

        async def enqueued() -> list[int]:
            app = crew(self.ledger.url)
            try:
                return [task.id for task in await app.jobs[job].enqueue_many(calls)]
            finally:
                await app.close()

        ids = asyncio.run(enqueued())
        self.ids += ids
        return ids

    def enqueue_holds_for_all(self, gate: Path, workers: int) -> list[int]:
        """As few as make every one of so many workers hold at least one, however they share: wait until they run."""
        holds = self.enqueue("hold", [(str(gate),)] * ((workers - 1) * self.slots + 1))
        self.until(lambda: self.running(holds).keys() == set(holds), "all holds run")
        return holds

    def effects(self) -> list[Effect]:
        """All runs so far."""
        return self._effects.runs()

    def running(self, ids: Iterable[int]) -> dict[int, Effect]:
        """Of these tasks the runs under way in processes that live."""
        wanted = set(ids)
        return {
            run.task: run
            for run in self.effects()
            if run.task in wanted and run.is_running and self.workers[run.worker].is_running
        }

    def busiest(self, ids: Iterable[int]) -> WorkerProcess:
        """The worker that runs most of these."""
        labels = [run.worker for run in self.running(ids).values()]
        return self.workers[max(labels, key=labels.count)]

    def until(self, condition: Callable[[], bool], wanted: str) -> float:
        """Wait for it; how long that took."""
        began = looked_at = time.monotonic()
        while not condition():
            now = time.monotonic()
            if now > began + self._patience_s:
                raise AssertionError(f"not within {self._patience_s:g} s: {wanted}\n{story_of(self.workers.values())}")
            # A look may read all logs and connect to the database: the workers need the machine more than it does.
            time.sleep(max(LOOK_S, LOOKS_REST * (now - looked_at)))
            looked_at = time.monotonic()
        return time.monotonic() - began

    def until_begun(self, count: int) -> None:
        """So many runs."""
        self.until(lambda: len(self.effects()) >= count, f"{count} runs have begun")

    def until_all_have_ended(self) -> None:
        """Every task of this fleet."""

        def ran() -> bool:
            ended = {run.task for run in self.effects() if run.has_ended}
            return ended >= set(self.ids) and not self.ledger.live()

        self.until(ran, f"all {len(self.ids)} tasks have ended")
