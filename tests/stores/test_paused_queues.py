"""A paused queue gives no task to any worker of the fleet, holds up no other queue, and makes no worker busy."""

from datetime import timedelta

import pytest

from everpoll.errors import BadInput
from everpoll.stores.contract import Lease, Leased, TaskFilter
from stores.stage import HOUR_S, Stage, again, card_of, done


async def look(stage: Stage, worker: int, *queues: str, most: int = 10) -> Leased:
    return await stage.store.lease(worker, dict.fromkeys(queues or ("default",), most), most)


async def test_nothing_is_leased_until_it_is_resumed(stage: Stage) -> None:
    worker = await stage.worker()
    ids = await stage.put(3)
    await stage.store.pause("default", "broken", "ops")
    leased = await look(stage, worker)
    assert (leased.leases, leased.next_due_s, leased.is_all) == ([], None, True)
    assert await stage.store.resume("default", "ops")
    assert [one.id for one in (await look(stage, worker)).leases] == ids
    assert not await stage.store.resume("default", "ops")


async def test_another_store_object_sees_it_at_once(stage: Stage) -> None:
    other = await stage.another_store()
    worker = await stage.worker()
    await stage.put(1)
    await other.pause("default", "", "")
    assert (await look(stage, worker)).leases == []
    await other.resume("default", "")
    assert len((await look(stage, worker)).leases) == 1


@pytest.mark.parametrize("paused", ["a", "b", "c"])
async def test_other_queues_are_served_as_before(stage: Stage, paused: str) -> None:
    worker = await stage.worker()
    ids = {name: await stage.put(2, queue=name) for name in "abc"}
    await stage.store.pause(paused, "", "")
    leases = (await look(stage, worker, "a", "b", "c")).leases
    assert {(one.queue, one.id) for one in leases} == {
        (name, one) for name, some in ids.items() for one in some if name != paused
    }
    assert await stage.store.settle(worker, [done(one) for one in leases]) == set()
    assert (await look(stage, worker, "a", "b", "c")).leases == []
    await stage.store.resume(paused, "")
    leases = (await look(stage, worker, "a", "b", "c")).leases
    assert [(one.queue, one.id) for one in leases] == [(paused, one) for one in ids[paused]]


async def test_two_of_many_queues(stage: Stage) -> None:
    worker = await stage.worker()
    names = [f"q{number:02}" for number in range(20)]
    for name in names:
        await stage.put(1, queue=name)
    for name in names[3:5]:
        await stage.store.pause(name, "", "")
    leases = (await look(stage, worker, *names, most=50)).leases
    assert {one.queue for one in leases} == {*names} - {*names[3:5]}


async def test_what_falls_due_in_it_wakes_no_worker(stage: Stage) -> None:
    worker = await stage.worker()
    await stage.put(1, delay_s=5.0)
    await stage.put(1, queue="other", delay_s=HOUR_S)
    await stage.store.pause("default", "", "")
    leased = await look(stage, worker, "default", "other")
    assert leased.next_due_s == pytest.approx(HOUR_S, abs=60)
    await stage.pass_time(60.0)
    for queues in (["default"], ["default", "other"]):
        leased = await look(stage, worker, *queues)
        assert leased.leases == []
        assert leased.next_due_s is None or leased.next_due_s > 60.0
    await stage.store.resume("default", "")
    assert len((await look(stage, worker)).leases) == 1


async def test_what_runs_goes_on_and_its_retry_waits(stage: Stage) -> None:
    worker = await stage.worker()
    first, second = [await stage.running(worker) for _ in range(2)]
    await stage.store.pause("default", "", "")
    assert await stage.store.settle(worker, [done(first), again(second)]) == set()
    assert (await stage.show(first.id)).state == "done"
    assert (await look(stage, worker)).leases == []
    await stage.store.resume("default", "")
    assert (await look(stage, worker)).leases[0].id == second.id


async def test_a_run_of_full_batches_stops_at_the_pause(stage: Stage) -> None:
    """In the middle of a drain looks are marked: they skip what they know, but never a pause."""
    store = await stage.another_store()  # this one is not calmed down: it has marks
    card = card_of()
    await store.sign_on(card, 60.0)

    async def leased() -> list[Lease]:
        return (await store.lease(card.incarnation, {"default": 50, "other": 50}, 50)).leases

    await stage.put(400)
    for _ in range(4):
        leases = await leased()
        assert len(leases) == 50
        await store.settle(card.incarnation, [done(one) for one in leases])
    other = await stage.put_one(queue="other")
    await stage.store.pause("default", "", "")
    assert [(one.id, one.queue) for one in await leased()] == [(other, "other")]
    assert await leased() == []
    await stage.store.resume("default", "")
    assert len(await leased()) == 50


async def test_queues_tell_their_pause_their_counts_and_their_oldest_task(stage: Stage) -> None:
    worker = await stage.worker()
    await stage.put(2, priority=5)
    await stage.pass_time(60.0)
    await stage.put(1, priority=-5)
    await stage.put(1, delay_s=HOUR_S)
    await stage.put(1, queue="later", delay_s=HOUR_S)
    await stage.store.pause("empty", "not yet", "ops")
    await stage.store.pause("default", "", "")
    found = {one.queue: one for one in await stage.store.queues()}
    assert list(found) == ["default", "empty", "later"]
    assert (found["default"].ready, found["default"].waiting) == (3, 1)
    [first, *_] = (await stage.store.tasks(TaskFilter(queue="default"))).tasks[::-1]
    assert found["default"].oldest_due_at == first.due_at
    assert (found["later"].oldest_due_at, found["later"].paused) == (None, None)
    pause = found["empty"].paused
    assert pause is not None
    assert (pause.reason, pause.by) == ("not yet", "ops")
    assert pause.at.utcoffset() == timedelta(0)
    assert (found["empty"].ready, found["empty"].oldest_due_at) == (0, None)
    await stage.store.resume("default", "")
    await look(stage, worker, most=2)
    [default, *_] = await stage.store.queues()
    assert (default.ready, default.running) == (1, 2)
    assert default.oldest_due_at is not None
    assert default.oldest_due_at > first.due_at, "what runs waits no more"


async def test_a_repeated_pause_replaces_its_reason_and_both_are_in_the_log(stage: Stage) -> None:
    start = (await stage.store.events(None)).after
    await stage.store.pause("mail", "first", "ann")
    await stage.store.pause("mail", "", "bob")
    assert {name: (one.reason, one.by) for name, one in (await stage.store.paused()).items()} == {"mail": ("", "bob")}
    assert await stage.store.resume("mail", "ann")
    assert await stage.store.paused() == {}
    found = (await stage.store.events(start)).events
    assert [(one.kind, one.name, one.task_id, one.key) for one in found] == [("queue", "mail", 0, None)] * 3
    assert [one.body for one in found] == [
        {"what": "pause", "by": "ann", "why": "first"},
        {"what": "pause", "by": "bob"},
        {"what": "resume", "by": "ann"},
    ]


@pytest.mark.parametrize(
    ("queue", "reason"), [("a\0b", ""), ("a" * 1_001, ""), ("a", "\0"), ("a", "b" * 2_001), ("\ud800", "")]
)
async def test_what_no_database_keeps_is_refused(stage: Stage, queue: str, reason: str) -> None:
    with pytest.raises(BadInput, match="queue"):
        await stage.store.pause(queue, reason, "")
    assert await stage.store.paused() == {}
