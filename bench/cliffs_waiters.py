"""Waiters: 20,000 callers that wait for runs in one process, and 10,000 runs that are canceled at once.

Late is the time from a run's outcome, as its look decides it, to its caller. The control is the same with 10 callers,
in the same run of the benchmark. `elsewhere`: the callers' app has no worker, as a web process has none.
"""

import asyncio
import contextlib
import statistics
import time
from typing import Any

from bench.progress import Progress
from bench.report import Ratio
from bench.server import postgres
from everpoll import Budget, Everpoll, RunCanceled
from everpoll.watches import Done, Wait, Watch, WatchRun

FEW = 10
CALLERS, QUICK_CALLERS = 20_000, 5_000
CANCELED, QUICK_CANCELED = 10_000, 2_000
PROBES = 20
LATE_MS = 100.0


class Stage:
    """Two apps on one database: one works, and one may only wait."""

    def __init__(self, url: str, *, elsewhere: bool) -> None:
        self.worker = Everpoll(url)
        self.waiter = Everpoll(url) if elsewhere else self.worker
        self.decided: dict[str, float] = {}
        self.asked: set[str] = set()
        self._watches = {app: self._watch(app) for app in {self.worker, self.waiter}}

    def _watch(self, app: Everpoll) -> Watch[Any]:
        @app.watch(every="100ms", budget=Budget("1d"))
        async def operation(_op: Any, w: Any) -> Any:
            if w.is_canceling or w.id in self.asked:
                self.decided[w.id] = time.monotonic()
                return Done()
            return Wait() if w.id.startswith("probe") else Wait("1h")

        @operation.cancel
        async def cancel(_op: Any) -> None: ...

        return operation

    async def begun(self, prefix: str, number: int) -> list[WatchRun]:
        """So many runs."""
        watch = self._watches[self.waiter]
        return list(await asyncio.gather(*(watch.begin({}, id=f"{prefix}-{one}") for one in range(number))))

    async def at_rest(self) -> None:
        """Until each run was looked at once, and waits for its next look."""
        store = await self.worker.store()
        while any(queue.ready or queue.running for queue in await store.queues()):  # noqa: ASYNC110 - others work
            await asyncio.sleep(0.1)


async def late_ms(url: str, callers: int, how: str, *, elsewhere: bool) -> float:
    """How late the slowest tenth of the probes is heard, while so many callers wait for runs that do not end."""
    stage = Stage(url, elsewhere=elsewhere)
    async with stage.worker:
        runs = await stage.begun("run", callers)
        await stage.at_rest()
        waiting = [asyncio.ensure_future(_heard(run, how)) for run in runs]
        probes = await stage.begun("probe", PROBES)
        hearing = {run.id: asyncio.ensure_future(_heard(run, how)) for run in probes}
        await asyncio.sleep(5 + callers / 1_000)  # each caller has asked once, and waits
        for run in probes:
            stage.asked.add(run.id)
            await asyncio.sleep(0.05)
        heard = {run_id: await one for run_id, one in hearing.items()}
        for one in waiting:
            one.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        if elsewhere:
            await stage.waiter.close()
    lates = [heard[run_id] - stage.decided[run_id] for run_id in heard]
    return statistics.quantiles(lates, n=10)[-1] * 1000


async def canceled_s(url: str, runs: int) -> float:
    """How long it takes until each of so many callers has heard that its run is canceled, if all are at once."""
    stage = Stage(url, elsewhere=False)
    async with stage.worker:
        begun = await stage.begun("run", runs)
        await stage.at_rest()
        waiting = [asyncio.ensure_future(_heard(run, "result")) for run in begun]
        await asyncio.sleep(2)
        began = time.monotonic()
        await asyncio.gather(*(run.cancel("all of them") for run in begun))
        await asyncio.gather(*waiting)
        return time.monotonic() - began


async def _heard(run: WatchRun, how: str) -> float:
    """When this caller has heard of the outcome."""
    if how == "events":
        async for event in run.events():
            if event.outcome is not None:
                break
    else:
        with contextlib.suppress(RunCanceled):
            await run.result()
    return time.monotonic()


def ratios(quick: bool = False) -> list[Ratio]:
    """Each against its own control of 10 callers, on Postgres."""
    callers, canceled = (QUICK_CALLERS, QUICK_CANCELED) if quick else (CALLERS, CANCELED)
    progress, found = Progress("waiters"), []
    with postgres() as server:
        for how in ("result", "events"):
            for elsewhere in (False, True):
                where = "elsewhere" if elsewhere else "beside the worker"
                progress.begin(f"{callers:,} callers wait for {how}, {where}")
                late = {}
                for number in (FEW, callers):
                    with server.database() as url:
                        late[number] = asyncio.run(late_ms(url, number, how, elsewhere=elsewhere))
                progress.end()
                label = f"waiters, {how}, {where}: {callers:,} callers get the result"
                found.append(Ratio(f"{label}, ms late", late[callers], at_most=LATE_MS))
                found.append(Ratio(f"{label}, against {FEW}", late[callers] / late[FEW]))
        progress.begin(f"{canceled:,} runs are canceled at once, with a caller each")
        took = {}
        for number in (FEW, canceled):
            with server.database() as url:
                took[number] = asyncio.run(canceled_s(url, number))
        progress.end()
        each = (took[canceled] / canceled) / (took[FEW] / FEW)
        found.append(Ratio(f"waiters: {canceled:,} runs canceled at once, seconds", took[canceled]))
        found.append(Ratio("waiters: time of a cancel among many, of one among 10", each, at_most=1.0))
    return found


if __name__ == "__main__":
    import sys

    for one in ratios("--quick" in sys.argv):
        print(f"{one.label}: {one.value:.3g} {one.target} {one.verdict}", flush=True)
