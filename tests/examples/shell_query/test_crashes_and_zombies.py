"""Invariants 7 and 8 on the document's own system: a crash and a zombie before and behind every request and write."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from everpoll import Everpoll
from everpoll.testing import World, crash_point, explore
from everpoll.watches.adapters import Response
from examples.shell_query.app import NAME, ShellQueries
from examples.shell_query.client import CloudClient
from examples.shell_query.fates import Fate
from examples.shell_query.in_process import InProcess
from examples.shell_query.marketing_cloud import TOKEN, MarketingCloud
from examples.shell_query.runs import Runs, ShellQuery
from shell_query.stage import EXACT, key_of

FATES = {
    "complete": (Fate(runs_s=10, rows_after_s=3), "ready", False),
    "not running": (Fate(runs_s=10, completed_date_after_s=0, reported_after_s=float("inf"), rows=0), "ready", False),
    "error": (Fate(runs_s=10, error="Invalid column"), "failed", False),
    "canceled": (Fate(runs_s=600), "canceled", True),
}


class Mortal(InProcess):
    """A way to the cloud on which the process may die."""

    async def __call__(
        self, method: str, url: str, *, headers: Mapping[str, str], body: bytes | None = None
    ) -> Response:
        await crash_point(f"before {method} {url}")
        response = await super().__call__(method, url, headers=headers, body=body)
        await crash_point(f"behind {method} {url}")
        return response


@pytest.mark.parametrize("name", FATES)
def test_however_a_process_ends_the_query_is_started_once_and_cleaned_up_once(tmp_path: Path, name: str) -> None:
    fate, outcome, is_canceled = FATES[name]
    rounds = 0

    def make(world: World) -> Everpoll:
        if "cloud" not in world.notes:
            nonlocal rounds
            rounds += 1
            world.notes["cloud"] = MarketingCloud(world.clock)
            world.notes["cloud"].fates[key_of("r")] = fate
            world.notes["runs"] = Runs(tmp_path / f"business-{rounds}.db", world.clock.wall)
        app = Everpoll(world.store, clock=world.clock)
        client = CloudClient("http://cloud", TOKEN, Mortal(world.notes["cloud"]))
        queries = ShellQueries(app, client, world.notes["runs"], EXACT)
        world.notes["queries"] = queries
        return app

    async def story(world: World, _app: Everpoll) -> None:
        op = ShellQuery(run_id="r", sql_text="SELECT 1")
        await world.notes["runs"].add(op)
        run = await world.notes["queries"].watch.begin(op, id="r")
        if is_canceled:
            await world.clock.advance(20)
            await run.cancel()

    async def check(world: World) -> None:
        cloud: MarketingCloud = world.notes["cloud"]
        app = Everpoll(world.database, clock=world.clock)
        info = await (await app.watches.run(NAME, "r")).info()
        assert info.outcome == outcome, info
        # Who died before the start and was canceled then, was never started at all.
        starts = cloud.records.starts[key_of("r")]
        assert starts == 1 or (starts == 0 and is_canceled), cloud.records.requests
        # Only a zombie that was halfway through its start leaves anything, which is what the sweeper is for.
        if world.fault.fate == "crash":
            assert cloud.leaked == [], cloud.records.requests
        await ShellQueries(app, CloudClient("http://cloud", TOKEN, InProcess(cloud)), world.notes["runs"]).sweep()
        assert cloud.leaked == [], cloud.records.requests
        assert cloud.records.deleted_while_running == []
        assert cloud.records.too_early == []
        rows = await world.notes["runs"].all()
        assert rows["r"]["status"] == outcome
        if is_canceled:
            assert cloud.records.stops[key_of("r")] == starts

    exploration = explore(make, story, check)
    assert exploration.stories == 2 * len(exploration.points) + 1
    assert len(exploration.points) > 20
