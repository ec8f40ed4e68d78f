"""A task is in the hands of at most one incarnation of one worker, and the lease says everything about it."""

import pytest

from everpoll.errors import LeaseLost
from stores.stage import HOUR_S, Stage, again, done, json


async def test_a_leased_task_is_not_leased_again(stage: Stage) -> None:
    first, second = await stage.worker(), await stage.worker()
    [task_id] = await stage.put()
    assert [one.id for one in await stage.take(first)] == [task_id]
    assert await stage.take(second) == []
    assert await stage.take(first) == []
    assert (await stage.show(task_id)).incarnation == first


async def test_two_workers_share_what_is_due(stage: Stage) -> None:
    first, second = await stage.worker(), await stage.worker()
    ids = await stage.put(5)
    mine, theirs = await stage.take(first, 3), await stage.take(second, 3)
    assert [one.id for one in mine + theirs] == ids


async def test_the_lease_carries_the_task(stage: Stage) -> None:
    """A handler needs nothing that is not in its hands."""
    worker = await stage.worker()
    lease = await stage.running(
        worker, name="send", args=json({"to": ["ä", None]}), memory=json([1]), key="k", queue="mail", version=3
    )
    assert (lease.name, lease.queue, lease.key, lease.version) == ("send", "mail", "k", 3)
    assert (lease.args, lease.memory) == (json({"to": ["ä", None]}), json([1]))
    assert (lease.sequence, lease.attempt, lease.rescues, lease.cancel_requested) == (1, 1, 0, False)


async def test_the_lease_of_a_bare_task_carries_the_defaults(stage: Stage) -> None:
    lease = await stage.running(await stage.worker())
    assert (lease.name, lease.queue, lease.args, lease.memory, lease.key) == ("job", "default", "null", None, None)


async def test_the_sequence_grows_with_every_lease(stage: Stage) -> None:
    """Also where the attempt does not: it is the fence."""
    worker = await stage.worker()
    lease = await stage.running(worker)
    for sequence in (2, 3, 4):
        await stage.store.settle(worker, [again(lease, None, refund=True)])
        lease = await stage.take_one(worker)
        assert (lease.sequence, lease.attempt) == (sequence, 1)


async def test_the_attempt_is_counted_by_the_lease(stage: Stage) -> None:
    worker = await stage.worker()
    lease = await stage.running(worker)
    assert (await stage.show(lease.id)).attempt == 1
    await stage.store.settle(worker, [again(lease)])
    assert (await stage.show(lease.id)).attempt == 1
    assert (await stage.take_one(worker)).attempt == 2


async def test_a_running_task_shows_who_holds_it(stage: Stage) -> None:
    worker = await stage.worker("anna")
    lease = await stage.running(worker, timeout_s=0.25)
    shown = await stage.show(lease.id)
    assert (shown.state, shown.worker, shown.incarnation) == ("running", "anna", worker)
    assert shown.started_at is not None
    assert shown.deadline_at is not None
    assert (shown.deadline_at - shown.started_at).total_seconds() == pytest.approx(0.25, abs=0.01)
    assert shown.ended_at is None


async def test_a_task_without_timeout_has_no_deadline(stage: Stage) -> None:
    lease = await stage.running(await stage.worker())
    assert (await stage.show(lease.id)).deadline_at is None


async def test_an_ended_task_is_not_leased(stage: Stage) -> None:
    worker = await stage.worker()
    lease = await stage.running(worker)
    await stage.store.settle(worker, [done(lease)])
    assert await stage.take(worker) == []


async def test_only_a_worker_that_signed_on_may_lease(stage: Stage) -> None:
    await stage.put()
    with pytest.raises(LeaseLost):
        await stage.take(12345)


async def test_a_worker_that_signed_off_may_not_lease(stage: Stage) -> None:
    worker = await stage.worker()
    await stage.put()
    await stage.store.sign_off(worker)
    with pytest.raises(LeaseLost):
        await stage.take(worker)


async def test_a_worker_given_up_for_dead_may_not_lease_until_it_signs_on_anew(stage: Stage) -> None:
    """Whatever it leased would be taken from it again by the next rescue."""
    worker = await stage.worker()
    [task_id] = await stage.put()
    await stage.bury(worker)
    with pytest.raises(LeaseLost):
        await stage.take(worker)
    assert (await stage.show(task_id)).state == "queued"
    anew = await stage.worker()
    assert [one.id for one in await stage.take(anew)] == [task_id]


async def test_a_dead_worker_is_told_even_when_nothing_is_due(stage: Stage) -> None:
    """An idle zombie must sign on anew as well, or the first task that comes is not picked up."""
    worker = await stage.worker()
    await stage.put(delay_s=HOUR_S)
    await stage.bury(worker)
    with pytest.raises(LeaseLost):
        await stage.take(worker)
