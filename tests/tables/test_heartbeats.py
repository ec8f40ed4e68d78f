"""Rows of live workers are heard of; those of dead ones are given back, and count."""

from everpoll.tables import Guard
from tables.stages import JOBS, TableStage, keys

STALE_S = 303.0


async def test_a_beat_tells_the_table_that_our_rows_are_alive(stage: TableStage) -> None:
    await stage.create()
    await stage.queue(1, 2)
    async with stage.claimer() as worker:
        leases = await worker.take()
        await stage.age(200, "last_heartbeat")
        before = await stage.rows()
        assert await worker.beat(*leases) == await worker.beat(*leases)
        rows = await stage.rows()
        assert all(new["last_heartbeat"] > old["last_heartbeat"] for new, old in zip(rows, before, strict=True))
        assert all(row["status"] == "running" for row in rows)


async def test_a_beat_tells_which_rows_are_ours_no_more(stage: TableStage, guard: Guard) -> None:
    """Their handlers are canceled, and nothing about them is changed."""
    await stage.create()
    await stage.queue(1, 2, 3, 4)
    mapping = stage.mapping(guard=guard)
    async with stage.claimer(mapping, "one") as one, stage.claimer(mapping, "two") as two:
        kept, changed, taken, ended = await one.take()
        await stage.change(2, status="canceled")
        await stage.change(3, status="queued")
        await two.take_one()
        await one.end(ended)
        before = (await stage.rows())[1:]
        beat = await one.beat(kept, changed, taken, ended)
        assert beat.is_alive
        assert set(beat.canceled) == {changed.id, taken.id}
        assert (await stage.rows())[1:] == before


async def test_without_a_heartbeat_column_the_users_changes_are_seen_all_the_same(stage: TableStage) -> None:
    await stage.create()
    await stage.queue(1, 2)
    async with stage.claimer(stage.mapping(heartbeat=None)) as worker:
        kept, changed = await worker.take()
        await stage.change(2, status="canceled")
        await stage.age(10 * STALE_S, "started_at")
        assert (await worker.beat(kept, changed)).rescued == 0
        assert (await stage.statuses()) == {1: "running", 2: "canceled"}


async def test_a_silent_workers_row_waits_again_and_counts(stage: TableStage, guard: Guard) -> None:
    await stage.create()
    await stage.queue(1)
    mapping = stage.mapping(guard=guard)
    async with stage.claimer(mapping, "dead") as dead, stage.claimer(mapping, "alive") as alive:
        lease = await dead.take_one()
        await stage.age(STALE_S - 60, "last_heartbeat")
        assert (await alive.beat()).rescued == 0
        await stage.age(60, "last_heartbeat")
        assert (await alive.beat()).rescued == 1
        row = await stage.one(1)
        assert (row["status"], row["retry_count"]) == ("queued", 1)
        assert (row["worker_id"], row["started_at"], row["last_heartbeat"]) == (None, None, None)
        assert row["error"]
        again = await alive.take_one()
        assert (again.row_key, again.attempt) == (1, 2)
        assert await dead.end(lease) == {lease.id}


async def test_after_three_attempts_it_has_failed(stage: TableStage) -> None:
    await stage.create()
    await stage.queue(1)
    async with stage.claimer() as worker:
        for attempt in (1, 2, 3):
            lease = await worker.take_one()
            assert lease.attempt == attempt
            await stage.age(STALE_S, "last_heartbeat")
            await worker.beat()
        row = await stage.one(1)
        assert (row["status"], row["retry_count"], row["worker_id"]) == ("failed", 3, "worker-1")
        assert row["finished_at"] is not None
        assert row["error"]


async def test_a_row_that_was_never_heard_of_is_as_old_as_its_start(stage: TableStage) -> None:
    """Another program claims without heartbeats; without a start the age of a row is unknown."""
    await stage.create()
    await stage.queue(1, 2, 3)
    async with stage.claimer() as worker:
        await worker.take(2)
        await stage.age(STALE_S, "started_at")
        await stage.change(1, last_heartbeat=None)
        await stage.change(3, status="running")
        assert (await worker.beat()).rescued == 1
        assert await stage.statuses() == {1: "queued", 2: "running", 3: "running"}


async def test_without_a_column_to_count_in_it_waits_again_each_time(stage: TableStage) -> None:
    """A worker's death is not the row's failure."""
    await stage.create()
    await stage.queue(1)
    async with stage.claimer(stage.mapping(retries=None)) as worker:
        for _ in range(5):
            assert (await worker.take_one()).attempt == 1
            await stage.age(STALE_S, "last_heartbeat")
            assert (await worker.beat()).rescued == 1
        assert (await stage.one(1))["retry_count"] == 0


async def test_many_workers_hand_back_at_once_and_none_twice(stage: TableStage) -> None:
    await stage.create(JOBS)
    await stage.queue(*range(30))
    async with stage.claimer(label="dead") as dead, stage.claimer(label="a") as a, stage.claimer(label="b") as b:
        await dead.take()
        await stage.age(STALE_S, "last_heartbeat")
        beats = [await a.beat(), await b.beat()]
        assert sum(beat.rescued for beat in beats) == 30
        assert {row["retry_count"] for row in await stage.rows()} == {1}
        assert len(keys(await a.take())) == 30


async def test_a_row_claimed_anew_by_its_own_worker_is_not_held_by_the_first_run(stage: TableStage) -> None:
    await stage.create()
    await stage.queue(1)
    async with stage.claimer() as claimer:
        first = await claimer.take_one()
        await stage.change(1, status="queued")
        again = await claimer.take_one()
        assert (await claimer.beat(first, again)).canceled == (first.id,)
        assert await claimer.end(again, first, report={"by": "both"}) == {first.id}
    assert await stage.statuses() == {1: "completed"}
