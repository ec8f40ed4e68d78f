"""What a worker cannot run waits for one that can, which asks by name, version and queue; other tasks are untouched."""

from typing import Any

from everpoll.stores.contract import Limit
from everpoll.stores.set_aside import set_aside_note
from stores.stage import HOUR_S, Stage, again

NOTE = set_aside_note("not registered", 1.0, 2.0)


async def set_aside(stage: Stage, worker: int, **fields: Any) -> int:
    """A task that a worker has leased and set aside."""
    task_id = await stage.put_one(**fields)
    lease = await stage.take_one(worker, str(fields.get("queue", "default")))
    settlement = again(lease, HOUR_S, refund=True, note=NOTE, set_aside=True)
    assert await stage.store.settle(worker, [settlement]) == set()
    return task_id


async def test_a_task_set_aside_is_due_again_when_it_is_released(stage: Stage) -> None:
    worker = await stage.worker()
    task_id = await set_aside(stage, worker)
    assert await stage.take(worker) == []
    assert await stage.store.release_set_aside({"job": 1}, ["default"], 10) == 1
    lease = await stage.take_one(worker)
    assert (lease.id, lease.attempt) == (task_id, 1)
    assert await stage.store.release_set_aside({"job": 1}, ["default"], 10) == 0


async def test_only_the_names_versions_and_queues_asked_for_are_released_oldest_first(stage: Stage) -> None:
    worker = await stage.worker(queues=("default", "mail"))
    first, second = [await set_aside(stage, worker) for _ in range(2)]
    await set_aside(stage, worker, name="other")
    newer = await set_aside(stage, worker, version=2)
    elsewhere = await set_aside(stage, worker, queue="mail")
    assert await stage.store.release_set_aside({"job": 1}, ["default"], 1) == 1
    assert (await stage.take_one(worker)).id == first
    assert await stage.store.release_set_aside({"job": 1}, ["default"], 10) == 1
    assert (await stage.take_one(worker)).id == second
    assert await stage.store.release_set_aside({"job": 2}, ["default", "mail"], 10) == 2
    assert {one.id for one in await stage.take(worker, 10, "default", "mail")} == {newer, elsewhere}
    assert await stage.store.release_set_aside({}, ["default"], 10) == 0


async def test_a_task_that_was_run_since_waits_for_its_own_time(stage: Stage) -> None:
    """A snooze or a retry after it was set aside is not cut short."""
    worker = await stage.worker()
    task_id = await set_aside(stage, worker)
    await stage.store.release_set_aside({"job": 1}, ["default"], 10)
    lease = await stage.take_one(worker)
    await stage.store.settle(worker, [again(lease, HOUR_S, note='{"what":"snooze"}')])
    assert await stage.store.release_set_aside({"job": 1}, ["default"], 10) == 0
    assert (await stage.show(task_id)).state == "queued"
    assert await stage.take(worker) == []


async def test_a_limited_task_that_is_released_keeps_to_its_limit(stage: Stage) -> None:
    worker = await stage.worker()
    for _ in range(2):
        await set_aside(stage, worker, limit=Limit("k", running=1))
    assert await stage.store.release_set_aside({"job": 1}, ["default"], 10) == 2
    assert len(await stage.take(worker)) == 1
