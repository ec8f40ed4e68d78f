"""A queued task ends at once; a running one is asked to, and its worker hears of it; an ended one is left alone."""

import asyncio

import pytest

from everpoll.stores.contract import EndState
from stores.stage import HOUR_S, Stage, again, done, json, whats

WHY = json({"what": "cancel", "why": "no longer needed"})


@pytest.mark.parametrize("delay_s", [0.0, HOUR_S])
async def test_a_queued_task_ends_at_once(stage: Stage, delay_s: float) -> None:
    worker = await stage.worker()
    task_id = await stage.put_one(delay_s=delay_s)
    assert await stage.store.cancel(task_id, WHY) == "canceled"
    shown = await stage.show(task_id)
    assert (shown.state, shown.attempt, shown.started_at) == ("canceled", 0, None)
    assert shown.ended_at is not None
    assert (shown.trail[-1]["what"], shown.trail[-1]["why"]) == ("cancel", "no longer needed")
    assert {"at", "by"} <= set(shown.trail[-1])
    await stage.pass_time(2 * HOUR_S)
    assert await stage.take(worker) == []


async def test_a_running_task_is_asked_to(stage: Stage) -> None:
    worker = await stage.worker()
    lease = await stage.running(worker)
    assert await stage.store.cancel(lease.id, WHY) == "running"
    shown = await stage.show(lease.id)
    assert (shown.state, shown.cancel_requested, whats(shown)) == ("running", True, ["cancel"])
    assert (await stage.beat(worker, [lease.id])).canceled == (lease.id,)
    note = json({"what": "canceled"})
    assert await stage.store.settle(worker, [done(lease, None, "canceled", note)]) == set()
    shown = await stage.show(lease.id)
    assert (shown.state, whats(shown)) == ("canceled", ["cancel", "canceled"])


async def test_asking_twice_is_the_same(stage: Stage) -> None:
    worker = await stage.worker()
    lease = await stage.running(worker)
    assert await stage.store.cancel(lease.id, WHY) == "running"
    assert await stage.store.cancel(lease.id, WHY) == "running"
    assert await stage.store.settle(worker, [again(lease)]) == set()
    assert await stage.store.cancel(lease.id, WHY) == "canceled"


async def test_a_task_that_waits_to_be_retried_ends_at_once(stage: Stage) -> None:
    worker = await stage.worker("anna")
    lease = await stage.running(worker)
    await stage.store.settle(worker, [again(lease, HOUR_S, note=json({"what": "retry", "error": {}}))])
    assert await stage.store.cancel(lease.id, WHY) == "canceled"
    shown = await stage.show(lease.id)
    assert (shown.attempt, whats(shown), shown.worker) == (1, ["retry", "cancel"], "anna")


@pytest.mark.parametrize("state", ["done", "failed", "canceled"])
async def test_an_ended_task_is_left_alone(stage: Stage, state: EndState) -> None:
    task_id = await stage.ended(await stage.worker(), state)
    before = await stage.show(task_id)
    assert await stage.store.cancel(task_id, WHY) == state
    assert await stage.show(task_id) == before


async def test_an_unknown_task_is_not_known(stage: Stage) -> None:
    assert await stage.store.cancel(4711, WHY) is None
    assert await stage.store.info([4711]) == {}


async def test_a_cancel_after_a_rescue_ends_at_once(stage: Stage) -> None:
    """No worker holds it any more, and the zombie cannot undo it."""
    zombie = await stage.worker()
    lease = await stage.running(zombie)
    await stage.bury(zombie)
    assert await stage.store.cancel(lease.id, WHY) == "canceled"
    assert await stage.store.settle(zombie, [done(lease, 1)]) == {lease.id}
    assert (await stage.show(lease.id)).state == "canceled"


async def test_many_are_canceled_in_one_go_and_each_has_its_own_answer(stage: Stage) -> None:
    worker = await stage.worker()
    running = (await stage.running(worker)).id
    ended = await stage.ended(worker, "done")
    queued, later = await stage.put_one(), await stage.put_one(delay_s=HOUR_S)
    watch = await stage.put_one(cancels_itself=True, delay_s=HOUR_S)
    asked = [watch, queued, 987_654_321, ended, later, running, queued]
    states = await stage.store.cancel_many([(task_id, WHY) for task_id in asked])
    assert states == ["queued", "canceled", None, "done", "canceled", "running", "canceled"]
    assert [(await stage.show(task_id)).cancel_requested for task_id in (running, ended, watch)] == [True, False, True]
    assert whats(await stage.show(watch)) == ["cancel"]
    assert (await stage.take_one(worker)).id == watch, "it is due at once"
    assert await stage.store.cancel_many([]) == []


async def test_many_cancels_and_settlements_of_the_same_tasks_never_fail_each_other(stage: Stage) -> None:
    """Whichever locks which rows first: no call fails, and every task is canceled or done."""
    worker = await stage.worker(slots=500)
    ids = await stage.put(200)
    for _ in range(3):
        leases = await stage.take(worker, 200)
        back = [again(lease, 0.0) for lease in leases]
        asked = [(task_id, WHY) for task_id in reversed(ids)]
        _, lost = await asyncio.gather(stage.store.cancel_many(asked), stage.store.settle(worker, back))
        assert lost == set()
    assert {(await stage.show(task_id)).state for task_id in ids} == {"canceled"}
