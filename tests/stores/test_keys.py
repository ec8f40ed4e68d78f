"""A key has at most one live task; enqueueing it again answers with that one."""

from typing import Any

import pytest

from everpoll.stores.contract import NewTask, TaskFilter
from stores.stage import HOUR_S, WATCH, Stage, again, done

NOTE = '{"what":"test"}'


def keyed(key: str | None = "k", **fields: Any) -> NewTask:
    return NewTask(name="job", key=key, **fields)


async def test_the_live_one_is_the_answer(stage: Stage) -> None:
    [first] = await stage.store.enqueue([keyed(args="1")])
    [second] = await stage.store.enqueue([keyed(args="2", delay_s=HOUR_S, priority=9, queue="other")])
    assert first.is_new
    assert (second.id, second.is_new) == (first.id, False)
    shown = await stage.show(first.id)
    assert (shown.args, shown.priority, shown.queue) == (1, 0, "default")
    assert len((await stage.store.tasks(TaskFilter())).tasks) == 1


async def test_a_job_and_a_watch_may_have_the_same_key(stage: Stage) -> None:
    """A job key `report:2026` must not swallow the run `2026` of the watch `report`."""
    tasks = [keyed(), keyed(**WATCH), keyed(**WATCH, once=True), keyed(kind="other")]
    answers = [(await stage.store.enqueue([task]))[0] for task in tasks]
    together = await stage.store.enqueue(tasks)
    assert [one.is_new for one in answers] == [True, True, False, True]
    assert [one.id for one in together] == [one.id for one in answers]
    for task in tasks:
        shown = await stage.store.find(task.kind, "k")
        assert shown is not None
        assert shown.kind == task.kind
    worker = await stage.worker()
    for lease in await stage.take(worker):
        await stage.store.settle(worker, [done(lease, state="failed")])
    job, watch, _, other = answers
    assert await stage.store.retry(watch.id, NOTE)
    assert await stage.store.retry(job.id, NOTE)
    assert await stage.store.retry(other.id, NOTE)


async def test_the_first_of_a_call_wins(stage: Stage) -> None:
    tasks = [keyed(args="1"), keyed("other"), keyed(args="2"), keyed(None), keyed(None), keyed("other")]
    answers = await stage.store.enqueue(tasks)
    assert [one.is_new for one in answers] == [True, True, False, True, True, False]
    assert answers[2].id == answers[0].id
    assert answers[5].id == answers[1].id
    assert len({one.id for one in answers}) == 4
    assert (await stage.show(answers[0].id)).args == 1


async def test_new_and_known_keys_in_one_call(stage: Stage) -> None:
    [known] = await stage.store.enqueue([keyed("b")])
    answers = await stage.store.enqueue([keyed("a"), keyed("b"), keyed("c"), keyed("b"), keyed("a")])
    assert [one.is_new for one in answers] == [True, False, True, False, False]
    assert answers[1].id == answers[3].id == known.id
    assert answers[4].id == answers[0].id


async def test_while_it_runs_the_key_is_taken(stage: Stage) -> None:
    worker = await stage.worker()
    lease = await stage.running(worker, key="k")
    [answer] = await stage.store.enqueue([keyed()])
    assert (answer.id, answer.is_new) == (lease.id, False)


async def test_while_it_waits_again_the_key_is_taken(stage: Stage) -> None:
    worker = await stage.worker()
    lease = await stage.running(worker, key="k")
    await stage.store.settle(worker, [again(lease, HOUR_S)])
    [answer] = await stage.store.enqueue([keyed()])
    assert (answer.id, answer.is_new) == (lease.id, False)


@pytest.mark.parametrize("state", ["done", "failed", "canceled"])
async def test_the_end_frees_the_key(stage: Stage, state: Any) -> None:
    worker = await stage.worker()
    lease = await stage.running(worker, key="k")
    await stage.store.settle(worker, [done(lease, None, state)])
    [answer] = await stage.store.enqueue([keyed()])
    assert answer.is_new
    assert answer.id > lease.id
    assert (await stage.show(lease.id)).key == "k"


async def test_a_cancel_frees_the_key(stage: Stage) -> None:
    [first] = await stage.store.enqueue([keyed(delay_s=HOUR_S)])
    await stage.store.cancel(first.id, NOTE)
    [second] = await stage.store.enqueue([keyed()])
    assert second.is_new


async def test_a_rescue_does_not_free_the_key(stage: Stage) -> None:
    worker = await stage.worker()
    lease = await stage.running(worker, key="k")
    await stage.bury(worker)
    [answer] = await stage.store.enqueue([keyed()])
    assert (answer.id, answer.is_new) == (lease.id, False)


async def test_keys_are_compared_exactly(stage: Stage) -> None:
    """No folding of case, accents, spaces or numbers; the empty key is a key."""
    keys = ["k", "K", " k", "k ", "", "1", "01", "1.0", "é", "e\u0301", "ß", "ss", "%", "_", "\\", "'", '"', "null"]
    answers = await stage.store.enqueue([keyed(key) for key in keys])
    assert all(one.is_new for one in answers)
    repeated = await stage.store.enqueue([keyed(key) for key in reversed(keys)])
    assert [(one.id, one.is_new) for one in repeated] == [(one.id, False) for one in reversed(answers)]


async def test_tasks_without_key_are_never_the_same(stage: Stage) -> None:
    ids = await stage.put(3, key=None)
    assert len(set(ids)) == 3


async def test_retry_does_not_make_a_second_live_task_of_a_key(stage: Stage) -> None:
    worker = await stage.worker()
    ended = await stage.ended(worker, "failed", key="k")
    [live] = await stage.store.enqueue([keyed()])
    assert live.is_new
    assert not await stage.store.retry(ended, NOTE)
    assert (await stage.show(ended)).state == "failed"
    await stage.store.cancel(live.id, NOTE)
    assert await stage.store.retry(ended, NOTE)
    [answer] = await stage.store.enqueue([keyed()])
    assert (answer.id, answer.is_new) == (ended, False)
