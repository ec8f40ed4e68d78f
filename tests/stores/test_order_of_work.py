"""Higher priority first, then the earlier due time, then the earlier enqueued; never more than asked for."""

import pytest

from everpoll.stores.contract import LEASE_LIMIT, NewTask
from stores.stage import HOUR_S, Stage, again


async def test_the_order_is_priority_then_due_time_then_age(stage: Stage) -> None:
    worker = await stage.worker()
    later = await stage.put_one(delay_s=20, priority=5)
    sooner = await stage.put_one(delay_s=10, priority=5)
    low = await stage.put_one(priority=-7)
    usual, usual_too = await stage.put(2)
    urgent = await stage.put_one(delay_s=25, priority=2_147_483_647)
    last = await stage.put_one(priority=-2_147_483_647)
    await stage.pass_time(30)
    fresh = await stage.put_one(priority=5)
    expected = [urgent, sooner, later, fresh, usual, usual_too, low, last]
    assert [one.id for one in await stage.take(worker)] == expected


async def test_one_at_a_time_gives_the_same_order(stage: Stage) -> None:
    """However much is known about what was leased before."""
    worker = await stage.worker()
    ids = {priority: await stage.put(3, priority=priority) for priority in (0, 3, -3, 9)}
    expected = ids[9] + ids[3] + ids[0] + ids[-3]
    assert [one.id for _ in expected for one in await stage.take(worker, 1)] == expected


async def test_what_comes_in_with_a_higher_priority_is_next(stage: Stage) -> None:
    worker = await stage.worker()
    first, second = await stage.put(2, priority=1)
    assert [one.id for one in await stage.take(worker, 1)] == [first]
    urgent = await stage.put_one(priority=2)
    between = await stage.put_one(priority=1)
    assert [one.id for one in await stage.take(worker)] == [urgent, second, between]


async def test_tasks_of_one_call_keep_their_order(stage: Stage) -> None:
    worker = await stage.worker()
    answers = await stage.store.enqueue([NewTask(name=f"n{number}") for number in range(300)])
    leases = await stage.take(worker, 500)
    assert [one.id for one in leases] == [one.id for one in answers]
    assert [one.name for one in leases] == [f"n{number}" for number in range(300)]


async def test_what_is_not_due_is_not_leased(stage: Stage) -> None:
    """Whatever its priority; and it does not hide what is due."""
    worker = await stage.worker()
    future = await stage.put(50, delay_s=HOUR_S, priority=9)
    due = await stage.put_one()
    assert [one.id for one in await stage.take(worker)] == [due]
    await stage.pass_time(HOUR_S - 60)
    await stage.beat(worker)
    assert await stage.take(worker) == []
    await stage.pass_time(61)
    assert [one.id for one in await stage.take(worker)] == future


async def test_what_falls_due_takes_no_other_task_along(stage: Stage) -> None:
    """Of the same queue and of others, each in its own time."""
    worker = await stage.worker(lease_s=HOUR_S)
    soon = [await stage.put_one(delay_s=100, queue=queue) for queue in ("a", "b")]
    later = [await stage.put_one(delay_s=150, queue=queue, priority=1) for queue in ("a", "b")]
    await stage.pass_time(110)
    assert [one.id for one in await stage.take(worker, 9, "a", "b")] == soon
    assert await stage.take(worker, 9, "a", "b") == []
    await stage.pass_time(50)
    assert [one.id for one in await stage.take(worker, 9, "a", "b")] == later


async def test_a_negative_delay_does_not_jump_the_queue(stage: Stage) -> None:
    worker = await stage.worker()
    first = await stage.put_one()
    second = await stage.put_one(delay_s=-HOUR_S)
    assert [one.id for one in await stage.take(worker)] == [first, second]


async def test_a_retry_waits_and_then_queues_behind_older_dues(stage: Stage) -> None:
    worker = await stage.worker()
    lease = await stage.running(worker)
    await stage.store.settle(worker, [again(lease, 30.0)])
    meanwhile = await stage.put_one(delay_s=20)
    assert await stage.take(worker) == []
    await stage.pass_time(31)
    fresh = await stage.put_one()
    assert [one.id for one in await stage.take(worker)] == [meanwhile, lease.id, fresh]


async def test_what_is_handed_back_keeps_its_place(stage: Stage) -> None:
    """It was not late by its own fault."""
    worker = await stage.worker()
    ids = await stage.put(4)
    await stage.store.settle(worker, [again(one, None, refund=True) for one in await stage.take(worker, 2)])
    assert [one.id for one in await stage.take(worker)] == ids


async def test_what_is_rescued_keeps_its_place(stage: Stage) -> None:
    worker = await stage.worker()
    ids = await stage.put(4)
    await stage.take(worker, 2)
    await stage.bury(worker)
    assert [one.id for one in await stage.take(await stage.worker())] == ids


async def test_several_queues_are_one_line(stage: Stage) -> None:
    worker = await stage.worker(queues=("a", "b"))
    first = await stage.put_one(queue="a")
    second = await stage.put_one(queue="b")
    third = await stage.put_one(queue="a")
    urgent = await stage.put_one(queue="b", priority=1)
    await stage.put_one(queue="c", priority=9)
    assert [one.id for one in await stage.take(worker, 3, "a", "b")] == [urgent, first, second]
    assert [(one.id, one.queue) for one in await stage.take(worker, 3, "a", "b")] == [(third, "a")]


async def test_each_queue_gives_at_most_its_room(stage: Stage) -> None:
    worker = await stage.worker(queues=("a", "b"))
    a, b = await stage.put(5, queue="a", priority=1), await stage.put(5, queue="b")
    await stage.put(5, queue="closed", priority=9)
    rooms = {"a": 2, "b": 4, "closed": 0, "empty": 7}
    assert [one.id for one in (await stage.store.lease(worker, rooms, 100)).leases] == a[:2] + b[:4]
    assert [one.id for one in (await stage.store.lease(worker, {"a": 9, "b": 9}, 2)).leases] == a[2:4]
    assert (await stage.store.lease(worker, {}, 5)).leases == []


async def test_never_more_than_most(stage: Stage) -> None:
    worker = await stage.worker()
    ids = await stage.put(7)
    rooms = {"default": 100}
    assert [one.id for one in (await stage.store.lease(worker, rooms, 3)).leases] == ids[:3]
    assert (await stage.store.lease(worker, rooms, 0)).leases == []
    assert [one.id for one in (await stage.store.lease(worker, rooms, 100)).leases] == ids[3:]


async def test_never_more_than_the_lease_limit(stage: Stage) -> None:
    worker = await stage.worker()
    ids = await stage.put(LEASE_LIMIT + 30)
    looks = [await stage.take(worker, LEASE_LIMIT * 10) for _ in range(2)]
    assert [len(leases) for leases in looks] == [LEASE_LIMIT, 30]
    assert [one.id for leases in looks for one in leases] == ids


async def test_the_next_due_time_is_told(stage: Stage) -> None:
    """So that a worker sleeps until then, and does not tick."""
    worker = await stage.worker()
    await stage.put(delay_s=2 * HOUR_S)
    await stage.put(delay_s=HOUR_S)
    await stage.put(delay_s=60, queue="other")
    await stage.put_one()
    looked = await stage.store.lease(worker, {"default": 5}, 5)
    assert len(looked.leases) == 1
    assert looked.next_due_s == pytest.approx(HOUR_S, abs=30)
    await stage.pass_time(1000)
    await stage.beat(worker)
    looked = await stage.store.lease(worker, {"default": 5}, 5)
    assert looked.leases == []
    assert looked.next_due_s == pytest.approx(HOUR_S - 1000, abs=30)
    await stage.put(delay_s=3 * HOUR_S, queue="slow")
    for queues in (["default", "slow", "quiet"], ["quiet", "slow", "default"]):
        looked = await stage.store.lease(worker, dict.fromkeys(queues, 5), 5)
        assert looked.next_due_s == pytest.approx(HOUR_S - 1000, abs=30)


async def test_nothing_waits_and_nothing_is_told(stage: Stage) -> None:
    worker = await stage.worker()
    assert (await stage.store.lease(worker, {"default": 5}, 5)).next_due_s is None
    await stage.put(delay_s=60, queue="other")
    await stage.put_one()
    assert (await stage.store.lease(worker, {"default": 5}, 5)).next_due_s is None


async def test_a_full_look_tells_nothing(stage: Stage) -> None:
    """There may be more at once."""
    worker = await stage.worker()
    await stage.put(delay_s=60)
    await stage.put(2)
    looked = await stage.store.lease(worker, {"default": 2}, 2)
    assert (len(looked.leases), looked.next_due_s) == (2, None)


async def test_a_canceled_task_is_not_waited_for(stage: Stage) -> None:
    worker = await stage.worker()
    task_id = await stage.put_one(delay_s=60)
    await stage.store.cancel(task_id, '{"what":"cancel"}')
    assert (await stage.store.lease(worker, {"default": 5}, 5)).next_due_s is None


@pytest.mark.parametrize("room", [0, 1])
async def test_a_queue_without_room_is_not_looked_at_again_for_what_is_due(stage: Stage, room: int) -> None:
    """A slot that becomes free brings the next look: a due task that has no room would bring one after the other."""
    worker = await stage.worker()
    await stage.put(2, delay_s=60)
    await stage.pass_time(61)
    looked = await stage.store.lease(worker, {"default": room}, 5)
    assert (len(looked.leases), looked.next_due_s) == (room, None)
    await stage.put(delay_s=HOUR_S)
    looked = await stage.store.lease(worker, {"default": 0}, 5)
    assert looked.next_due_s == pytest.approx(HOUR_S, abs=30)


async def test_a_task_that_waited_was_canceled_and_is_back_does_not_wait(stage: Stage) -> None:
    """It is due, and only has no room."""
    worker = await stage.worker()
    task_id = await stage.put_one(delay_s=60)
    await stage.store.cancel(task_id, '{"what":"cancel"}')
    assert await stage.store.retry(task_id, '{"what":"retry"}')
    looked = await stage.store.lease(worker, {"default": 0}, 5)
    assert (looked.leases, looked.next_due_s) == ([], None)


async def test_many_waiting_tasks_fall_due_at_once(stage: Stage) -> None:
    """More than one look can take: none is forgotten on the way from waiting to ready."""
    worker = await stage.worker()
    ids = await stage.put(2 * LEASE_LIMIT + 100, delay_s=30)
    await stage.pass_time(31)
    found = [one.id for _ in range(4) for one in await stage.take(worker, LEASE_LIMIT)]
    assert found == ids


async def test_an_answer_says_whether_there_was_more(stage: Stage) -> None:
    """A worker that is told that this was all rests until something else falls due, or wakes it."""
    await stage.store.enqueue([NewTask(name="job") for _ in range(5)])
    await stage.store.enqueue([NewTask(name="job", delay_s=3600.0)])
    worker = await stage.worker()
    some = await stage.store.lease(worker, {"default": 3}, 3)
    assert (len(some.leases), some.is_all) == (3, False)
    rest = await stage.store.lease(worker, {"default": 3}, 3)
    assert (len(rest.leases), rest.is_all) == (2, True)
    assert rest.next_due_s is not None
    assert 3500 < rest.next_due_s <= 3600
    none = await stage.store.lease(worker, {"default": 3}, 3)
    assert (none.leases, none.is_all) == ([], True)
