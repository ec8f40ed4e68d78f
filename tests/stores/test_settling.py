"""A mixed batch is settled in one step: each task ends or is due again, exactly as told, with its reasons kept."""

import msgspec
import pytest

from everpoll.stores.contract import TRAIL_LIMIT, Ended, NewTask
from stores.stage import HOUR_S, Stage, again, done, json, whats


async def test_a_mixed_batch(stage: Stage) -> None:
    worker = await stage.worker("anna")
    ids = await stage.put(6)
    finished, broke, dropped, retried, snoozed, returned = await stage.take(worker)
    lost = await stage.store.settle(
        worker,
        [
            done(finished, {"total": 3}),
            done(broke, None, "failed", json({"what": "failed", "error": {"type": "ValueError", "trace": "…"}})),
            done(dropped, None, "canceled", json({"what": "canceled", "why": "asked to"})),
            again(retried, HOUR_S, note=json({"what": "retry", "error": {"type": "OSError"}}), memory=json({"n": 1})),
            again(snoozed, 60.0, refund=True, note=json({"what": "snooze"})),
            again(returned, None, refund=True),
        ],
    )
    assert lost == set()
    shown = await stage.store.info(ids)
    assert [one.state for one in shown.values()] == ["done", "failed", "canceled", "queued", "queued", "queued"]
    assert [one.attempt for one in shown.values()] == [1, 1, 1, 1, 0, 0]
    assert [one.result for one in shown.values()] == [{"total": 3}, None, None, None, None, None]
    assert [whats(one) for one in shown.values()] == [[], ["failed"], ["canceled"], ["retry"], ["snooze"], []]
    assert [len(one.errors) for one in shown.values()] == [0, 1, 0, 1, 0, 0]
    assert shown[broke.id].errors[0]["error"] == {"type": "ValueError", "trace": "…"}
    assert shown[retried.id].memory == {"n": 1}
    assert {one.worker for one in shown.values()} == {"anna"}
    assert all((one.ended_at is not None) == (one.state != "queued") for one in shown.values())
    assert await stage.due_in_s(retried.id) == pytest.approx(HOUR_S, abs=30)
    assert await stage.due_in_s(snoozed.id) == pytest.approx(60, abs=30)
    assert set(await stage.store.ended(ids)) == {finished.id, broke.id, dropped.id}


async def test_an_empty_batch(stage: Stage) -> None:
    assert await stage.store.settle(await stage.worker(), []) == set()


async def test_exactly_the_lost_ones_are_reported(stage: Stage) -> None:
    """Of each kind one that is ours and one that is not: the others are settled all the same."""
    zombie, worker = await stage.worker(), await stage.worker(lease_s=HOUR_S)
    await stage.put(3)
    stale = await stage.take(zombie)
    await stage.bury(zombie)
    await stage.put(4)
    leases = {one.id: one for one in await stage.take(worker)}
    assert len(leases) == 7
    ours = [one for one in leases.values() if one.sequence == 1]
    lost = await stage.store.settle(
        worker,
        [
            done(stale[0], "stale"),
            done(ours[0]),
            done(ours[1], "fresh"),
            done(stale[1]),
            again(stale[2], 0.0),
            again(ours[2], HOUR_S),
            done(ours[3], None, "failed", json({"what": "failed"})),
        ],
    )
    assert lost == {one.id for one in stale}
    shown = await stage.store.info(list(leases))
    assert [shown[one.id].state for one in ours] == ["done", "done", "queued", "failed"]
    assert {shown[one.id].state for one in stale} == {"running"}
    assert await stage.store.settle(worker, [done(leases[one.id]) for one in stale]) == set()


async def test_different_sequences_in_one_batch(stage: Stage) -> None:
    """Plain ends may be settled by a short cut that looks at one sequence only: others must not slip through."""
    worker = await stage.worker()
    await stage.put(3)
    leases = await stage.take(worker)
    await stage.store.settle(worker, [again(leases[0], None), again(leases[1], None)])
    second = await stage.take(worker, 1)
    assert [one.sequence for one in second] == [2]
    mixed = [done(leases[2]), done(second[0]), done(leases[1])]
    assert await stage.store.settle(worker, mixed) == {leases[1].id}
    shown = await stage.store.info([one.id for one in leases])
    assert [one.state for one in shown.values()] == ["done", "queued", "done"]


async def test_a_large_batch(stage: Stage) -> None:
    worker = await stage.worker()
    ids = await stage.put(1200)
    leases = [one for _ in range(3) for one in await stage.take(worker, 500)]
    batch = [done(one, one.id) if number % 3 else again(one, HOUR_S) for number, one in enumerate(leases)]
    assert await stage.store.settle(worker, batch) == set()
    ended = await stage.store.ended(ids)
    assert {task_id: one and one.result for task_id, one in ended.items()} == {
        one.id: one.id for number, one in enumerate(leases) if number % 3
    }


@pytest.mark.parametrize("value", [None, False, 0, "", [], {}, 2**60, 1.5, "☃ \0 \\ \" '", {"a": [None]}])
async def test_any_result_comes_back(stage: Stage, value: object) -> None:
    worker = await stage.worker()
    lease = await stage.running(worker)
    await stage.store.settle(worker, [Ended(lease.id, lease.sequence, result=json(value))])
    assert (await stage.show(lease.id)).result == value


async def test_a_delay_of_zero_is_due_at_once(stage: Stage) -> None:
    worker = await stage.worker()
    lease = await stage.running(worker)
    await stage.store.settle(worker, [again(lease, 0.0)])
    assert (await stage.take_one(worker)).id == lease.id


async def test_a_kept_place_of_a_task_that_waited_is_due_at_once(stage: Stage) -> None:
    """Its due time is past: it does not wait a second time."""
    worker = await stage.worker()
    task_id = await stage.put_one(delay_s=30)
    await stage.pass_time(31)
    due_at = (await stage.show(task_id)).due_at
    await stage.store.settle(worker, [again(await stage.take_one(worker), None)])
    assert (await stage.show(task_id)).due_at == due_at
    assert (await stage.take_one(worker)).id == task_id


async def test_a_task_due_again_is_in_nobodys_hands(stage: Stage) -> None:
    worker = await stage.worker("anna")
    lease = await stage.running(worker, timeout_s=10)
    await stage.store.settle(worker, [again(lease, HOUR_S)])
    shown = await stage.show(lease.id)
    assert (shown.state, shown.incarnation, shown.deadline_at, shown.worker) == ("queued", None, None, "anna")


async def test_memory_is_kept_until_it_is_replaced(stage: Stage) -> None:
    worker = await stage.worker()
    lease = await stage.running(worker, memory=json({"seen": 0}))
    await stage.store.settle(worker, [again(lease)])
    lease = await stage.take_one(worker)
    assert lease.memory == json({"seen": 0})
    await stage.store.settle(worker, [again(lease, memory=json({"seen": 1}))])
    lease = await stage.take_one(worker)
    assert lease.memory == json({"seen": 1})
    await stage.store.settle(worker, [done(lease)])
    assert (await stage.show(lease.id)).memory == {"seen": 1}


async def test_refunded_attempts_cost_none_however_many(stage: Stage) -> None:
    worker = await stage.worker()
    lease = await stage.running(worker)
    for _ in range(5):
        await stage.store.settle(worker, [again(lease, refund=True)])
        lease = await stage.take_one(worker)
        assert lease.attempt == 1
    await stage.store.settle(worker, [again(lease)])
    assert (await stage.take_one(worker)).attempt == 2


async def test_the_trail_says_when_and_by_whom(stage: Stage) -> None:
    worker = await stage.worker("anna")
    lease = await stage.running(worker)
    await stage.store.settle(worker, [again(lease, note=json({"what": "retry", "error": {"type": "E"}, "delay_s": 2}))])
    other = await stage.worker("bob")
    await stage.store.settle(other, [done(await stage.take_one(other), None, "failed", json({"what": "failed"}))])
    shown = await stage.show(lease.id)
    assert [(entry["what"], entry["by"]) for entry in shown.trail] == [("retry", "anna"), ("failed", "bob")]
    assert shown.trail[0]["error"] == {"type": "E"}
    assert shown.trail[0]["delay_s"] == 2
    assert shown.ended_at is not None
    times = [entry["at"] for entry in shown.trail]
    assert shown.created_at.timestamp() - 0.01 <= times[0] <= times[1] <= shown.ended_at.timestamp() + 0.01


async def test_the_trail_keeps_odd_text(stage: Stage) -> None:
    """Tracebacks quote whatever went wrong."""
    odd = {"what": "retry", "error": {"trace": 'line\n\t"quoted" \\ \0 ☃ 𝄞 $1 %s {}', "deep": [[[None]]]}}
    worker = await stage.worker()
    lease = await stage.running(worker)
    await stage.store.settle(worker, [again(lease, note=json(odd))])
    await stage.store.settle(worker, [done(await stage.take_one(worker), None, "failed", json(odd))])
    shown = await stage.show(lease.id)
    assert [entry["error"] for entry in shown.trail] == [odd["error"]] * 2


async def test_the_trail_keeps_the_newest_entries(stage: Stage) -> None:
    """A check that is due again for ever must not grow for ever."""
    worker = await stage.worker()
    lease = await stage.running(worker)
    for number in range(TRAIL_LIMIT + 5):
        await stage.store.settle(worker, [again(lease, None, note=json({"what": "look", "number": number}))])
        lease = await stage.take_one(worker)
    assert [entry["number"] for entry in (await stage.show(lease.id)).trail] == list(range(5, TRAIL_LIMIT + 5))
    await stage.store.settle(worker, [done(lease, None, "done", json({"what": "end", "number": -1}))])
    trail = (await stage.show(lease.id)).trail
    assert (len(trail), trail[0]["number"], trail[-1]["number"]) == (TRAIL_LIMIT, 6, -1)


@pytest.mark.parametrize("delay_s", [None, 0.0, HOUR_S])
async def test_a_requested_cancel_wins_over_again(stage: Stage, delay_s: float | None) -> None:
    worker = await stage.worker()
    lease = await stage.running(worker, key="k")
    assert await stage.store.cancel(lease.id, json({"what": "cancel"})) == "running"
    note = json({"what": "retry", "error": {}})
    assert await stage.store.settle(worker, [again(lease, delay_s, note=note, memory="5")]) == set()
    shown = await stage.show(lease.id)
    assert (shown.state, shown.memory, whats(shown)) == ("canceled", 5, ["cancel", "retry"])
    assert shown.ended_at is not None
    assert await stage.take(worker) == []
    [anew] = await stage.store.enqueue([NewTask(name="job", key="k")])
    assert anew.is_new


async def test_a_cancel_that_came_too_late_changes_no_result(stage: Stage) -> None:
    worker = await stage.worker()
    lease = await stage.running(worker)
    await stage.store.cancel(lease.id, json({"what": "cancel"}))
    assert await stage.store.settle(worker, [done(lease, 42)]) == set()
    shown = await stage.show(lease.id)
    assert (shown.state, shown.result) == ("done", 42)


async def test_canceled_and_other_retries_in_one_batch(stage: Stage) -> None:
    worker = await stage.worker()
    ids = await stage.put(4)
    leases = await stage.take(worker)
    await stage.store.cancel(ids[1], json({"what": "cancel"}))
    await stage.store.cancel(ids[3], json({"what": "cancel"}))
    await stage.store.settle(worker, [again(leases[0], None)])
    lost = await stage.store.settle(worker, [again(one, HOUR_S, refund=True) for one in leases])
    assert lost == {ids[0]}
    shown = await stage.store.info(ids)
    assert [shown[task_id].state for task_id in ids] == ["queued", "canceled", "queued", "canceled"]
    assert [shown[task_id].attempt for task_id in ids] == [1, 0, 0, 0]


async def test_an_ended_task_keeps_what_it_was(stage: Stage) -> None:
    """The move to history loses nothing that people ask about."""
    worker = await stage.worker("anna")
    fields = {"name": "send", "kind": "watch", "queue": "mail", "key": "k", "priority": 4}
    task_id = await stage.put_one(**fields, indexed=True, args=json([1, "ä"]), memory=json({"m": 1}), timeout_s=5)
    before = await stage.show(task_id)
    lease = await stage.take_one(worker, "mail")
    await stage.store.settle(worker, [done(lease, "r")])
    shown = await stage.show(task_id)
    assert {name: getattr(shown, name) for name in fields} == fields
    assert (shown.args, shown.memory, shown.result) == ([1, "ä"], {"m": 1}, "r")
    assert (shown.created_at, shown.due_at) == (before.created_at, before.due_at)
    assert shown.started_at is not None
    assert shown.ended_at is not None
    assert shown.created_at <= shown.started_at <= shown.ended_at


@pytest.mark.parametrize("note", ["{}", " { } ", '{"what":"test"}', ' {\n"what": "test", "nested": {"at": 1}}\n'])
async def test_a_note_may_be_written_in_any_way(stage: Stage, note: str) -> None:
    worker = await stage.worker("me")
    lease = await stage.running(worker)
    await stage.store.settle(worker, [again(lease, note=note)])
    [entry] = (await stage.show(lease.id)).trail
    assert entry.pop("by") == "me"
    assert isinstance(entry.pop("at"), float)
    assert entry == msgspec.json.decode(note)


async def test_what_a_note_says_about_itself_wins(stage: Stage) -> None:
    worker = await stage.worker("me")
    lease = await stage.running(worker)
    await stage.store.settle(worker, [again(lease, note='{"by":"a person","at":7.0,"what":"test"}')])
    assert (await stage.show(lease.id)).trail == ({"at": 7.0, "by": "a person", "what": "test"},)
