"""Dozens of queries in a cloud that loses, delays and refuses at will: each ends right, effects happen once."""

from pathlib import Path

import pytest

from examples.shell_query.fates import Fate, Faults
from examples.shell_query.figures import Figures
from shell_query.stage import Stage

FATES = {
    "ready": Fate(runs_s=100),
    "late": Fate(runs_s=40, rows_after_s=6),
    "queued": Fate(runs_s=70, completed_date_after_s=1, reported_after_s=float("inf")),
    "failed": Fate(runs_s=60, error="Invalid column"),
}


@pytest.mark.parametrize("seed", range(8))
def test_each_query_ends_right_and_was_started_and_cleaned_up_once(tmp_path: Path, seed: int) -> None:
    faults = Faults(seed, lost=0.04, answer_lost=0.04, silent=0.02, late=0.05, error=0.03, too_many=0.03)
    stage = Stage(tmp_path, Figures(), faults)
    stage.app.watches.runtime(stage.queries.watch.name).rng.seed(seed)
    names = [f"{kind}-{number}" for kind in FATES for number in range(6)]

    async def scene() -> None:
        runs = {name: await stage.begin(name, FATES[name.partition("-")[0]]) for name in names}
        for name, run in runs.items():
            info = await stage.ended(run)
            assert info.outcome == ("failed" if name.startswith("failed") else "ready"), (name, info)
        rows = await stage.runs.all()
        assert {name: row["status"] for name, row in rows.items()} == {
            name: "failed" if name.startswith("failed") else "ready" for name in names
        }

    stage.play(scene)
    stage.assert_once(*names)
    assert {one.ending for one in stage.records.requests} > {"lost", "answer lost", "late", "status"}
