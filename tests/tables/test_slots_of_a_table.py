"""How many rows of a table run at a time: its own slots, or else the app's, also where they are said later."""

from dataclasses import replace

import pytest

from everpoll import Everpoll
from tables.sqlite_stage import SqliteStage
from tables.stages import BARE


@pytest.mark.parametrize(("own", "expected"), [(None, 7), (3, 3)])
async def test_slots_given_to_the_command_reach_tables_without_their_own(
    sqlite_stage: SqliteStage, own: int | None, expected: int
) -> None:
    await sqlite_stage.create(BARE)
    app = Everpoll("memory://")
    adopted = app.table(sqlite_stage.bare(), slots=own, url=sqlite_stage.url)
    adopted.handler(lambda row: None)
    app.worker_options = replace(app.worker_options, slots=7)  # what `everpoll run --slots 7` does
    async with app:
        assert app.health().tables["jobs"].slots == expected
