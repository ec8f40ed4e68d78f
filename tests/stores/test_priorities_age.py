"""A task that has been due for longer than the worker's aging comes first, whatever its priority."""

import asyncio
from typing import Any

import pytest

from everpoll.stores.contract import Limit, NewTask
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


def one_each(keys: int, **fields: Any) -> list[NewTask]:
    """A limited task for each of so many keys."""
    return [NewTask(name="job", limit=Limit(f"h{key:04}", running=1), **fields) for key in range(keys)]


@pytest.mark.parametrize("keys", [70, 600])
@pytest.mark.parametrize("key", ["a", "low"])
async def test_an_aged_task_goes_before_many_keys_of_higher_priority(stage: Stage, keys: int, key: str) -> None:
    """Also before more keys than one look locks (64) or visits (500); wherever its own key is among them."""
    worker = await stage.worker(aging_s=AGING_S)
    old = await stage.put_one(priority=-10, limit=Limit(key, running=1))
    await stage.pass_time(AGING_S + 1)
    await stage.store.enqueue(one_each(keys, priority=10))
    taken = [lease.id for _ in range(3) for lease in await stage.take(worker, 1)]
    assert taken[0] == old
    assert len(set(taken)) == 3


@pytest.mark.parametrize("keys", [70, 600])
async def test_of_aged_tasks_with_limits_the_oldest_goes_first(stage: Stage, keys: int) -> None:
    """An overload: everything that waits is aged, and most of it has a higher priority."""
    worker = await stage.worker(aging_s=AGING_S)
    old = await stage.put_one(priority=-10, limit=Limit("z", running=1))
    await stage.pass_time(10)
    urgent = {one.id for one in await stage.store.enqueue(one_each(keys, priority=10))}
    await stage.pass_time(10)
    later = await stage.put_one(priority=-10, limit=Limit("b", running=1))
    await stage.pass_time(AGING_S + 1)
    [first] = await stage.take(worker, 1)
    taken: list[int] = []
    while leases := await stage.take(worker, 20):
        taken += [lease.id for lease in leases]
        assert len(taken) > keys or later not in taken
    assert first.id == old
    assert sorted(taken) == [*sorted(urgent), later]


async def test_an_aged_task_without_a_limit_goes_before_others_with_limits(stage: Stage) -> None:
    """Of those without a limit all have one priority."""
    worker = await stage.worker(aging_s=AGING_S)
    old = await stage.put_one(priority=-5)
    await stage.pass_time(AGING_S + 1)
    await stage.store.enqueue(one_each(10, priority=9))
    assert [lease.id for lease in await stage.take(worker, 1)] == [old]


async def test_an_aged_task_behind_a_full_key_is_found(stage: Stage) -> None:
    """Older ones wait for their limit; they do not keep it waiting."""
    worker = await stage.worker(aging_s=AGING_S)
    # A look for aged tasks that finds none is followed by the next one a second later: this worker asks for none.
    await stage.running(await stage.worker(), limit=Limit("full", running=1))
    await stage.put(600, priority=-10, limit=Limit("full", running=1))
    await stage.pass_time(10)
    old = await stage.put_one(priority=-10, limit=Limit("open", running=1))
    await stage.pass_time(AGING_S + 1)
    await stage.store.enqueue(one_each(600, priority=10))
    assert [lease.id for lease in await stage.take(worker, 1)] == [old]


async def taken_before(stage: Stage, worker: int, fresh: set[int], most: int) -> set[int]:
    """What looks with so many slots take until one of these is taken, that look included."""
    taken: set[int] = set()
    while not taken & fresh:
        taken |= {lease.id for lease in await stage.take(worker, most)}
    return taken


async def test_no_task_takes_the_slot_of_an_aged_one_whose_look_was_cut(stage: Stage) -> None:
    """A look opens as many keys as it has slots: of these, two are one key, at two priorities, with room for one."""
    worker = await stage.worker(aging_s=AGING_S)
    one = Limit("one", running=1)
    first = await stage.put_one(priority=5, limit=one)
    await stage.put_one(priority=0, limit=one)
    others = [await stage.put_one(priority=0, limit=Limit(key, running=1)) for key in ("x", "y")]
    await stage.pass_time(AGING_S + 1)
    fresh = set(await stage.put(2, priority=9))
    assert {first, *others} <= await taken_before(stage, worker, fresh, 3)


async def test_no_task_takes_the_slot_of_an_aged_one_of_a_key_with_room(stage: Stage) -> None:
    """A look takes an even share of each key; here one key has too few, and the other one has more."""
    worker = await stage.worker(aging_s=AGING_S)
    few = await stage.put_one(priority=-5, limit=Limit("few", running=9))
    many = await stage.put(4, priority=-5, limit=Limit("many", running=9))
    await stage.pass_time(AGING_S + 1)
    fresh = set(await stage.put(2, priority=9))
    assert {few, *many} <= await taken_before(stage, worker, fresh, 5)


async def test_an_aged_task_behind_more_keys_than_a_look_visits_is_found(stage: Stage) -> None:
    """Each look for aged tasks goes on behind the keys that the last one saw."""
    worker = await stage.worker(aging_s=AGING_S)
    old = await stage.put_one(priority=-10, limit=Limit("z", running=1))
    await stage.pass_time(AGING_S + 1)
    await stage.store.enqueue(one_each(600, priority=-10))
    await stage.store.enqueue([NewTask(name="job", priority=10, limit=Limit("u", running=10_000))] * 2_000)
    taken: list[int] = []
    while old not in taken:
        assert len(taken) < 2_000, "the aged task came last"
        taken += [lease.id for lease in await stage.take(worker, 1)]
        await asyncio.sleep(0.01)


async def test_keys_of_one_priority_take_turns_however_old_their_tasks_are(stage: Stage) -> None:
    """Aging overcomes priorities. Where there is one only, an old backlog of one key does not come first."""
    worker = await stage.worker(aging_s=AGING_S)
    flood = await stage.put(6, limit=Limit("flood", running=10))
    await stage.pass_time(AGING_S + 1)
    other = await stage.put(2, limit=Limit("other", running=10))
    taken = [lease.id for _ in range(4) for lease in await stage.take(worker, 1)]
    assert taken == [flood[0], other[0], flood[1], other[1]]


async def test_tasks_with_a_limit_age_beside_others_without(stage: Stage) -> None:
    """The only limited task has one priority, and those without a limit another one."""
    worker = await stage.worker(aging_s=AGING_S)
    old = await stage.put_one(priority=-5, limit=Limit("a", running=10))
    await stage.pass_time(AGING_S + 1)
    await stage.put(60, priority=9)
    assert [lease.id for lease in await stage.take(worker, 1)] == [old]
