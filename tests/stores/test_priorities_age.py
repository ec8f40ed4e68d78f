"""A task that has been due for longer than the worker's aging comes first, whatever its priority."""

from everpoll.stores.contract import Limit
from stores.stage import Stage

AGING_S = 600.0


async def test_what_has_waited_for_too_long_goes_first(stage: Stage) -> None:
    worker = await stage.worker(aging_s=AGING_S)
    old = await stage.put(2, priority=-5)
    await stage.pass_time(AGING_S + 1)
    urgent = await stage.put(3, priority=9)
    taken = [lease.id for _ in range(5) for lease in await stage.take(worker, 1)]
    assert taken == [*old, *urgent]


async def test_the_oldest_of_the_aged_goes_first(stage: Stage) -> None:
    """Among them priorities do not count any more."""
    worker = await stage.worker(aging_s=AGING_S)
    oldest = await stage.put_one(priority=-9)
    await stage.pass_time(10)
    older = await stage.put_one(priority=9)
    await stage.pass_time(AGING_S + 1)
    fresh = await stage.put_one(priority=99)
    taken = [lease.id for _ in range(3) for lease in await stage.take(worker, 1)]
    assert taken == [oldest, older, fresh]


async def test_before_that_priorities_count(stage: Stage) -> None:
    worker = await stage.worker(aging_s=AGING_S)
    low = await stage.put_one(priority=-5)
    await stage.pass_time(AGING_S - 60)
    urgent = await stage.put_one(priority=9)
    assert [lease.id for _ in range(2) for lease in await stage.take(worker, 1)] == [urgent, low]


async def test_without_aging_priorities_count_for_ever(stage: Stage) -> None:
    worker = await stage.worker()
    low = await stage.put_one(priority=-5)
    await stage.pass_time(AGING_S * 100)
    urgent = await stage.put_one(priority=9)
    assert [lease.id for _ in range(2) for lease in await stage.take(worker, 1)] == [urgent, low]


async def test_a_look_with_room_takes_aged_and_others(stage: Stage) -> None:
    """Nothing that is due is left behind because something aged was found."""
    worker = await stage.worker(aging_s=AGING_S)
    old = await stage.put(2, priority=-5)
    await stage.pass_time(AGING_S + 1)
    urgent = await stage.put(3, priority=9)
    taken: list[int] = []
    while True:
        looked = await stage.store.lease(worker, {"default": 10}, 10)
        taken += [lease.id for lease in looked.leases]
        if not looked.leases:
            break
        assert not looked.is_all or len(taken) == 5
    assert taken == [*old, *urgent]


async def test_tasks_of_a_limit_age_as_others_do(stage: Stage) -> None:
    """Also behind others of their own key."""
    worker = await stage.worker(aging_s=AGING_S)
    old = await stage.put_one(priority=-5, limit=Limit("a", running=10))
    await stage.pass_time(AGING_S + 1)
    same_key = await stage.put_one(priority=9, limit=Limit("a", running=10))
    plain = await stage.put_one(priority=5)
    assert [lease.id for _ in range(3) for lease in await stage.take(worker, 1)] == [old, same_key, plain]


async def test_several_queues_age_together(stage: Stage) -> None:
    worker = await stage.worker(aging_s=AGING_S)
    old = await stage.put_one(queue="a", priority=-5)
    await stage.pass_time(AGING_S + 1)
    urgent = await stage.put(2, queue="b", priority=9)
    taken = [lease.id for _ in range(3) for lease in await stage.take(worker, 1, "a", "b")]
    assert taken == [old, *urgent]
