"""An ended task may be put back under its own id, with fresh attempts, and is live then like any other."""

import pytest

from everpoll.stores.contract import RESCUE_LIMIT, EndState, TaskFilter
from stores.stage import HOUR_S, Stage, again, done, json, whats

WHY = json({"what": "retry", "why": "fixed the cause"})


@pytest.mark.parametrize("state", ["done", "failed", "canceled"])
async def test_it_is_due_at_once_with_fresh_attempts(stage: Stage, state: EndState) -> None:
    worker = await stage.worker()
    lease = await stage.running(worker, name="send", args="[1]", key="k", queue="mail", priority=3, version=2)
    await stage.store.settle(worker, [again(lease, note=json({"what": "retry", "error": {}}), memory="7")])
    lease = await stage.take_one(worker, "mail")
    await stage.store.progress(worker, lease, "0.5")
    await stage.store.settle(worker, [done(lease, "old", state)])
    assert await stage.store.retry(lease.id, WHY)
    shown = await stage.show(lease.id)
    assert (shown.state, shown.attempt, shown.rescues, shown.ended_at) == ("queued", 0, 0, None)
    assert (shown.result, shown.progress, shown.incarnation) == (None, None, None)
    assert (shown.name, shown.args, shown.key, shown.queue, shown.priority) == ("send", [1], "k", "mail", 3)
    assert shown.memory == 7
    assert whats(shown) == ["retry", "retry"]
    assert shown.trail[-1]["why"] == "fixed the cause"
    assert await stage.store.ended([lease.id]) == {}
    [fresh] = await stage.take(worker, 5, "mail")
    assert (fresh.id, fresh.attempt, fresh.version, fresh.memory) == (lease.id, 1, 2, "7")
    assert await stage.store.settle(worker, [done(fresh, "new")]) == set()
    assert (await stage.show(lease.id)).result == "new"


async def test_it_is_in_one_place_only(stage: Stage) -> None:
    worker = await stage.worker()
    task_id = await stage.ended(worker)
    for _ in range(3):
        assert await stage.store.retry(task_id, WHY)
        assert [one.id for one in (await stage.store.tasks(TaskFilter())).tasks] == [task_id]
        await stage.store.settle(worker, [done(await stage.take_one(worker))])
        assert [one.id for one in (await stage.store.tasks(TaskFilter())).tasks] == [task_id]


async def test_it_queues_behind_what_is_due_already(stage: Stage) -> None:
    worker = await stage.worker()
    ended = await stage.ended(worker)
    waiting = await stage.put_one()
    await stage.store.retry(ended, WHY)
    assert [one.id for one in await stage.take(worker)] == [waiting, ended]


async def test_a_task_canceled_while_it_waited_is_due_at_once(stage: Stage) -> None:
    """Its old due time does not matter any more, and no stale cancel follows it."""
    worker = await stage.worker()
    task_id = await stage.put_one(delay_s=HOUR_S)
    await stage.store.cancel(task_id, json({"what": "cancel"}))
    assert await stage.store.retry(task_id, WHY)
    assert not (await stage.show(task_id)).cancel_requested
    lease = await stage.take_one(worker)
    assert (lease.id, lease.cancel_requested) == (task_id, False)
    assert (await stage.beat(worker, [task_id])).canceled == ()
    assert (await stage.store.lease(worker, {"default": 1}, 1)).next_due_s is None


async def test_poison_may_be_retried_and_starts_over(stage: Stage) -> None:
    task_id = await stage.put_one()
    for _ in range(RESCUE_LIMIT):
        victim = await stage.worker()
        await stage.take_one(victim)
        await stage.bury(victim)
    assert (await stage.show(task_id)).state == "failed"
    assert await stage.store.retry(task_id, WHY)
    victim = await stage.worker()
    lease = await stage.take_one(victim)
    assert (lease.attempt, lease.rescues, lease.sequence) == (1, 0, RESCUE_LIMIT + 1)
    await stage.bury(victim)
    assert (await stage.show(task_id)).state == "queued"


async def test_only_what_has_ended_is_retried(stage: Stage) -> None:
    worker = await stage.worker()
    running = await stage.running(worker)
    queued = await stage.put_one()
    before = await stage.store.info([running.id, queued])
    assert not await stage.store.retry(queued, WHY)
    assert not await stage.store.retry(running.id, WHY)
    assert not await stage.store.retry(4711, WHY)
    assert await stage.store.info([running.id, queued]) == before


async def test_only_once(stage: Stage) -> None:
    task_id = await stage.ended(await stage.worker())
    assert [await stage.store.retry(task_id, WHY) for _ in range(3)] == [True, False, False]
