"""Tables of several databases in one process: one that is away holds up its own table and nothing else."""

import asyncio
import contextlib

from everpoll import Everpoll
from everpoll.tables import Table
from tables.stages import BARE, TableStage

NO_SERVER = "postgresql://user@127.0.0.1:1/none"


async def test_a_database_that_is_away_at_the_start_holds_up_no_other_table(stage: TableStage) -> None:
    """Adopted first, so that it is begun with; and a loop runs all the same."""
    await stage.create(BARE)
    await stage.queue(1)
    await stage.prepare(stage.bare())
    app = Everpoll("memory://")
    app.table(Table("other"), url=NO_SERVER).handler(lambda row: None)
    stage.adopt(app, stage.bare()).handler(lambda row: None)
    ticked = asyncio.Event()

    @app.loop(every="10ms")
    async def tick() -> None:
        ticked.set()

    running = asyncio.ensure_future(app.run(grace=0))
    try:
        async with asyncio.timeout(20):
            await stage.until_all("completed")
            await ticked.wait()
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
