"""Ended tasks are put back or forgotten, many in a call, each with an answer of its own; ids find live tasks."""

import pytest

from everpoll.stores.contract import NewEvent, NewTask
from everpoll.stores.operations import BATCH_LIMIT, Retried, Revision
from stores.stage import HOUR_S, WATCH, Stage, again, done, json

NOTE = json({"what": "retry", "by": "ops"})
GONE = json({"what": "delete", "by": "ops"})


async def test_each_retry_is_answered_in_the_order_of_the_requests(stage: Stage) -> None:
    worker = await stage.worker()
    failed = await stage.ended(worker, "failed")
    keyed = await stage.ended(worker, "failed", key="k")
    live = await stage.put_one(delay_s=HOUR_S)
    holder = await stage.put_one(key="k", delay_s=HOUR_S)
    canceled = await stage.ended(worker, "canceled", name="last")
    ids = (live, canceled, 2**62, keyed, failed, failed)
    assert await stage.store.retry_many([(one, NOTE) for one in ids]) == [
        Retried("live"),
        Retried("queued"),
        Retried("unknown"),
        Retried("key_taken", holder),
        Retried("queued"),
        Retried("live"),
    ]
    assert {one.id for one in await stage.take(worker)} == {canceled, failed}
    shown = await stage.show(keyed)
    assert (shown.state, shown.key, shown.trail) == ("failed", "k", ())
    assert await stage.store.retry_many([]) == []


async def test_of_two_ended_tasks_with_one_key_one_is_retried(stage: Stage) -> None:
    worker = await stage.worker()
    first = await stage.ended(worker, key="k")
    second = await stage.ended(worker, key="k")
    answers = await stage.store.retry_many([(first, NOTE), (second, NOTE)])
    assert answers == [Retried("queued"), Retried("key_taken", first)]


async def test_a_retried_task_keeps_what_it_was(stage: Stage) -> None:
    worker = await stage.worker()
    fields = {"args": "[1]", "priority": 3, "memory": '{"a":1}', "version": 2, "key": "k", "timeout_s": 5.0}
    task_id = await stage.ended(worker, "failed", **fields, **WATCH)
    before = await stage.show(task_id)
    await stage.store.retry_many([(task_id, NOTE)])
    lease = await stage.take_one(worker)
    assert (lease.id, lease.args, lease.memory, lease.version, lease.key, lease.attempt) == (
        task_id,
        "[1]",
        '{"a":1}',
        2,
        "k",
        1,
    )
    shown = await stage.show(task_id)
    assert (shown.priority, shown.created_at, shown.kind) == (3, before.created_at, "watch")


async def test_ended_tasks_are_forgotten_and_live_ones_are_refused(stage: Stage) -> None:
    worker = await stage.worker()
    over = [await stage.ended(worker) for _ in range(2)]
    await stage.store.note_loss(over[0], '{"why":"late"}')
    running = await stage.running(worker)
    queued = await stage.put_one(delay_s=HOUR_S)
    start = (await stage.store.events(None)).after
    ids = (over[0], running.id, queued, 2**62, over[1], over[1])
    answers = await stage.store.delete([(one, GONE) for one in ids])
    assert answers == ["deleted", "live", "live", "unknown", "deleted", "unknown"]
    assert set(await stage.store.info(ids)) == {running.id, queued}
    assert await stage.store.losses(over[0]) == []
    found = (await stage.store.events(start)).events
    assert {(one.task_id, one.kind, one.name, one.body["by"]) for one in found} == {
        (one, "job", "job", "ops") for one in over
    }
    assert await stage.store.settle(worker, [done(running)]) == set()
    assert await stage.store.delete([]) == []


async def test_a_forgotten_task_answers_no_key_any_more_and_its_events_stay(stage: Stage) -> None:
    worker = await stage.worker()
    task = NewTask(name="w", **WATCH, key="k", once=True, events=(NewEvent(1, "{}"),))
    [first] = await stage.store.enqueue([task])
    await stage.store.settle(worker, [done(await stage.take_one(worker))])
    assert await stage.store.delete([(first.id, GONE)]) == ["deleted"]
    assert await stage.store.find("watch", "k") is None
    assert [one.seq for one in await stage.store.task_events(first.id)] == [1]
    assert [one.body["what"] for one in await stage.store.actions_of(first.id)] == ["delete"]
    [second] = await stage.store.enqueue([task])
    assert second.is_new


async def test_more_than_one_batch(stage: Stage) -> None:
    worker = await stage.worker()
    ids = await stage.put(BATCH_LIMIT + 10)
    assert set(await stage.store.cancel_many([(one, NOTE) for one in ids])) == {"canceled"}
    answers = await stage.store.retry_many([(one, NOTE) for one in ids])
    assert answers == [Retried("queued")] * len(ids)
    await stage.store.cancel_many([(one, NOTE) for one in ids])
    assert await stage.store.delete([(one, GONE) for one in ids]) == ["deleted"] * len(ids)
    assert await stage.take(worker) == []


@pytest.mark.parametrize("delay_s", [HOUR_S, 0.0])
async def test_a_queued_task_is_due_now_by_its_id(stage: Stage, delay_s: float) -> None:
    worker = await stage.worker()
    task_id = await stage.put_one(delay_s=delay_s)
    hurry = Revision(task_id=task_id, hurry=True, only_queued=True, note=NOTE)
    assert await stage.store.revise([hurry]) == [task_id]
    lease = await stage.take_one(worker)
    assert lease.id == task_id
    assert await stage.store.revise([hurry]) == [None], "it runs"
    await stage.store.settle(worker, [again(lease, HOUR_S)])
    assert await stage.take(worker) == []
    assert await stage.store.revise([hurry, Revision(task_id=2**62, hurry=True)]) == [task_id, None]
    await stage.store.settle(worker, [done(await stage.take_one(worker))])
    assert await stage.store.revise([hurry]) == [None], "it has ended"
    assert len(await stage.store.actions_of(task_id)) == 2


async def test_new_arguments_may_leave_the_due_time_alone(stage: Stage) -> None:
    worker = await stage.worker()
    task_id = await stage.put_one(args='"old"', delay_s=HOUR_S)
    quiet = Revision(task_id=task_id, args='"new"', keeps_due=True)
    assert await stage.store.revise([quiet]) == [task_id]
    assert await stage.take(worker) == []
    assert (await stage.show(task_id)).args == "new"
    await stage.store.revise([Revision(task_id=task_id, hurry=True)])
    lease = await stage.take_one(worker)
    await stage.store.revise([Revision(task_id=task_id, args='"newer"', keeps_due=True)])
    await stage.store.settle(worker, [again(lease, HOUR_S)])
    assert await stage.take(worker) == [], "a running task is not due again for that"
    assert (await stage.show(task_id)).args == "newer"


async def test_ids_and_keys_in_one_call(stage: Stage) -> None:
    first = await stage.put_one(kind="check", key="a", args='"old"', delay_s=HOUR_S)
    second = await stage.put_one(args='"old"', delay_s=HOUR_S)
    revisions = [
        Revision(task_id=second, args='"new"', expects='"other"'),
        Revision("check", "a", '"new"', note=NOTE),
        Revision(task_id=second, args='"new"', expects='"old"', note=NOTE),
    ]
    assert await stage.store.revise(revisions) == [None, first, second]
    assert [len(await stage.store.actions_of(one)) for one in (first, second)] == [1, 1]
