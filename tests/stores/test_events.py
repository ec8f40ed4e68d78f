"""Events are written with what they tell about or not at all, once each, and the feed misses none (invariant 9)."""

import asyncio
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from everpoll.errors import BadInput
from everpoll.stores.contract import Event, NewEvent, NewTask, Settlement, Store
from stores.stage import HOUR_S, NOTE, WATCH, Stage, again, done, json


def happened(*seqs: int, **fields: Any) -> tuple[NewEvent, ...]:
    return tuple(NewEvent(seq, json({"n": seq, **fields})) for seq in seqs)


def with_events(settlement: Settlement, *seqs: int, **fields: Any) -> Settlement:
    return msgspec.structs.replace(settlement, events=happened(*seqs, **fields))


async def of(stage: Stage, task_id: int) -> list[int]:
    return [one.seq for one in await stage.store.task_events(task_id)]


async def feed(store: Store, after: str, limit: int = 1000) -> list[Event]:
    """Everything after a position, in pages."""
    found: list[Event] = []
    while (page := await store.events(after, limit)).events:
        assert page.after == page.events[-1].position
        assert len(page.events) <= limit
        found += page.events
        after = page.after
    assert page.after == after
    return found


async def test_an_event_is_read_as_it_was_written(stage: Stage) -> None:
    body = {"what": "started", "text": "ä'\"\\ \u2028 \x00 🦊", "deep": [{"a": None}, 1.5]}
    start = (await stage.store.events(None)).after
    [answer] = await stage.store.enqueue([NewTask(name="w", **WATCH, key="k", events=(NewEvent(1, json(body)),))])
    [event] = await stage.store.task_events(answer.id)
    assert (event.task_id, event.name, event.key, event.seq, event.body) == (answer.id, "w", "k", 1, body)
    assert event.at.utcoffset() == timedelta(0)
    shown = await stage.show(answer.id)
    assert abs((event.at - shown.created_at).total_seconds()) < 60
    assert await feed(stage.store, start) == [event]


async def test_without_a_key_and_beside_plain_tasks(stage: Stage) -> None:
    tasks = [NewTask(name="a"), NewTask(name="b", events=happened(1, 2)), NewTask(name="c", key="c")]
    answers = await stage.store.enqueue(tasks)
    assert [one.is_new for one in answers] == [True] * 3
    assert [await of(stage, one.id) for one in answers] == [[], [1, 2], []]
    assert [(one.name, one.key) for one in await stage.store.task_events(answers[1].id)] == [("b", None)] * 2


@pytest.mark.parametrize("once", [True, False])
async def test_not_written_where_the_key_was_taken(stage: Stage, once: bool) -> None:
    worker = await stage.worker()
    task = NewTask(name="w", **WATCH, key="k", once=once, events=happened(1))
    [first] = await stage.store.enqueue([task])
    [second] = await stage.store.enqueue([NewTask(name="w", **WATCH, key="k", once=once, events=happened(1, 2))])
    assert not second.is_new
    assert await of(stage, first.id) == [1]
    await stage.store.settle(worker, [done(await stage.take_one(worker))])
    [third] = await stage.store.enqueue([task])
    assert third.is_new != once
    assert await of(stage, third.id) == [1]


@pytest.mark.parametrize("fields", [{}, WATCH])
async def test_written_with_every_settlement(stage: Stage, fields: dict[str, Any]) -> None:
    """Plain, with results and notes, due again, and canceled meanwhile."""
    worker = await stage.worker()
    ids = await stage.put(6, **fields)
    leases = await stage.take(worker)
    await stage.store.cancel(ids[5], NOTE)
    ways: list[Settlement] = [
        done(leases[0]),
        done(leases[1], {"a": 1}),
        done(leases[2], None, "failed", NOTE),
        again(leases[3], HOUR_S, memory="{}", refund=True),
        again(leases[4], HOUR_S, note=NOTE),
        again(leases[5], HOUR_S),
    ]
    batch = [with_events(one, 7, 8 + place) for place, one in enumerate(ways)]
    assert await stage.store.settle(worker, batch) == set()
    assert [await of(stage, one) for one in ids] == [[7, 8 + place] for place in range(6)]


async def test_a_mixed_batch_writes_those_that_have_some(stage: Stage) -> None:
    worker = await stage.worker()
    ids = await stage.put(4, key=None, **WATCH, name="w")
    leases = await stage.take(worker)
    batch = [done(leases[0]), with_events(done(leases[1]), 1), again(leases[2]), with_events(again(leases[3]), 1)]
    assert await stage.store.settle(worker, batch) == set()
    assert [await of(stage, one) for one in ids] == [[], [1], [], [1]]


async def test_not_written_by_a_zombie(stage: Stage) -> None:
    """Neither by one whose lease was lost, nor beside others of the same batch that were not."""
    zombie = await stage.worker()
    first, second = await stage.put(2, **WATCH)
    old = await stage.take(zombie)
    await stage.bury(zombie)
    worker = await stage.worker()
    [mine] = await stage.take(worker, 1)
    assert await stage.store.settle(zombie, [with_events(again(one, 1.0), 1) for one in old]) == {first, second}
    assert await stage.store.settle(zombie, [with_events(done(one), 1) for one in old]) == {first, second}
    batch = [with_events(done(mine), 2), with_events(done(old[1]), 2)]
    assert await stage.store.settle(worker, batch) == {second}
    assert [await of(stage, one) for one in (first, second)] == [[2], []]
    assert await stage.store.settle(worker, [with_events(done(mine), 3)]) == {first}
    assert await of(stage, first) == [2]


async def test_a_repeated_number_is_ignored(stage: Stage) -> None:
    """Within one call, and later: the first stays."""
    worker = await stage.worker()
    events = (*happened(1, by="first"), *happened(1, by="second"), *happened(2))
    [answer] = await stage.store.enqueue([NewTask(name="w", **WATCH, events=events)])
    start = (await stage.store.events(None)).after
    lease = await stage.take_one(worker)
    await stage.store.settle(worker, [with_events(again(lease), 1, 2, 3, by="third")])
    found = await stage.store.task_events(answer.id)
    assert [one.body for one in found] == [{"n": 1, "by": "first"}, {"n": 2}, {"n": 3, "by": "third"}]
    assert [one.seq for one in await feed(stage.store, start)] == [3]


async def test_of_one_task_by_number_behind_a_number(stage: Stage) -> None:
    [answer, other] = await stage.store.enqueue(
        [NewTask(name="w", events=happened(30, 10, 20)), NewTask(name="w", events=happened(1, 40))]
    )
    assert await of(stage, answer.id) == [10, 20, 30]
    found = await stage.store.task_events(answer.id, after=10)
    assert [one.seq for one in found] == [20, 30]
    assert [one.seq for one in await stage.store.task_events(answer.id, 0, 2)] == [10, 20]
    assert await stage.store.task_events(answer.id, after=30) == []
    assert await of(stage, other.id) == [1, 40]
    assert await of(stage, 2**62) == []


async def test_the_feed_in_pages_of_any_size(stage: Stage) -> None:
    """Ids interleave, pages end anywhere; every position that was answered goes on where it should."""
    worker = await stage.worker()
    beginning = (await stage.store.events(None)).after
    for number in range(5):
        await stage.store.enqueue([NewTask(name="w", **WATCH, queue="a", events=happened(1))] * 3)
        batch = [with_events(again(one, 0.0), 2 + number) for one in await stage.take(worker, 3, "a")]
        assert await stage.store.settle(worker, batch) == set()
    whole = await feed(stage.store, beginning)
    assert len(whole) == 30
    assert len({one.position for one in whole}) == 30
    for limit in (1, 7, 30, 31):
        assert await feed(stage.store, beginning, limit) == whole
    for place, event in enumerate(whole):
        assert await feed(stage.store, event.position) == whole[place + 1 :]


async def test_from_now_on(stage: Stage) -> None:
    """None answers nothing but the position, behind which everything new is, and nothing else."""
    await stage.store.enqueue([NewTask(name="old", events=happened(1))])
    now = await stage.store.events(None)
    assert now.events == ()
    assert await stage.store.events(now.after) == now
    [answer] = await stage.store.enqueue([NewTask(name="new", events=happened(1))])
    assert [one.task_id for one in await feed(stage.store, now.after)] == [answer.id]


@pytest.mark.parametrize("position", ["", "x", "-1", "1.0", "1 ", "٣", "9" * 30, "1-2", "0x10", "None"])
async def test_what_is_no_position_is_refused(stage: Stage, position: str) -> None:
    with pytest.raises(BadInput, match="position"):
        await stage.store.events(position)


async def test_old_events_go_and_positions_stay_valid(stage: Stage) -> None:
    worker = await stage.worker(lease_s=10 * HOUR_S)
    beginning = (await stage.store.events(None)).after
    [answer] = await stage.store.enqueue([NewTask(name="w", **WATCH, events=happened(1, 2))])
    await stage.pass_time(HOUR_S)
    lease = await stage.take_one(worker)
    await stage.store.settle(worker, [with_events(again(lease, 0.0), 3)])
    assert await stage.store.prune(HOUR_S / 2) == 0
    assert await of(stage, answer.id) == [3]
    assert [one.seq for one in await feed(stage.store, beginning)] == [3]
    last = (await stage.store.events(None)).after
    await stage.pass_time(HOUR_S)
    await stage.store.prune(HOUR_S / 2)
    assert await of(stage, answer.id) == []
    # A number is never used again, also when all are gone.
    lease = await stage.take_one(worker)
    await stage.store.settle(worker, [with_events(done(lease), 4)])
    for position in (beginning, last):
        assert [one.seq for one in await feed(stage.store, position)] == [4]


async def test_they_outlive_their_task(stage: Stage) -> None:
    """With its name and key, for as long as they are young enough themselves."""
    worker = await stage.worker()
    [answer] = await stage.store.enqueue([NewTask(name="w", **WATCH, key="k", events=happened(1))])
    await stage.store.settle(worker, [with_events(done(await stage.take_one(worker)), 2)])
    found = await stage.store.task_events(answer.id)
    assert [(one.seq, one.name, one.key) for one in found] == [(1, "w", "k"), (2, "w", "k")]


async def test_readers_beside_many_writers_miss_nothing(stage: Stage) -> None:
    """Each writer commits whenever it can; each reader goes from position to position and sees every event once."""
    stores = [stage.store, *[await stage.another_store() for _ in range(3)]]
    beginning = (await stage.store.events(None)).after
    is_over = asyncio.Event()

    async def write(store: Store, number: int) -> list[int]:
        ids = []
        for turn in range(20):
            tasks = [NewTask(name="w", **WATCH, key=f"{number}-{turn}-{one}", events=happened(1)) for one in range(3)]
            ids += [one.id for one in await store.enqueue(tasks)]
        return ids

    async def read(store: Store) -> list[Event]:
        found: list[Event] = []
        after = beginning
        while True:
            was_over = is_over.is_set()
            page = await store.events(after, 7)
            found += page.events
            after = page.after
            if was_over and not page.events:
                return found
            await asyncio.sleep(0)

    readers = [asyncio.create_task(read(store)) for store in stores[:2]]
    written = [task_id for ids in await asyncio.gather(*map(write, stores, range(4))) for task_id in ids]
    is_over.set()
    for found in await asyncio.gather(*readers):
        assert sorted(one.task_id for one in found) == sorted(written)
        assert [int(one.position) for one in found] == sorted(int(one.position) for one in found)


async def test_the_events_of_several_tasks_are_read_together_each_behind_its_own_number(stage: Stage) -> None:
    tasks = [NewTask(name=name, events=happened(1, 2, 3)) for name in "abc"]
    first, second, third = [one.id for one in await stage.store.enqueue(tasks)]
    found = await stage.store.events_of({third: 2, first: 0, 987_654_321: 0})
    assert [(one.task_id, one.seq) for one in found] == [(first, 1), (first, 2), (first, 3), (third, 3)]
    assert found[:3] == await stage.store.task_events(first)
    limited = await stage.store.events_of({first: 0, second: 1}, limit=2)
    assert [(one.task_id, one.seq) for one in limited] == [(first, 1), (first, 2), (second, 2), (second, 3)]
    assert await stage.store.events_of({}) == []
