"""What operators do is in the feed, written with the change, under numbers that a task's own readers never meet."""

import msgspec
import pytest

from everpoll.stores.contract import RESCUE_LIMIT, Ended, Event, NewEvent, NewTask, Settlement
from everpoll.stores.health import MaintenanceWindow
from everpoll.stores.memory import MemoryStore
from everpoll.stores.operations import UNNUMBERED, LogEntry, Revision
from stores.stage import HOUR_S, WATCH, Stage, again, json

BY_OPS = json({"what": "cancel", "by": "ops", "why": "ä'\"\\ 🦊"})


async def behind(stage: Stage, after: str) -> list[Event]:
    return list((await stage.store.events(after)).events)


async def now(stage: Stage) -> str:
    return (await stage.store.events(None)).after


async def test_entries_of_no_task_are_in_the_feed_in_order(stage: Stage) -> None:
    start = await now(stage)
    entries = [LogEntry("queue", "mail", json({"n": number})) for number in range(5)]
    await stage.store.log([*entries, LogEntry("bulk", "redrive", "{}", key="b-1")])
    await stage.store.log([LogEntry("queue", "mail", json({"n": 5}))])
    await stage.store.log([])
    found = await behind(stage, start)
    assert [(one.kind, one.name, one.key, one.task_id) for one in found[4:6]] == [
        ("queue", "mail", None, 0),
        ("bulk", "redrive", "b-1", 0),
    ]
    assert [one.body.get("n") for one in found] == [0, 1, 2, 3, 4, None, 5]
    assert all(one.seq < 0 for one in found)
    assert len({one.seq for one in found}) == 7


async def test_entries_about_a_task_are_its_actions_and_not_its_events(stage: Stage) -> None:
    [answer] = await stage.store.enqueue([NewTask(name="w", **WATCH, events=(NewEvent(1, "{}"),))])
    await stage.store.log([LogEntry("watch", "w", json({"n": number}), task_id=answer.id) for number in range(3)])
    assert [one.seq for one in await stage.store.task_events(answer.id)] == [1]
    assert [one.seq for one in await stage.store.events_of({answer.id: 0})] == [1]
    assert [one.body["n"] for one in await stage.store.actions_of(answer.id)] == [0, 1, 2]
    assert [one.body["n"] for one in await stage.store.actions_of(answer.id, limit=2)] == [0, 1]
    assert await stage.store.actions_of(2**62) == []


@pytest.mark.parametrize("kind", ["queued", "running", "cancels itself"])
async def test_a_cancel_is_told_with_its_actor_and_the_state_after_it(stage: Stage, kind: str) -> None:
    worker = await stage.worker()
    fields = {"name": "j", "key": "k", **(WATCH if kind == "cancels itself" else {})}
    task_id = await stage.put_one(**fields)
    if kind == "running":
        await stage.take_one(worker)
    start = await now(stage)
    state = await stage.store.cancel(task_id, BY_OPS)
    [event] = await behind(stage, start)
    assert event.body == {"state": state, "what": "cancel", "by": "ops", "why": "ä'\"\\ 🦊"}
    assert (event.task_id, event.name, event.key) == (task_id, "j", "k")
    assert event.kind == ("watch" if kind == "cancels itself" else "job")
    assert await stage.store.actions_of(task_id) == [event]
    assert [entry["by"] for entry in (await stage.show(task_id)).trail] == ["ops"]


async def test_canceling_many_tells_each_and_what_has_ended_tells_nothing(stage: Stage) -> None:
    worker = await stage.worker()
    over = await stage.ended(worker)
    ids = await stage.put(3)
    start = await now(stage)
    states = await stage.store.cancel_many([(one, BY_OPS) for one in (*ids, over, 2**62)])
    assert states == ["canceled"] * 3 + ["done", None]
    assert {one.task_id for one in await behind(stage, start)} == set(ids)


async def test_a_retry_is_told_once_and_only_where_it_was_one(stage: Stage) -> None:
    worker = await stage.worker()
    task_id = await stage.ended(worker, "failed")
    start = await now(stage)
    note = json({"what": "retry", "by": "ops"})
    assert await stage.store.retry(task_id, note)
    assert not await stage.store.retry(task_id, note)
    assert [(one.task_id, one.body) for one in await behind(stage, start)] == [
        (task_id, {"what": "retry", "by": "ops"})
    ]


async def test_a_task_that_would_be_due_again_and_was_to_be_canceled_tells_its_end(stage: Stage) -> None:
    worker = await stage.worker()
    lease = await stage.running(worker)
    await stage.store.cancel(lease.id, BY_OPS)
    start = await now(stage)
    assert await stage.store.settle(worker, [again(lease, HOUR_S)]) == set()
    [event] = await behind(stage, start)
    assert (event.task_id, event.body["what"]) == (lease.id, "canceled")
    assert event.seq < 0


async def test_what_the_rescue_ends_is_told(stage: Stage) -> None:
    """A poison task, and one that was to be canceled; one that is only taken back tells nothing."""
    poison = await stage.put_one(name="poison")
    start = await now(stage)
    for number in range(RESCUE_LIMIT):
        worker = await stage.worker()
        assert (await stage.take_one(worker)).id == poison
        assert await behind(stage, start) == [], f"after {number} rescues"
        await stage.bury(worker)
    [event] = await behind(stage, start)
    assert (event.task_id, event.kind, event.name) == (poison, "job", "poison")
    assert event.body == {"what": "failed", "by": "rescue", "why": "its worker was lost", "rescues": RESCUE_LIMIT}
    worker = await stage.worker()
    lease = await stage.running(worker)
    await stage.store.cancel(lease.id, BY_OPS)
    start = await now(stage)
    await stage.bury(worker)
    [event] = await behind(stage, start)
    assert (event.task_id, event.body["what"], event.body["by"]) == (lease.id, "canceled", "rescue")


async def test_settlements_may_leave_the_number_to_the_store(stage: Stage) -> None:
    worker = await stage.worker()
    ids = await stage.put(2)
    start = await now(stage)
    leases = await stage.take(worker)
    events = (NewEvent(5, json({"n": 5})), NewEvent(UNNUMBERED, json({"n": -1})), NewEvent(UNNUMBERED, "{}"))
    batch: list[Settlement] = [
        Ended(ids[0], leases[0].sequence, "failed", events=events),
        again(leases[1], events=events),
    ]
    assert await stage.store.settle(worker, batch) == set()
    assert [one.seq for one in await stage.store.task_events(ids[0])] == [5]
    assert [one.body for one in await stage.store.actions_of(ids[1])] == [{"n": -1}, {}]
    found = await behind(stage, start)
    assert len(found) == 6
    assert len({one.position for one in found}) == 6
    await stage.store.log([LogEntry("job", "j", "{}", task_id=ids[1])])
    assert len(await stage.store.actions_of(ids[1])) == 3


async def test_a_revision_with_a_note_is_told_where_it_changed_something(stage: Stage) -> None:
    task_id = await stage.put_one(kind="check", key="billing", args='"old"', delay_s=HOUR_S)
    start = await now(stage)
    note = json({"what": "look-now", "by": "ops"})
    await stage.store.revise([Revision("check", "billing", '"old"', note=note)])
    await stage.store.revise([Revision("check", "nowhere", hurry=True, note=note)])
    assert await behind(stage, start) == []
    await stage.store.revise([Revision("check", "billing", hurry=True, note=note)])
    assert [one.body for one in await stage.store.actions_of(task_id)] == [{"what": "look-now", "by": "ops"}]
    assert [entry["what"] for entry in (await stage.show(task_id)).trail] == ["look-now"]


async def test_a_reader_whose_next_events_were_dropped_learns_of_the_gap(stage: Stage) -> None:
    beginning = await now(stage)
    await stage.store.log([LogEntry("queue", "mail", "{}")] * 2)
    middle = (await stage.store.events(beginning, limit=1)).after
    assert not (await stage.store.events(beginning)).is_gap
    await stage.pass_time(HOUR_S)
    await stage.store.log([LogEntry("queue", "mail", json({"n": 3}))])
    before = await now(stage)
    await stage.store.prune(HOUR_S / 2)
    for position in (beginning, middle):
        page = await stage.store.events(position)
        assert page.is_gap
        assert [one.body for one in page.events] == [{"n": 3}]
        assert not (await stage.store.events(page.after)).is_gap
    assert not (await stage.store.events(before)).is_gap
    await stage.pass_time(HOUR_S)
    await stage.store.prune(HOUR_S / 2)
    page = await stage.store.events(middle)
    assert (page.events, page.is_gap) == ((), True)
    assert not (await stage.store.events(await now(stage))).is_gap, "all are gone, and none behind the position of now"


@pytest.mark.parametrize("what", ["alias", "window"])
async def test_aliases_and_windows_change_with_their_entry_or_not_at_all(stage: Stage, what: str) -> None:
    health = stage.store.health
    entry = LogEntry("service", "pg", json({"what": what, "by": "ann"}), key="k")

    async def put(entry: LogEntry | None) -> None:
        if what == "alias":
            await health.set_alias("pg", "PostgreSQL", entry)
        else:
            await health.set_window(MaintenanceWindow("pg", {"n": 1}), entry)

    async def drop(entry: LogEntry | None) -> bool:
        return await (health.delete_alias if what == "alias" else health.delete_window)("pg", entry)

    async def is_there() -> bool:
        return bool(await health.aliases() if what == "alias" else await health.windows())

    # No database stores it, and the change goes with it. Memory has no transaction to fail.
    unfit = msgspec.structs.replace(entry, name=None)
    start = await now(stage)
    if not isinstance(stage.store, MemoryStore):
        with pytest.raises(Exception, match=r"(?i)not.null"):
            await put(unfit)
        assert not await is_there()
    await put(entry)
    await put(None)
    if not isinstance(stage.store, MemoryStore):
        with pytest.raises(Exception, match=r"(?i)not.null"):
            await drop(unfit)
        assert await is_there()
    assert await drop(entry)
    assert not await drop(entry), "what is not there is not removed"
    found = await behind(stage, start)
    assert [(one.kind, one.name, one.key, one.body["by"]) for one in found] == [("service", "pg", "k", "ann")] * 2
