"""Of the tasks that share a limit, no more run at a time and no more start in a stretch than it allows."""

import asyncio

import pytest

from everpoll.errors import BadInput
from everpoll.stores.contract import COUNT_LIMIT, Lease, Limit, NewEvent, NewTask
from stores.stage import HOUR_S, NOTE, Stage, again, card_of, done

TWO = Limit("mail/a", running=2)
RATE = Limit("call/a", starts=3, per_s=10.0)


def ids(leases: list[Lease]) -> list[int]:
    return [one.id for one in leases]


async def test_no_more_run_at_a_time_than_allowed(stage: Stage) -> None:
    """Over all workers; and each that ends makes room for one."""
    one, other = await stage.worker("one"), await stage.worker("other")
    tasks = await stage.put(5, limit=TWO)
    first = await stage.take(one)
    assert ids(first) == tasks[:2]
    assert [lease.limit_key for lease in first] == ["mail/a", "mail/a"]
    assert await stage.take(one) == []
    assert await stage.take(other) == []
    assert await stage.store.settle(one, [done(first[0])]) == set()
    assert ids(await stage.take(other)) == [tasks[2]]
    assert await stage.take(one) == []


@pytest.mark.parametrize("way", ["done", "failed", "retry", "handed back", "canceled", "rescued", "overdue"])
async def test_a_slot_is_free_however_its_task_let_go(stage: Stage, way: str) -> None:
    """Once, and not twice: the slot is the lease itself."""
    worker, other = await stage.worker(), await stage.worker("other")
    first, second, third = await stage.put(3, limit=Limit("k", running=1))
    lease = await stage.take_one(worker)
    assert lease.id == first
    match way:
        case "done" | "failed":
            await stage.store.settle(worker, [done(lease, state=way)])
        case "retry":
            await stage.store.settle(worker, [again(lease, HOUR_S)])
        case "handed back":
            await stage.store.settle(worker, [again(lease, None, refund=True)])
        case "canceled":
            await stage.store.cancel(first, NOTE)
            await stage.store.settle(worker, [again(lease)])
        case "rescued":
            await stage.declare_dead(other, worker)
        case "overdue":
            await stage.rescue(worker, overdue=[(lease.id, lease.sequence)])
    expected = first if way in {"handed back", "rescued", "overdue"} else second
    assert ids(await stage.take(other)) == [expected]
    # What the first worker says later changes nothing.
    assert await stage.store.settle(worker, [done(lease)]) == {first}
    assert await stage.take(other) == []
    assert (await stage.show(third)).state == "queued"


async def test_a_dead_worker_keeps_its_slots_until_it_is_declared_dead(stage: Stage) -> None:
    silent, other = await stage.worker("silent"), await stage.worker("other")
    tasks = await stage.put(4, limit=TWO)
    await stage.take(silent)
    await stage.pass_time(HOUR_S)
    assert await stage.take(other) == []
    assert await stage.declare_dead(other, silent) == 2
    assert ids(await stage.take(other)) == tasks[:2]
    assert await stage.take(other) == []


async def test_a_full_key_holds_up_no_other_task(stage: Stage) -> None:
    """Neither of another key nor without a limit, though they were enqueued later."""
    worker = await stage.worker()
    stuck = await stage.put(20, limit=Limit("a", running=1))
    others = await stage.put(2, limit=Limit("b", running=5))
    plain = await stage.put(2)
    assert sorted(ids(await stage.take(worker))) == sorted([stuck[0], *others, *plain])
    assert await stage.take(worker) == []
    plain = await stage.put(3)
    assert ids(await stage.take(worker)) == plain


async def test_no_more_start_in_a_stretch_than_allowed(stage: Stage) -> None:
    """However soon they end, and nothing is saved up; the look tells when the next one may start."""
    worker = await stage.worker()
    await stage.put(10, limit=RATE)
    leases = await stage.take(worker)
    assert len(leases) == 3
    await stage.store.settle(worker, [done(one) for one in leases])
    await stage.pass_time(9.5)
    looked = await stage.store.lease(worker, {"default": 10}, 10)
    assert looked.leases == []
    assert looked.next_due_s is not None
    assert 0.0 < looked.next_due_s < 1.0
    await stage.pass_time(1.0)
    assert len(await stage.take(worker)) == 3
    assert await stage.take(worker) == []
    await stage.pass_time(HOUR_S)
    assert len(await stage.take(worker)) == 3


async def test_every_stretch_counts_not_only_those_that_begin_with_a_start(stage: Stage) -> None:
    worker = await stage.worker()
    await stage.put(10, limit=RATE)
    assert len(await stage.take(worker, 1)) == 1
    await stage.pass_time(8)
    assert len(await stage.take(worker)) == 2
    await stage.pass_time(3)  # the first one counts no more, the other two do
    assert len(await stage.take(worker)) == 1
    await stage.pass_time(5)
    assert await stage.take(worker) == []
    await stage.pass_time(3)
    assert len(await stage.take(worker)) == 2


async def test_a_start_counts_also_if_it_was_given_back(stage: Stage) -> None:
    worker = await stage.worker()
    await stage.put(1, limit=Limit("k", starts=1, per_s=10.0))
    lease = await stage.take_one(worker)
    await stage.store.settle(worker, [again(lease, None, refund=True)])
    assert await stage.take(worker) == []
    await stage.pass_time(11)
    assert ids(await stage.take(worker)) == [lease.id]


async def test_both_limits_hold_together(stage: Stage) -> None:
    worker = await stage.worker()
    await stage.put(10, limit=Limit("k", running=2, starts=3, per_s=10.0))
    leases = await stage.take(worker)
    assert len(leases) == 2
    await stage.store.settle(worker, [done(one) for one in leases])
    assert len(await stage.take(worker)) == 1
    assert await stage.take(worker) == []
    await stage.pass_time(11)
    assert len(await stage.take(worker)) == 1


async def test_keys_take_turns(stage: Stage) -> None:
    """A key with a long line does not go first because its tasks are older."""
    worker = await stage.worker()
    for key in "abc":
        await stage.put(4, name=key, limit=Limit(key, running=10))
    order = [(await stage.take(worker, 1))[0].name for _ in range(9)]
    assert [sorted(order[start : start + 3]) for start in (0, 3, 6)] == [["a", "b", "c"]] * 3


async def test_keys_share_a_look_evenly(stage: Stage) -> None:
    worker = await stage.worker()
    for key in "abc":
        await stage.put(10, name=key, limit=Limit(key, running=10))
    taken = [one.name for one in await stage.take(worker, 6)]
    taken += [one.name for one in await stage.take(worker, 6)]
    assert {key: taken.count(key) for key in "abc"} == {"a": 4, "b": 4, "c": 4}


async def test_priority_comes_before_turns(stage: Stage) -> None:
    """Among keys, within a key, and beside tasks without limits."""
    worker = await stage.worker()
    await stage.put(2, name="low", limit=Limit("a", running=1))
    await stage.put(1, name="plain", priority=3)
    await stage.put(1, name="b", priority=5, limit=Limit("b", running=1))
    await stage.put(1, name="high", priority=9, limit=Limit("a", running=1))
    await stage.put(1, name="last", priority=-1)
    names = []
    for _ in range(6):
        [lease] = await stage.take(worker, 1)
        names.append(lease.name)
        await stage.store.settle(worker, [done(lease)])
    assert names == ["high", "b", "plain", "low", "low", "last"]


async def test_a_task_of_a_limit_keeps_its_place_among_others(stage: Stage) -> None:
    """Of equal priority, the task that has been due for longer comes first, with or without a limit."""
    worker = await stage.worker()
    await stage.put(2, name="first")
    await stage.put(1, name="limited", limit=TWO)
    await stage.put(2, name="last")
    assert [one.name for one in await stage.take(worker, 3)] == ["first", "first", "limited"]


async def test_each_queue_gives_as_much_as_it_has_room_for(stage: Stage) -> None:
    worker = await stage.worker()
    await stage.put(5, queue="a", limit=Limit("k", running=10))
    await stage.put(5, queue="a")
    await stage.put(5, queue="b", limit=Limit("l", running=2))
    leased = await stage.store.lease(worker, {"a": 4, "b": 4}, 100)
    queues = [one.queue for one in leased.leases]
    assert (queues.count("a"), queues.count("b")) == (4, 2)


async def test_what_waits_for_its_time_is_limited_when_it_falls_due(stage: Stage) -> None:
    worker = await stage.worker()
    await stage.put(3, delay_s=10, limit=TWO)
    assert await stage.take(worker) == []
    await stage.pass_time(11)
    assert len(await stage.take(worker)) == 2


async def test_a_retried_task_counts_for_its_limit(stage: Stage) -> None:
    worker = await stage.worker()
    ended = await stage.ended(worker, "failed", limit=Limit("k", running=1))
    await stage.put_one(limit=Limit("k", running=1))
    assert await stage.store.retry(ended, NOTE)
    assert len(await stage.take(worker)) == 1
    assert (await stage.show(ended)).limit == Limit("k", running=1)


async def test_what_is_revised_or_asked_to_cancel_stays_within_its_limit(stage: Stage) -> None:
    worker = await stage.worker()
    limit = Limit("k", running=1)
    await stage.put_one(limit=limit)
    lease = await stage.take_one(worker)
    watch = await stage.put_one(limit=limit, delay_s=60, cancels_itself=True, kind="watch", key="w", indexed=True)
    await stage.store.cancel(watch, NOTE)
    assert await stage.take(worker) == []
    await stage.store.settle(worker, [done(lease)])
    [asked] = await stage.take(worker)
    assert (asked.id, asked.cancel_requested) == (watch, True)


async def test_keys_and_events_go_with_limits(stage: Stage) -> None:
    """A unique key answers with the task that has it; events are written with the task."""
    worker = await stage.worker()
    task = NewTask(name="job", key="unique", limit=TWO)
    [first] = await stage.store.enqueue([task])
    [again_, other] = await stage.store.enqueue([task, NewTask(name="job", limit=TWO, events=(NewEvent(1, "{}"),))])
    assert (again_.id, again_.is_new) == (first.id, False)
    assert sorted(ids(await stage.take(worker))) == [first.id, other.id]
    assert len(await stage.store.task_events(other.id)) == 1


async def test_the_workers_own_limit_replaces_what_the_task_brought(stage: Stage) -> None:
    """So a changed limit holds for what waits already."""
    narrow = await stage.worker("narrow", limits={"job": Limit("", running=1)})
    wide = await stage.worker("wide", limits={"job": Limit("", running=4), "other": Limit("", running=1)})
    await stage.put(9, limit=TWO)
    assert len(await stage.take(narrow)) == 1
    assert await stage.take(narrow) == []
    assert len(await stage.take(wide)) == 3
    rated = await stage.worker("rated", limits={"job": Limit("", starts=2, per_s=60.0)})
    assert len(await stage.take(rated)) == 2


async def test_people_see_what_waits_behind_a_limit(stage: Stage) -> None:
    worker = await stage.worker()
    limit = Limit("mail/a", running=2, starts=5, per_s=60.0)
    tasks = await stage.put(5, limit=limit)
    await stage.put(1, delay_s=60, limit=limit)
    await stage.take(worker)
    shown = await stage.show(tasks[4])
    assert (shown.state, shown.limit) == ("queued", limit)
    [queue] = await stage.store.queues()
    assert (queue.ready, queue.limited, queue.running, queue.waiting) == (0, 3, 2, 1)
    assert queue.oldest_due_at is None
    info = await stage.store.limit("mail/a")
    assert (info.key, info.waiting, info.running) == ("mail/a", 3, 2)
    assert info.oldest_started_at == (await stage.show(tasks[0])).started_at
    assert sum(count for _, count in info.starts) == 2
    assert [one.running for one in await stage.store.workers()] == [2]
    nothing = await stage.store.limit("no such key")
    assert (nothing.waiting, nothing.running, nothing.oldest_started_at, nothing.starts) == (0, 0, None, ())
    assert COUNT_LIMIT >= 5


async def test_running_tasks_of_a_limit_are_listed(stage: Stage) -> None:
    from everpoll.stores.contract import TaskFilter  # noqa: PLC0415 - only here

    worker = await stage.worker()
    tasks = await stage.put(3, limit=TWO)
    await stage.take(worker)
    page = await stage.store.tasks(TaskFilter(state="running"))
    assert sorted(one.id for one in page.tasks) == tasks[:2]
    page = await stage.store.tasks(TaskFilter(state="queued"))
    assert [one.id for one in page.tasks] == tasks[2:]


async def test_paused_queues_start_nothing(stage: Stage) -> None:
    worker = await stage.worker()
    await stage.put(2, limit=TWO)
    await stage.store.pause("default", "", "test")
    assert await stage.take(worker) == []
    await stage.store.resume("default", "test")
    assert len(await stage.take(worker)) == 2


async def test_many_at_once_never_start_too_many(stage: Stage) -> None:
    """Several stores, as several processes have, look at the same moment."""
    stores = [stage.store]
    if stage.backend.url is not None:
        stores += [await stage.another_store() for _ in range(3)]
    cards = [card_of(f"w{number}") for number in range(len(stores))]
    for store, card in zip(stores, cards, strict=True):
        await store.sign_on(card, 60.0)
    await stage.store.enqueue([NewTask(name="job", limit=Limit(f"k{number % 5}", running=2)) for number in range(60)])
    held: dict[str, int] = dict.fromkeys((f"k{number}" for number in range(5)), 0)
    done_ids: list[int] = []

    async def work(number: int) -> None:
        store, me = stores[number], cards[number].incarnation
        while len(done_ids) < 60:
            leases = (await store.lease(me, {"default": 4}, 4)).leases
            for lease in leases:
                held[lease.limit_key or ""] += 1
            assert max(held.values()) <= 2
            await asyncio.sleep(0)
            for lease in leases:
                held[lease.limit_key or ""] -= 1
            assert await store.settle(me, [done(lease) for lease in leases]) == set()
            done_ids.extend(ids(leases))

    async with asyncio.timeout(60):
        await asyncio.gather(*(work(number) for number in range(len(stores))))
    assert len(set(done_ids)) == 60


@pytest.mark.parametrize(
    "limit",
    [
        Limit("k"),
        Limit("k", running=0),
        Limit("k", starts=1),
        Limit("k", starts=0, per_s=1.0),
        Limit("x" * 1_001, running=1),
        Limit("k", running=2**31),
        Limit("a\0b", running=1),
    ],
)
async def test_a_limit_that_limits_nothing_is_refused(stage: Stage, limit: Limit) -> None:
    with pytest.raises(BadInput, match="task 'job'"):
        await stage.store.enqueue([NewTask(name="job", limit=limit)])
