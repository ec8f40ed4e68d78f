"""A watch is never ended by others: a cancel makes it due, tells it, and waits for it. Jobs are canceled as ever."""

import pytest

from everpoll.stores.contract import RESCUE_LIMIT, NewTask
from stores.stage import HOUR_S, LEASE_S, WATCH, Stage, again, done, json, whats
from stores.test_wakeup import Listener

WHY = json({"what": "cancel", "why": "no longer needed"})


@pytest.mark.parametrize("delay_s", [0.0, HOUR_S])
async def test_a_queued_one_is_due_at_once_and_told_so(stage: Stage, delay_s: float) -> None:
    worker = await stage.worker()
    task_id = await stage.put_one(**WATCH, delay_s=delay_s)
    assert await stage.store.cancel(task_id, WHY) == "queued"
    shown = await stage.show(task_id)
    assert (shown.state, shown.cancel_requested, whats(shown)) == ("queued", True, ["cancel"])
    lease = await stage.take_one(worker)
    assert (lease.id, lease.cancel_requested, lease.attempt) == (task_id, True, 1)
    assert await stage.store.settle(worker, [done(lease, "stopped", "canceled")]) == set()
    shown = await stage.show(task_id)
    assert (shown.state, shown.result) == ("canceled", "stopped")


async def test_the_request_stays_until_it_ends_itself(stage: Stage) -> None:
    """It may take several looks until what it looks at has stopped; their delays are its own."""
    worker = await stage.worker()
    task_id = await stage.put_one(**WATCH, delay_s=HOUR_S)
    await stage.store.cancel(task_id, WHY)
    for _ in range(3):
        lease = await stage.take_one(worker)
        assert lease.cancel_requested
        assert await stage.store.settle(worker, [again(lease, 30.0, refund=True, memory="{}")]) == set()
        assert await stage.take(worker) == []
        assert await stage.due_in_s(task_id) == pytest.approx(30.0, abs=20.0)
        await stage.pass_time(31.0)
    assert (await stage.show(task_id)).state == "queued"


@pytest.mark.parametrize("delay_s", [HOUR_S, None])
async def test_a_request_that_it_could_not_see_makes_it_due_at_once(stage: Stage, delay_s: float | None) -> None:
    """It came in the middle of a look: the settlement says "in an hour", and is not heard. The one after it is."""
    worker = await stage.worker()
    lease = await stage.running(worker, **WATCH)
    assert not lease.cancel_requested
    assert await stage.store.cancel(lease.id, WHY) == "running"
    assert (await stage.beat(worker, [lease.id])).canceled == (lease.id,)
    assert await stage.store.settle(worker, [again(lease, delay_s)]) == set()
    lease = await stage.take_one(worker)
    assert lease.cancel_requested
    assert await stage.store.settle(worker, [again(lease, HOUR_S)]) == set()
    assert await stage.take(worker) == []


async def test_asking_twice_is_the_same(stage: Stage) -> None:
    worker = await stage.worker()
    task_id = await stage.put_one(**WATCH, delay_s=HOUR_S)
    assert [await stage.store.cancel(task_id, WHY) for _ in range(2)] == ["queued", "queued"]
    [lease] = await stage.take(worker)
    assert lease.cancel_requested
    await stage.store.settle(worker, [done(lease, None, "canceled")])
    assert await stage.store.cancel(task_id, WHY) == "canceled"
    assert whats(await stage.show(task_id)) == ["cancel", "cancel"]


async def test_a_rescue_hands_it_on_with_the_request(stage: Stage) -> None:
    first = await stage.worker()
    lease = await stage.running(first, **WATCH)
    await stage.store.cancel(lease.id, WHY)
    await stage.bury(first)
    shown = await stage.show(lease.id)
    assert (shown.state, shown.cancel_requested, whats(shown)) == ("queued", True, ["cancel", "rescue"])
    assert (await stage.take_one(await stage.worker())).cancel_requested


async def test_poison_ends_as_failed_whatever_was_asked(stage: Stage) -> None:
    task_id = await stage.put_one(**WATCH)
    await stage.store.cancel(task_id, WHY)
    for _ in range(RESCUE_LIMIT):
        worker = await stage.worker()
        assert (await stage.take_one(worker)).id == task_id
        await stage.bury(worker)
    assert (await stage.show(task_id)).state == "failed"


async def test_jobs_and_watches_in_one_batch(stage: Stage) -> None:
    """Asked while they ran: the job ends, the watch is due, and tasks that were not asked wait."""
    worker = await stage.worker()
    tasks = [NewTask(name="job"), NewTask(name="w", **WATCH), NewTask(name="w", **WATCH)]
    ids = [one.id for one in await stage.store.enqueue(tasks)]
    leases = await stage.take(worker)
    for task_id in ids[:2]:
        assert await stage.store.cancel(task_id, WHY) == "running"
    assert await stage.store.settle(worker, [again(one, HOUR_S, note='{"what":"retry"}') for one in leases]) == set()
    assert [(await stage.show(task_id)).state for task_id in ids] == ["canceled", "queued", "queued"]
    assert [(one.id, one.cancel_requested) for one in await stage.take(worker)] == [(ids[1], True)]


@pytest.mark.parametrize("queues", [("default",), ("default", "other")])
async def test_only_who_was_asked_is_told(stage: Stage, queues: tuple[str, ...]) -> None:
    worker = await stage.worker()
    ids = [await stage.put_one(**WATCH, key=str(number), delay_s=HOUR_S) for number in range(6)]
    for task_id in ids[::2]:
        await stage.store.cancel(task_id, WHY)
    await stage.pass_time(HOUR_S)
    leases = await stage.take(worker, 100, *queues)
    assert {one.id: one.cancel_requested for one in leases} == {one: not place % 2 for place, one in enumerate(ids)}


async def test_a_cancel_wakes_a_worker_that_could_look(stage: Stage) -> None:
    listener, other = Listener(), await stage.another_store()
    task_id = await stage.put_one(**WATCH, delay_s=HOUR_S)
    await stage.store.listen(listener)
    listener.wakes.clear()
    await other.cancel(task_id, WHY)
    await listener.heard(cancel=True)
    assert (await stage.take_one(await stage.worker())).cancel_requested


async def test_retry_forgets_the_request(stage: Stage) -> None:
    worker = await stage.worker()
    task_id = await stage.put_one(**WATCH)
    await stage.store.cancel(task_id, WHY)
    await stage.store.settle(worker, [done(await stage.take_one(worker), None, "canceled")])
    assert await stage.store.retry(task_id, json({"what": "retry"}))
    assert not (await stage.take_one(worker)).cancel_requested


async def test_a_lease_tells_the_time(stage: Stage) -> None:
    """The store's own: what is enqueued and leased one after the other is in that order on one clock."""
    worker = await stage.worker(lease_s=10 * LEASE_S)
    task_id = await stage.put_one()
    empty, full = [await stage.store.lease(worker, {queue: 5}, 5) for queue in ("none", "default")]
    shown = await stage.show(task_id)
    assert shown.started_at is not None
    for looked in (empty, full):
        assert 0 <= looked.at - shown.created_at.timestamp() < LEASE_S
    assert empty.at <= full.at
    later = await stage.store.lease(worker, {"default": 5, "other": 5}, 5)
    assert later.at >= full.at
