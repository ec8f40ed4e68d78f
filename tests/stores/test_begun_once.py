"""No run begins twice under one key while the store remembers it, even if many callers come at the same moment."""

import asyncio
from typing import Any

import pytest

from everpoll.errors import BadInput
from everpoll.stores.contract import EndState, Enqueued, NewTask, Store, TaskFilter
from stores.stage import HOUR_S, NOTE, WATCH, Stage, again, done

ONE = NewTask(name="w", **WATCH, key="k", once=True)


def watch(key: str = "k", **fields: Any) -> NewTask:
    return NewTask(**{"name": "w", **WATCH, "key": key, "once": True, **fields})


async def begin(store: Store, task: NewTask = ONE) -> Enqueued:
    [answer] = await store.enqueue([task])
    return answer


@pytest.mark.parametrize("state", ["done", "failed", "canceled"])
async def test_an_ended_one_answers(stage: Stage, state: EndState) -> None:
    worker = await stage.worker()
    first = await begin(stage.store)
    assert first.is_new
    assert await begin(stage.store) == Enqueued(first.id, is_new=False)
    lease = await stage.take_one(worker)
    await stage.store.settle(worker, [again(lease, 0.0)])
    assert await begin(stage.store) == Enqueued(first.id, is_new=False)
    lease = await stage.take_one(worker)
    await stage.store.settle(worker, [done(lease, None, state)])
    assert await begin(stage.store) == Enqueued(first.id, is_new=False)
    assert await stage.take(worker) == []
    assert len((await stage.store.tasks(TaskFilter())).tasks) == 1


async def test_the_newest_ended_one_answers_and_a_live_one_before_it(stage: Stage) -> None:
    worker = await stage.worker()
    ended = [await stage.ended(worker, "failed", **WATCH, name="w", key="k") for _ in range(3)]
    assert await begin(stage.store) == Enqueued(ended[-1], is_new=False)
    live = await begin(stage.store, watch(once=False, delay_s=HOUR_S))
    assert live.is_new
    assert await begin(stage.store) == Enqueued(live.id, is_new=False)


async def test_after_a_retry_the_live_one_answers(stage: Stage) -> None:
    worker = await stage.worker()
    ended = await stage.ended(worker, "failed", **WATCH, name="w", key="k")
    assert await stage.store.retry(ended, NOTE)
    assert await begin(stage.store) == Enqueued(ended, is_new=False)
    assert len((await stage.store.tasks(TaskFilter())).tasks) == 1


async def test_what_is_forgotten_may_be_begun_again(stage: Stage) -> None:
    worker = await stage.worker()
    ended = await stage.ended(worker, **WATCH, name="w", key="k")
    await stage.pass_time(HOUR_S)
    await stage.store.prune(60.0)
    answer = await begin(stage.store)
    assert answer.is_new
    assert answer.id > ended


async def test_a_job_with_the_same_key_that_has_ended_is_not_meant(stage: Stage) -> None:
    worker = await stage.worker()
    await stage.ended(worker, key="k")
    assert (await begin(stage.store)).is_new


async def test_several_in_one_call(stage: Stage) -> None:
    """New, live, ended and repeated ones; ids and due times of the new are in the order of the call."""
    worker = await stage.worker()
    ended = await stage.ended(worker, **WATCH, name="w", key="ended")
    live = await begin(stage.store, watch("live"))
    keys = ["z", "ended", "live", "a", "z", "m", "ended"]
    tasks = [*(watch(key) for key in keys), NewTask(name="job"), NewTask(name="job", key="j")]
    answers = await stage.store.enqueue(tasks)
    assert [one.is_new for one in answers] == [True, False, False, True, False, True, False, True, True]
    assert [answers[1].id, answers[2].id, answers[6].id] == [ended, live.id, ended]
    assert answers[4] == Enqueued(answers[0].id, is_new=False)
    new = [one.id for one in answers if one.is_new]
    assert new == sorted(new)
    assert [one.id for one in await stage.take(worker)] == [live.id, *new]


@pytest.mark.parametrize("fields", [{"indexed": False}, {"key": None}])
async def test_it_is_for_watches_with_a_key(stage: Stage, fields: dict[str, Any]) -> None:
    """Nothing of the call is enqueued then."""
    for tasks in ([watch(**fields)], [NewTask(name="job"), watch(**fields)]):
        with pytest.raises(BadInput, match="once"):
            await stage.store.enqueue(tasks)
    assert (await stage.store.tasks(TaskFilter())).tasks == ()


async def test_several_begin_it_at_once(stage: Stage) -> None:
    stores = [stage.store, *[await stage.another_store() for _ in range(3)]]
    for number in range(40):
        answers = await asyncio.gather(*(begin(store, watch(f"k{number}")) for store in stores for _ in range(2)))
        assert len({answer.id for answer in answers}) == 1
        assert sum(answer.is_new for answer in answers) == 1


async def test_several_begin_many_in_any_order(stage: Stage) -> None:
    """A caller that takes the same keys the other way round neither blocks the others nor begins one twice."""
    other = await stage.another_store()
    for number in range(10):
        tasks = [watch(f"{number}-{key}") for key in range(60)]
        mine, theirs = await asyncio.gather(stage.store.enqueue(tasks), other.enqueue(tasks[::-1]))
        assert [one.id for one in mine] == [one.id for one in reversed(theirs)]
        assert sum(one.is_new for one in (*mine, *theirs)) == 60


async def test_it_ends_while_others_begin_it(stage: Stage) -> None:
    """Between the row's last moment among the live and its first in history there is no gap to slip through."""
    worker = await stage.worker()
    others = [await stage.another_store() for _ in range(3)]
    for number in range(60):
        task = watch(f"k{number}")
        first = await begin(stage.store, task)
        lease = await stage.take_one(worker)
        lost, *answers = await asyncio.gather(
            stage.store.settle(worker, [done(lease)]), *(begin(store, task) for store in others for _ in range(3))
        )
        assert lost == set()
        assert set(answers) == {Enqueued(first.id, is_new=False)}


async def test_it_is_retried_while_others_begin_it(stage: Stage) -> None:
    worker = await stage.worker()
    others = [await stage.another_store() for _ in range(3)]
    task_id = await stage.ended(worker, **WATCH, name="w", key="k")
    for _ in range(40):
        is_back, *answers = await asyncio.gather(
            stage.store.retry(task_id, NOTE), *(begin(store) for store in others for _ in range(2))
        )
        assert is_back
        assert set(answers) == {Enqueued(task_id, is_new=False)}
        await stage.store.settle(worker, [done(await stage.take_one(worker))])
