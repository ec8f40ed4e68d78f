"""Nothing starts before it was created, whatever the order in which transactions began."""

import asyncpg

from everpoll.stores.postgres.functions import versioned
from everpoll.stores.postgres.marks import LOWEST, RANK_END, RANK_MIN
from stores.stage import Stage

LOOK = versioned(
    """select * from everpoll.lease($1, 5, '{default}', '{5}', 1000000, '{default}', $2, $3, $4, true, '{-infinity}',
        false)"""
)


async def test_a_task_that_was_enqueued_while_a_look_was_under_way_starts_after_it_was_created(
    stage: Stage, url: str
) -> None:
    worker = await stage.worker()
    looker = await asyncpg.connect(url)
    try:
        async with looker.transaction():
            await looker.fetchval("select now()")
            task_id = await stage.put_one()
            looked = await looker.fetchrow(LOOK, worker, [RANK_MIN], [LOWEST], [RANK_END])
            assert looked["ids"] == [task_id]
    finally:
        await looker.close()
    shown = await stage.show(task_id)
    assert shown.started_at is not None
    assert shown.created_at <= shown.started_at
