"""A write about a leased task counts only under the lease that stands: a zombie changes nothing, and is told so."""

from typing import Any

import pytest

from everpoll.stores.contract import Lease, Settlement, TaskInfo
from stores.stage import HOUR_S, Stage, again, done, json

STALE = [
    pytest.param(done, id="done without a word"),
    pytest.param(lambda lease: done(lease, "stale"), id="done"),
    pytest.param(lambda lease: done(lease, "stale", "failed", '{"what":"failed","error":{}}'), id="failed"),
    pytest.param(lambda lease: again(lease, HOUR_S, memory='"stale"', note='{"what":"retry"}'), id="again"),
    pytest.param(lambda lease: again(lease, None, refund=True), id="hand back"),
]


async def unchanged(stage: Stage, worker: int, settlement: Settlement) -> TaskInfo:
    before = await stage.store.info([settlement.id])
    assert await stage.store.settle(worker, [settlement]) == {settlement.id}
    assert await stage.store.info([settlement.id]) == before
    return before[settlement.id]


@pytest.mark.parametrize("stale", STALE)
class TestStaleSettlements:
    """Each of them, on each way to lose a lease."""

    async def test_after_the_rescue(self, stage: Stage, stale: Any) -> None:
        zombie = await stage.worker()
        lease = await stage.running(zombie)
        await stage.bury(zombie)
        assert (await unchanged(stage, zombie, stale(lease))).state == "queued"

    async def test_after_another_worker_leased_it(self, stage: Stage, stale: Any) -> None:
        zombie = await stage.worker()
        lease = await stage.running(zombie)
        await stage.bury(zombie)
        heir = await stage.worker("heir")
        inherited = await stage.take_one(heir)
        assert inherited.sequence == 2
        assert (await unchanged(stage, zombie, stale(lease))).worker == "heir"
        assert await stage.store.settle(heir, [done(inherited, "fresh")]) == set()
        assert (await stage.show(lease.id)).result == "fresh"

    async def test_after_the_same_worker_leased_it_again(self, stage: Stage, stale: Any) -> None:
        """Its own handler of an earlier attempt, timed out and still at it."""
        worker = await stage.worker()
        lease = await stage.running(worker)
        await stage.store.settle(worker, [again(lease)])
        current = await stage.take_one(worker)
        await unchanged(stage, worker, stale(lease))
        assert await stage.store.settle(worker, [done(current)]) == set()

    async def test_after_it_was_handed_back(self, stage: Stage, stale: Any) -> None:
        worker = await stage.worker()
        lease = await stage.running(worker)
        await stage.store.settle(worker, [again(lease, None)])
        await unchanged(stage, worker, stale(lease))

    async def test_after_it_ended(self, stage: Stage, stale: Any) -> None:
        worker = await stage.worker()
        lease = await stage.running(worker)
        await stage.store.settle(worker, [done(lease, "first")])
        assert (await unchanged(stage, worker, stale(lease))).result == "first"

    async def test_after_it_ended_and_was_retried(self, stage: Stage, stale: Any) -> None:
        """The sequence goes on over the retry, even for the same worker."""
        worker = await stage.worker()
        lease = await stage.running(worker)
        await stage.store.settle(worker, [done(lease, state="failed")])
        assert await stage.store.retry(lease.id, '{"what":"retry"}')
        current = await stage.take_one(worker)
        assert current.sequence > lease.sequence
        await unchanged(stage, worker, stale(lease))
        assert await stage.store.settle(worker, [done(current)]) == set()

    async def test_by_another_incarnation_with_the_right_sequence(self, stage: Stage, stale: Any) -> None:
        worker, thief = await stage.worker(), await stage.worker()
        lease = await stage.running(worker)
        await unchanged(stage, thief, stale(lease))
        assert await stage.store.settle(worker, [done(lease)]) == set()

    async def test_by_the_right_incarnation_with_a_sequence_to_come(self, stage: Stage, stale: Any) -> None:
        worker = await stage.worker()
        lease = await stage.running(worker)
        ahead = Lease(lease.id, lease.sequence + 1, lease.attempt, lease.name, lease.queue, lease.args)
        await unchanged(stage, worker, stale(ahead))

    async def test_of_a_task_that_was_never_leased(self, stage: Stage, stale: Any) -> None:
        worker = await stage.worker()
        task_id = await stage.put_one()
        await unchanged(stage, worker, stale(Lease(task_id, 0, 0, "job", "default", "null")))

    async def test_of_a_task_that_never_was(self, stage: Stage, stale: Any) -> None:
        worker = await stage.worker()
        assert await stage.store.settle(worker, [stale(Lease(987_654_321, 1, 1, "job", "default", "null"))]) == {
            987_654_321
        }


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("stale", STALE)
async def test_an_old_and_the_current_lease_in_one_batch(stage: Stage, stale: Any, order: int) -> None:
    """A handler that was given up and its successor end at the same moment, in one process: the current one counts."""
    worker = await stage.worker()
    old = await stage.running(worker)
    await stage.store.settle(worker, [again(old)])
    current = await stage.take_one(worker)
    batch = [stale(old), done(current, "current")][::order]
    assert await stage.store.settle(worker, batch) == {old.id}
    shown = await stage.show(old.id)
    assert (shown.state, shown.result, shown.trail) == ("done", "current", ())


async def test_the_same_lease_twice_in_one_batch(stage: Stage) -> None:
    """The first counts."""
    worker = await stage.worker()
    lease = await stage.running(worker)
    assert await stage.store.settle(worker, [done(lease, "first"), done(lease, "second")]) == {lease.id}
    assert (await stage.show(lease.id)).result == "first"
    lease = await stage.running(worker)
    assert await stage.store.settle(worker, [again(lease, HOUR_S), done(lease)]) == {lease.id}
    assert (await stage.show(lease.id)).state == "queued"


async def test_a_late_worker_keeps_what_no_other_took(stage: Stage) -> None:
    """Past its lease, but not given up yet: its result is not thrown away."""
    worker = await stage.worker()
    lease = await stage.running(worker)
    await stage.pass_time(HOUR_S)
    assert await stage.store.settle(worker, [done(lease, 7)]) == set()
    assert (await stage.show(lease.id)).result == 7


async def test_progress_of_a_running_task(stage: Stage) -> None:
    worker = await stage.worker()
    lease = await stage.running(worker)
    assert await stage.store.progress(worker, lease, json({"at": 0.5}))
    assert (await stage.show(lease.id)).progress == {"at": 0.5}
    await stage.store.settle(worker, [done(lease)])
    assert (await stage.show(lease.id)).progress == {"at": 0.5}


async def test_progress_is_fenced(stage: Stage) -> None:
    zombie, thief = await stage.worker(), await stage.worker(lease_s=HOUR_S)
    lease = await stage.running(zombie)
    assert not await stage.store.progress(thief, lease, "1")
    await stage.bury(zombie)
    assert not await stage.store.progress(zombie, lease, "2")
    current = await stage.take_one(thief)
    assert not await stage.store.progress(zombie, lease, "3")
    assert not await stage.store.progress(thief, lease, "4")
    assert (await stage.show(lease.id)).progress is None
    await stage.store.settle(thief, [done(current)])
    assert not await stage.store.progress(thief, current, "5")
    assert (await stage.show(lease.id)).progress is None


async def test_a_loss_is_recorded_beside_the_task(stage: Stage) -> None:
    """What a zombie computed is not the task's result, but the log says where it went."""
    worker = await stage.worker()
    task_id = await stage.ended(worker)
    before = await stage.show(task_id)
    assert await stage.store.losses(task_id) == []
    await stage.store.note_loss(task_id, json({"what": "lost", "worker": "zombie", "result": "nul\0"}))
    await stage.store.note_loss(task_id, json({"what": "lost", "worker": "other"}))
    losses = await stage.store.losses(task_id)
    assert [(loss["what"], loss["worker"]) for loss in losses] == [("lost", "zombie"), ("lost", "other")]
    assert losses[0]["result"] == "nul\0"
    assert all(isinstance(loss["at"], int | float) for loss in losses)
    assert await stage.show(task_id) == before
    assert await stage.store.losses(task_id + 1) == []
