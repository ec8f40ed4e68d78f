"""A row is claimed once, the oldest first, by a write that names the worker and the time."""

import asyncio
from datetime import timedelta

import pytest

from everpoll.tables import Guard
from tables.stages import BARE, JOBS, TableStage, keys


async def test_of_two_pollers_that_want_one_row_exactly_one_gets_it(stage: TableStage, guard: Guard) -> None:
    """The other sees it as already claimed, without an error."""
    await stage.create()
    mapping = stage.mapping(guard=guard)
    async with stage.claimer(mapping, "one") as one, stage.claimer(mapping, "two") as two:
        for number in range(20):
            await stage.queue(number)
            looks = await asyncio.gather(one.look(1), two.look(1))
            assert sorted(len(look.leases) for look in looks) == [0, 1]
            winner = one if looks[0].leases else two
            assert (await stage.one(number))["worker_id"] == winner.label


async def test_a_claim_writes_who_has_the_row_since_when(stage: TableStage, guard: Guard) -> None:
    await stage.create()
    await stage.queue(7, payload="seven")
    async with stage.claimer(stage.mapping(guard=guard)) as worker:
        lease = await worker.take_one()
        assert (lease.row_key, lease.attempt, dict(lease.values)) == (7, 1, {"payload": "seven"})
        row = await stage.one(7)
        assert (row["status"], row["worker_id"]) == ("running", "worker-1")
        assert abs(row["started_at"] - row["created_at"]) < timedelta(minutes=1)
        assert row["last_heartbeat"] >= row["started_at"]


async def test_the_oldest_come_first(stage: TableStage, guard: Guard) -> None:
    await stage.create(BARE | {"version": "count", "updated_at": "since"})
    await stage.queue(3, 1, 2)
    async with stage.claimer(stage.bare(guard=guard)) as worker:
        assert keys(await worker.take(2)) == [3, 1]
        assert keys(await worker.take(2)) == [2]
        assert keys(await worker.take(2)) == []


@pytest.mark.parametrize(("guard", "column"), [("version", "version"), ("timestamp", "updated_at")])
async def test_a_claim_changes_what_its_guard_compares(stage: TableStage, guard: Guard, column: str) -> None:
    await stage.create()
    await stage.queue(1)
    before = await stage.one(1)
    async with stage.claimer(stage.mapping(guard=guard)) as worker:
        lease = await worker.take_one()
        claimed = await stage.one(1)
        assert claimed[column] > before[column]
        await worker.end(lease)
        assert (await stage.one(1))[column] > claimed[column]


async def test_priority_comes_before_age(stage: TableStage, guard: Guard) -> None:
    await stage.create()
    await stage.queue(1, 2)
    await stage.queue(3, priority=5)
    await stage.queue(4, priority=-1)
    async with stage.claimer(stage.mapping(guard=guard)) as worker:
        assert keys(await worker.take()) == [3, 1, 2, 4]


async def test_never_more_than_there_are_free_slots(stage: TableStage, guard: Guard) -> None:
    await stage.create(JOBS)
    await stage.queue(*range(10))
    async with stage.claimer(stage.mapping(guard=guard)) as worker:
        assert len(await worker.take(3)) == 3
        assert len(await worker.take(0)) == 0
        assert len(await worker.take(50)) == 7


async def test_rows_with_another_status_are_left_alone(stage: TableStage, guard: Guard) -> None:
    """Whatever words the user has beside ours."""
    await stage.create()
    await stage.insert(*({"id": number, "status": word} for number, word in enumerate(("draft", "running", "Queued"))))
    async with stage.claimer(stage.mapping(guard=guard)) as worker:
        assert await worker.take() == []
