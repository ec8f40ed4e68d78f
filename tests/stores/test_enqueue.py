"""All tasks of a call are enqueued, in order, or none is; whatever JSON and names they carry comes back unchanged."""

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from everpoll.stores.contract import NewTask, TaskFilter
from stores.stage import HOUR_S, Stage, json

ODD = [
    "",
    " ",
    "a b",
    "ünï çödé 漢字 🎉",
    "e\u0301",
    "\u202ertl",
    'it\'s "quoted" `too`',
    "back\\slash \\u0041 \\n",
    "line\nbreak\ttab\r",
    "$1 %s %(name)s {0} ?1 :name @x",
    "'; drop table tasks; --",
    "[1,2]",
    "null",
    "x" * 500,
]


async def test_in_order(stage: Stage) -> None:
    tasks = [NewTask(name=f"n{number}", args=str(number), priority=number % 3) for number in range(100)]
    answers = await stage.store.enqueue(tasks)
    assert all(one.is_new for one in answers)
    ids = [one.id for one in answers]
    assert ids == sorted(set(ids))
    shown = await stage.store.info(ids)
    assert [(shown[task_id].name, shown[task_id].args) for task_id in ids] == [(f"n{n}", n) for n in range(100)]
    assert [shown[task_id].priority for task_id in ids] == [number % 3 for number in range(100)]


async def test_nothing_is_nothing(stage: Stage) -> None:
    assert await stage.store.enqueue([]) == []


async def test_five_thousand_at_once(stage: Stage) -> None:
    answers = await stage.store.enqueue([NewTask(name="job", args=str(number)) for number in range(5000)])
    ids = [one.id for one in answers]
    assert ids == sorted(set(ids))
    shown = await stage.store.info(ids)
    assert [shown[task_id].args for task_id in ids] == list(range(5000))


async def test_five_thousand_with_keys(stage: Stage) -> None:
    """A quarter of them known, a quarter of them twice in the call."""
    known = await stage.store.enqueue([NewTask(name="job", key=str(number)) for number in range(1000)])
    keys = [str(number) for number in range(2000)] + [str(number) for number in range(1000, 2000)] + [None] * 2000
    answers = await stage.store.enqueue([NewTask(name="job", key=key) for key in keys])
    assert [one.is_new for one in answers] == [False] * 1000 + [True] * 1000 + [False] * 1000 + [True] * 2000
    assert [one.id for one in answers[:1000]] == [one.id for one in known]
    assert [one.id for one in answers[2000:3000]] == [one.id for one in answers[1000:2000]]
    shown = await stage.store.info([one.id for one in answers])
    assert [shown[one.id].key for one in answers] == keys


@pytest.mark.parametrize("keyed", ["without keys", "with keys"])
async def test_all_or_none(stage: Stage, keyed: str) -> None:
    """One of them cannot be stored: the others are not, and the store is as good as before."""
    broken: Any = None
    key = "k" if keyed == "with keys" else None
    tasks = [NewTask(name="a", key=key), NewTask(name="b", delay_s=broken), NewTask(name="c")]
    with suppress(Exception):
        await stage.store.enqueue(tasks)
        pytest.fail("a delay of None must not delay")
    assert (await stage.store.tasks(TaskFilter())).tasks == ()
    [answer] = await stage.store.enqueue([NewTask(name="a", key=key)])
    assert answer.is_new


async def test_a_call_that_fails_does_not_harm_the_others(stage: Stage) -> None:
    """Concurrent calls may share a statement; each of them stands alone."""
    broken: Any = None
    calls = [[NewTask(name=f"n{number}")] for number in range(20)]
    calls[7] = [NewTask(name="broken", delay_s=broken)]
    answers = await asyncio.gather(*(stage.store.enqueue(tasks) for tasks in calls), return_exceptions=True)
    assert [isinstance(answer, Exception) for answer in answers] == [number == 7 for number in range(20)]
    page = await stage.store.tasks(TaskFilter())
    assert sorted(one.name for one in page.tasks) == sorted(f"n{number}" for number in range(20) if number != 7)


async def test_concurrent_calls_get_their_own_answers(stage: Stage) -> None:
    calls = [
        [NewTask(name=f"n{caller}-{number}", args=str(caller)) for number in range(caller % 4)] for caller in range(60)
    ]
    answers = await asyncio.gather(*(stage.store.enqueue(tasks) for tasks in calls))
    ids = [one.id for answer in answers for one in answer]
    shown = await stage.store.info(ids)
    assert [shown[task_id].name for task_id in ids] == [task.name for tasks in calls for task in tasks]


@pytest.mark.parametrize("text", ODD, ids=range(len(ODD)))
async def test_odd_names(stage: Stage, text: str) -> None:
    worker = await stage.worker()
    [answer] = await stage.store.enqueue([NewTask(name=text, queue=text, key=text, kind=text)])
    [lease] = await stage.take(worker, 5, text)
    assert (lease.id, lease.name, lease.queue, lease.key) == (answer.id, text, text, text)
    shown = await stage.show(answer.id)
    assert (shown.name, shown.queue, shown.key, shown.kind) == (text, text, text, text)
    wanted = TaskFilter(name=text, queue=text, kind=text, state="running")
    assert [one.id for one in (await stage.store.tasks(wanted)).tasks] == [answer.id]
    assert [one.queue for one in await stage.store.queues()] == [text]
    [again] = await stage.store.enqueue([NewTask(name="other", key=text, kind=text)])
    assert not again.is_new


@pytest.mark.parametrize(
    "value",
    [None, True, 0, -1.5e300, 2**63 - 1, "", "nul \0 in the middle", [], {}, {"": {"a": [1, [2, [3]]]}}, *ODD],
    ids=lambda value: type(value).__name__,
)
async def test_any_json_comes_back(stage: Stage, value: Any) -> None:
    """Byte for byte in the lease, decoded for people."""
    worker = await stage.worker()
    lease = await stage.running(worker, args=json(value), memory=json(value))
    assert (lease.args, lease.memory) == (json(value), json(value))
    shown = await stage.show(lease.id)
    assert (shown.args, shown.memory) == (value, value)


async def test_the_text_is_not_touched(stage: Stage) -> None:
    """The store does not read JSON: spaces, order and doubles of keys, and long numbers stay as they are."""
    text = '{ "b" : 1.10, "a":[ ],  "b":12345678901234567890123, "c":"\\u00e4" }'
    lease = await stage.running(await stage.worker(), args=text)
    assert lease.args == text


async def test_huge_arguments(stage: Stage) -> None:
    value = {"blob": "ä\0" * 1_000_000}
    lease = await stage.running(await stage.worker(), args=json(value))
    assert lease.args == json(value)


async def test_a_new_task_as_people_see_it(stage: Stage) -> None:
    task_id = await stage.put_one(delay_s=90)
    shown = await stage.show(task_id)
    assert (shown.state, shown.kind, shown.priority, shown.attempt, shown.rescues) == ("queued", "job", 0, 0, 0)
    assert (shown.started_at, shown.ended_at, shown.worker, shown.trail) == (None, None, None, ())
    assert (shown.due_at - shown.created_at).total_seconds() == pytest.approx(90, abs=0.01)
    assert shown.created_at.tzinfo is not None


async def test_delays_of_any_length(stage: Stage) -> None:
    ids = [await stage.put_one(delay_s=delay_s) for delay_s in (0.001, 0.25, HOUR_S, 50 * 365 * 24 * HOUR_S)]
    shown = await stage.store.info(ids)
    waits = [(shown[one].due_at - shown[one].created_at).total_seconds() for one in ids]
    assert waits == pytest.approx([0.001, 0.25, HOUR_S, 50 * 365 * 24 * HOUR_S], abs=0.01)


async def test_another_store_object_sees_it_at_once(stage: Stage) -> None:
    other = await stage.another_store()
    task_id = await stage.put_one()
    assert set(await other.info([task_id])) == {task_id}
    [answer] = await other.enqueue([NewTask(name="job")])
    assert set(await stage.store.info([answer.id])) == {answer.id}
