"""Where a key is taken: an ended task still answers, a waiting one is replaced, a whole call is rejected."""

import asyncio
from typing import Any

import pytest

from everpoll.errors import BadInput
from everpoll.stores.contract import EndState, Enqueued, Limit, NewTask, OnConflict, TaskFilter, Unique
from stores.stage import HOUR_S, NOTE, Stage, again, done, whats

MINUTE_S = 60.0


def unique(on_conflict: OnConflict = "existing", for_s: float | None = None, **fields: Any) -> NewTask:
    rules = Unique(on_conflict, for_s, together=fields.pop("together", False))
    return NewTask(**{"name": "job", "key": "k", "unique": rules, "indexed": for_s is not None, **fields})


async def put(stage: Stage, task: NewTask) -> Enqueued:
    [answer] = await stage.store.enqueue([task])
    return answer


async def count(stage: Stage) -> int:
    return len((await stage.store.tasks(TaskFilter())).tasks)


@pytest.mark.parametrize("state", ["done", "failed", "canceled"])
@pytest.mark.parametrize("on_conflict", ["existing", "reject", "replace"])
async def test_an_ended_task_answers_for_as_long_as_was_said(
    stage: Stage, state: EndState, on_conflict: OnConflict
) -> None:
    worker = await stage.worker()
    task = unique(on_conflict, 10 * MINUTE_S)
    first = await put(stage, task)
    assert first.is_new
    lease = await stage.take_one(worker)
    await stage.store.settle(worker, [done(lease, None, state)])
    assert await put(stage, task) == Enqueued(first.id, is_new=False)
    await stage.pass_time(9 * MINUTE_S)
    assert await put(stage, task) == Enqueued(first.id, is_new=False)
    await stage.pass_time(2 * MINUTE_S)
    second = await put(stage, task)
    assert (second.is_new, second.id > first.id) == (True, True)


async def test_the_time_counts_from_the_enqueue(stage: Stage) -> None:
    """A task that waited and ran for long is forgotten as soon as it ends; until then it has its key."""
    worker = await stage.worker()
    first = await put(stage, unique(for_s=MINUTE_S))
    await stage.pass_time(HOUR_S)
    assert await put(stage, unique(for_s=MINUTE_S)) == Enqueued(first.id, is_new=False)
    await stage.store.settle(worker, [done(await stage.take_one(worker))])
    assert (await put(stage, unique(for_s=MINUTE_S))).is_new


async def test_without_a_time_only_live_tasks_answer(stage: Stage) -> None:
    worker = await stage.worker()
    first = await put(stage, unique(for_s=HOUR_S))
    await stage.store.settle(worker, [done(await stage.take_one(worker))])
    second = await put(stage, NewTask(name="job", key="k"))
    assert second.is_new
    assert second.id > first.id


async def test_a_waiting_task_takes_everything_that_the_new_one_brings(stage: Stage) -> None:
    first = await put(stage, unique(args="1", delay_s=HOUR_S, priority=1))
    limit = Limit("l", running=3)
    newer = unique("replace", args="2", priority=7, queue="other", name="else", timeout_s=9.0, limit=limit)
    assert await put(stage, newer) == Enqueued(first.id, is_new=False)
    shown = await stage.show(first.id)
    assert (shown.args, shown.priority, shown.queue, shown.name) == (2, 7, "other", "else")
    assert (shown.key, shown.limit, shown.attempt, whats(shown)) == ("k", limit, 0, ["replaced"])
    assert await stage.due_in_s(first.id) <= 0
    assert await count(stage) == 2  # with the task that gave the time
    worker = await stage.worker(queues=("default", "other"))
    assert await stage.take(worker, 5, "default") == []
    lease = await stage.take_one(worker, "other")
    assert (lease.id, lease.args, lease.name, lease.attempt) == (first.id, "2", "else", 1)


async def test_each_replacement_begins_the_delay_anew(stage: Stage) -> None:
    """A debounce: the task runs once, after the last of them, with what that one brought."""
    worker = await stage.worker()
    answers = []
    for number in range(4):
        answers.append(await put(stage, unique("replace", args=str(number), delay_s=MINUTE_S)))
        await stage.pass_time(0.75 * MINUTE_S)
        assert await stage.take(worker) == []
    assert [one.is_new for one in answers] == [True, False, False, False]
    assert len({one.id for one in answers}) == 1
    await stage.pass_time(0.5 * MINUTE_S)
    lease = await stage.take_one(worker)
    assert lease.args == "3"
    assert whats(await stage.show(lease.id)) == ["replaced"], "of several in a row the trail has one"


async def test_a_task_that_waits_for_its_next_attempt_starts_over(stage: Stage) -> None:
    worker = await stage.worker()
    lease = await stage.running(worker, key="k")
    failed = '{"what":"retry","type":"ValueError","error":"x"}'
    await stage.store.settle(worker, [again(lease, HOUR_S, note=failed)])
    await put(stage, unique("replace", args="2"))
    shown = await stage.show(lease.id)
    assert (shown.attempt, shown.started_at, whats(shown)) == (0, None, ["retry", "replaced"])
    assert (await stage.store.tasks(TaskFilter(error="ValueError"))).tasks == ()
    second = await stage.take_one(worker)
    assert (second.id, second.attempt, second.args) == (lease.id, 1, "2")
    assert second.sequence > lease.sequence
    assert await stage.store.settle(worker, [done(lease)]) == {lease.id}, "an old lease stays lost"
    assert await stage.store.settle(worker, [done(second)]) == set()


async def test_a_running_task_goes_on_and_the_key_passes_to_a_new_one(stage: Stage) -> None:
    worker = await stage.worker()
    lease = await stage.running(worker, key="k", args="1")
    second = await put(stage, unique("replace", args="2", delay_s=HOUR_S))
    assert second.is_new
    assert (await stage.show(lease.id)).key is None
    third = await put(stage, unique("replace", args="3"))
    assert third == Enqueued(second.id, is_new=False)
    assert await stage.store.settle(worker, [done(lease, "kept")]) == set()
    assert (await stage.show(lease.id)).result == "kept"
    assert (await stage.take_one(worker)).args == "3"


async def test_a_running_task_without_its_key_may_be_tried_again(stage: Stage) -> None:
    worker = await stage.worker()
    lease = await stage.running(worker, key="k")
    second = await put(stage, unique("replace", for_s=HOUR_S))
    assert second.is_new, "a running task does not answer for the time that was said"
    await stage.store.settle(worker, [again(lease)])
    assert {one.id for one in await stage.take(worker)} == {lease.id, second.id}


async def test_a_replacement_of_nothing_is_an_enqueue(stage: Stage) -> None:
    worker = await stage.worker()
    first = await put(stage, unique("replace", args="1"))
    assert first.is_new
    await stage.store.settle(worker, [done(await stage.take_one(worker))])
    second = await put(stage, unique("replace", args="2"))
    assert (second.is_new, second.id > first.id) == (True, True)


async def test_of_several_replacements_in_one_call_the_last_counts(stage: Stage) -> None:
    tasks = [unique("replace", args="1"), unique("replace", args="2", key="l"), unique("replace", args="3")]
    answers = await stage.store.enqueue([*tasks, NewTask(name="plain")])
    assert [one.is_new for one in answers] == [True, True, False, True]
    assert answers[2].id == answers[0].id
    assert (await stage.show(answers[0].id)).args == 3


@pytest.mark.parametrize("held", ["live", "ended"])
async def test_a_call_is_rejected_as_a_whole(stage: Stage, held: str) -> None:
    worker = await stage.worker()
    first = await put(stage, unique(for_s=HOUR_S, key="taken"))
    if held == "ended":
        await stage.store.settle(worker, [done(await stage.take_one(worker))])
    before = await count(stage)
    keys = ["a", "taken", "b"]
    tasks = [unique("reject", HOUR_S, key=key, together=True) for key in keys]
    assert await stage.store.enqueue(tasks) == [
        Enqueued(0, is_new=False),
        Enqueued(first.id, is_new=False),
        Enqueued(0, is_new=False),
    ]
    assert await count(stage) == before
    assert all(one.is_new for one in await stage.store.enqueue([tasks[0], tasks[2]]))


async def test_a_rejected_task_leaves_the_others_of_its_statement_alone(stage: Stage) -> None:
    """Callers that share a statement do not share its conflicts."""
    first = await put(stage, unique())
    answers = await stage.store.enqueue([NewTask(name="a"), unique("reject", HOUR_S), NewTask(name="b", key="b")])
    assert [one.is_new for one in answers] == [True, False, True]
    assert answers[1].id == first.id


async def test_many_at_once_make_one_task(stage: Stage) -> None:
    """Stores of several processes, all with the same key at the same moment."""
    stores = [stage.store, *[await stage.another_store() for _ in range(3)]]
    for on_conflict in ("existing", "replace"):
        tasks = [unique(on_conflict, HOUR_S, key=on_conflict, args=str(number)) for number in range(40)]
        calls = (stores[number % 4].enqueue([task]) for number, task in enumerate(tasks))
        answers = [one for [one] in await asyncio.gather(*calls)]
        assert sum(one.is_new for one in answers) == 1
        assert len({one.id for one in answers}) == 1


async def test_a_replacement_beside_leases_and_ends_loses_nothing(stage: Stage) -> None:
    """Whatever happens to the task at that moment: what was enqueued runs, or was replaced by a later one."""
    store = await stage.another_store()
    worker = await stage.worker()
    ran: list[int] = []
    is_over = asyncio.Event()

    async def work() -> None:
        while not is_over.is_set() or await stage.store.find("job", "k") is not None:
            leases = await stage.take(worker)
            ran.extend(int(one.args) for one in leases)
            assert await stage.store.settle(worker, [done(one) for one in leases]) == set()
            await asyncio.sleep(0)

    async def enqueue() -> None:
        for number in range(60):
            await store.enqueue([unique("replace", args=str(number))])
        is_over.set()

    async with asyncio.timeout(60):
        await asyncio.gather(work(), enqueue())
    assert ran == sorted(set(ran)), "in order, none twice"
    assert ran[-1] == 59


@pytest.mark.parametrize(
    ("task", "says"),
    [
        (NewTask(name="job", unique=Unique()), "needs a key"),
        (unique("odd"), "on_conflict must be one of existing, reject, replace"),  # type: ignore[arg-type]
        (unique(for_s=0.0), "for_s must be a number of seconds above 0"),
        (unique(for_s=float("nan")), "for_s must be a number of seconds above 0"),
    ],
)
async def test_what_makes_no_sense_is_refused(stage: Stage, task: NewTask, says: str) -> None:
    with pytest.raises(BadInput, match=says):
        await stage.store.enqueue([task])


async def test_a_canceled_task_is_not_replaced(stage: Stage) -> None:
    first = await put(stage, unique("replace", delay_s=HOUR_S))
    await stage.store.cancel(first.id, NOTE)
    second = await put(stage, unique("replace"))
    assert (second.is_new, (await stage.show(first.id)).state) == (True, "canceled")
