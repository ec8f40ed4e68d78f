"""What a settlement adds is enqueued with it, exactly once, or not at all."""

import pytest

from everpoll.errors import BadInput
from everpoll.stores.contract import Again, Ended, Lease, NewTask, Settlement
from everpoll.stores.limits import PAYLOAD_BYTES
from stores.stage import HOUR_S, Stage, again, done


def ended(lease: Lease, *follow_ups: NewTask) -> Ended:
    return Ended(lease.id, lease.sequence, follow_ups=follow_ups)


def later(lease: Lease, delay_s: float, *follow_ups: NewTask) -> Again:
    return Again(lease.id, lease.sequence, delay_s, refund=True, follow_ups=follow_ups)


async def test_follow_ups_of_ends_and_of_tasks_that_are_due_again_are_enqueued_once(stage: Stage) -> None:
    worker = await stage.worker()
    await stage.put(3)
    first, second, third = await stage.take(worker)
    batch: list[Settlement] = [
        ended(first, NewTask(name="a"), NewTask(name="b", key="k")),
        later(second, HOUR_S, NewTask(name="c")),
    ]
    assert await stage.store.settle(worker, [*batch, done(third)]) == set()
    assert [one.name for one in await stage.take(worker)] == ["a", "b", "c"]
    assert await stage.store.settle(worker, batch) == {first.id, second.id}
    assert await stage.take(worker) == []


async def test_a_lost_settlement_enqueues_nothing_and_takes_none_from_others(stage: Stage) -> None:
    zombie, worker = await stage.worker(), await stage.worker(lease_s=HOUR_S)
    await stage.put(1)
    (stale,) = await stage.take(zombie)
    await stage.bury(zombie)
    await stage.put(1)
    fresh = next(one for one in await stage.take(worker) if one.id != stale.id)
    lost = await stage.store.settle(worker, [ended(stale, NewTask(name="zombie")), ended(fresh, NewTask(name="ours"))])
    assert lost == {stale.id}
    assert [one.name for one in await stage.take(worker)] == ["ours"]


async def test_a_follow_up_may_have_the_key_that_its_task_lets_go_of(stage: Stage) -> None:
    worker = await stage.worker()
    await stage.store.enqueue([NewTask(name="report", key="daily")])
    (lease,) = await stage.take(worker)
    assert (
        await stage.store.settle(worker, [ended(lease, NewTask(name="report", key="daily", delay_s=HOUR_S))]) == set()
    )
    live = await stage.store.find("job", "daily")
    assert live is not None
    assert (live.id != lease.id, live.state) == (True, "queued")


async def test_a_follow_up_whose_key_is_taken_adds_nothing(stage: Stage) -> None:
    worker = await stage.worker()
    await stage.put(1)
    (lease,) = await stage.take(worker)
    (holder,) = await stage.store.enqueue([NewTask(name="report", key="daily", delay_s=HOUR_S)])
    assert await stage.store.settle(worker, [ended(lease, NewTask(name="report", key="daily"))]) == set()
    live = await stage.store.find("job", "daily")
    assert live is not None
    assert live.id == holder.id
    assert await stage.take(worker) == []


async def test_a_follow_up_that_cannot_be_stored_leaves_its_task_as_it_was(stage: Stage) -> None:
    """All or none: the settlement is refused as a whole, and can still be made without the culprit."""
    worker = await stage.worker()
    await stage.put(1)
    (lease,) = await stage.take(worker)
    with pytest.raises(BadInput, match="args"):
        await stage.store.settle(worker, [ended(lease, NewTask(name="big", args='"' + "x" * PAYLOAD_BYTES + '"'))])
    assert await stage.store.settle(worker, [again(lease, None)]) == set()
    assert [one.id for one in await stage.take(worker)] == [lease.id]


async def test_follow_ups_wait_for_their_due_time(stage: Stage) -> None:
    worker = await stage.worker()
    await stage.put(1)
    (lease,) = await stage.take(worker)
    await stage.store.settle(worker, [ended(lease, NewTask(name="later", delay_s=HOUR_S))])
    assert await stage.take(worker) == []
    assert [(one.queue, one.waiting) for one in await stage.store.queues()] == [("default", 1)]
