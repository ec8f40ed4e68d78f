"""The example in virtual time: the simulated cloud called in its own process, a store in memory, one worker."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from everpoll import Backoff, Everpoll
from everpoll.testing import Timeline, VirtualClock
from everpoll.watches import RunInfo, WatchRun
from examples.shell_query.app import NAME, ShellQueries, customer_key
from examples.shell_query.client import CloudClient
from examples.shell_query.fates import Fate, Faults
from examples.shell_query.figures import Figures
from examples.shell_query.in_process import InProcess
from examples.shell_query.marketing_cloud import TOKEN, MarketingCloud
from examples.shell_query.runs import Runs, ShellQuery

STATUS = "Retrieve AsyncActivityStatus"
EXACT = replace(Figures(), every=Backoff("2s", factor=2, cap="30s", jitter=0))
"""The document's figures without chance."""


def key_of(run_id: str) -> str:
    return customer_key(f"{NAME}:{run_id}")


class Stage:
    """One process, one cloud."""

    def __init__(self, folder: Path, figures: Figures = EXACT, faults: Faults | None = None) -> None:
        self.clock = VirtualClock()
        self.cloud = MarketingCloud(self.clock, faults=faults)
        self.records = self.cloud.records
        self.app = Everpoll("memory://", clock=self.clock)
        self.runs = Runs(folder / "business.db", self.clock.wall)
        self.client = CloudClient("http://cloud", TOKEN, InProcess(self.cloud))
        self.queries = ShellQueries(self.app, self.client, self.runs, figures)
        self.timeline = Timeline(self.queries.watch)

    async def begin(self, run_id: str = "r", fate: Fate | None = None, sql: str = "SELECT 1 AS row") -> WatchRun:
        """As the product does it: first its own row, then the run."""
        if fate is not None:
            self.cloud.fates[key_of(run_id)] = fate
        op = ShellQuery(run_id=run_id, sql_text=sql)
        await self.runs.add(op)
        return await self.queries.watch.begin(op, id=run_id)

    async def ended(self, run: WatchRun, within_s: float = 7200.0) -> RunInfo:
        """Let time pass until the run has ended, clean-up and all."""
        until = self.clock.now() + within_s
        while (info := await run.info()).phase != "ended":
            assert self.clock.now() < until, info
            await asyncio.sleep(1)
        return info

    async def life_of(self, fate: Fate, run_id: str = "r") -> RunInfo:
        """The whole life of one query."""
        return await self.ended(await self.begin(run_id, fate))

    def asked(self, action: str, run_id: str = "r") -> list[float]:
        """When the cloud was asked that about this query, in seconds from its start, to a tenth."""
        activity = self.cloud.activity(key_of(run_id))
        started_at_s = 0.0 if activity is None else activity.started_at_s
        return [round(at - started_at_s, 1) for at in self.records.times(action, key_of(run_id))]

    def play(self, scene: Callable[[], Awaitable[Any]]) -> None:
        """Run a scene, with a worker."""

        async def main() -> None:
            async with self.app:
                await scene()

        self.clock.run(main())

    def assert_once(self, *run_ids: str) -> None:
        """Started once, cleaned up once, nothing left, nothing asked too early."""
        for run_id in run_ids:
            key = key_of(run_id)
            assert self.records.starts[key] == 1, run_id
            assert self.records.deletes["QueryDefinition", key] == 1, run_id
            assert self.records.deletes["DataExtension", key] == 1, run_id
        assert self.cloud.leaked == []
        assert self.records.too_early == []
        assert self.records.deleted_while_running == []
