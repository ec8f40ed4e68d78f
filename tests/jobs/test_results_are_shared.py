"""Waiting for results: one batched look for all waiters, quick at first, bounded after, and none without waiters."""

import asyncio
import logging
from collections.abc import Sequence

import pytest

from engine.engine_stage import GONE, SpyStore
from everpoll import Everpoll, JobCanceled, NotRunning
from everpoll.jobs.results import QUERY_LIMIT, Results
from everpoll.stores import limits
from everpoll.stores.contract import Ended, NewTask, TaskInfo, WorkerCard
from everpoll.testing import VirtualClock
from jobs.jobs_stage import LIMIT_S, counted, soon

CARD = WorkerCard(incarnation=7, label="w", host="here", pid=1, queues=("default",), slots=4, version="0")


class EndedStore(SpyStore):
    """Records which tasks each look asked about."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock)
        self.asked: list[int] = []

    async def ended(self, task_ids: Sequence[int]) -> dict[int, TaskInfo | None]:
        self.asked.append(len(task_ids))
        return await super().ended(task_ids)

    async def put(self, how_many: int) -> list[int]:
        return [one.id for one in await self.enqueue([NewTask(name="f")] * how_many)]


async def test_the_waiters_of_a_process_share_one_look(app: Everpoll) -> None:
    let_go = asyncio.Event()

    @app.job()
    async def f(number: int) -> int:
        await soon(let_go)
        return number

    async with app:
        tasks = await f.enqueue_many([(number,) for number in range(40)])
        calls = counted(app, "ended")
        waiting = [asyncio.ensure_future(task.result(timeout=LIMIT_S)) for task in tasks for _ in range(5)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        let_go.set()
        results = await asyncio.gather(*waiting)
    assert results == [number for number in range(40) for _ in range(5)]
    # Each look asks once about all tasks with waiters: a handful of looks, not one for each of the 200 waiters.
    assert len(calls) < 40
    assert max(len(asked) for (asked,) in calls) == 40


async def test_results_that_do_not_fit_into_one_answer_follow_at_once(
    app: Everpoll, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "READ_BYTES", 2_500)
    let_go = asyncio.Event()

    @app.job()
    async def f(number: int) -> str:
        await soon(let_go)
        return f"{number}" * 1_000

    async with app:
        tasks = await f.enqueue_many([(number,) for number in range(10)])
        waiting = [asyncio.ensure_future(task.result(timeout=LIMIT_S)) for task in tasks]
        let_go.set()
        assert await asyncio.gather(*waiting) == [f"{number}" * 1_000 for number in range(10)]


def test_a_look_that_was_cut_is_continued_without_a_rest() -> None:
    clock = VirtualClock()
    store = EndedStore(clock)

    async def scene() -> None:
        results = Results(store)
        ids = await store.put(4)
        waiting = [asyncio.ensure_future(results.wait(task_id)) for task_id in ids]
        await asyncio.sleep(60)  # By now a look comes once a second.
        await store.sign_on(CARD, 60)
        leases = (await store.lease(CARD.incarnation, {"default": 4}, 4)).leases
        await store.settle(CARD.incarnation, [Ended(one.id, one.sequence, result='"large"') for one in leases])
        before, since = len(store.asked), clock.now()
        await asyncio.gather(*waiting)
        assert clock.now() - since <= 1.0
        assert store.asked[before:] == [4, 3, 2, 1]
        await results.close()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "READ_BYTES", 1)
        clock.run(scene())


def test_looks_come_quickly_at_first_and_then_once_a_second() -> None:
    clock = VirtualClock()
    store = EndedStore(clock)

    async def scene() -> None:
        results = Results(store)
        waiting = [asyncio.ensure_future(results.wait(task_id)) for task_id in await store.put(100)]
        await clock.advance(0.1)
        assert 3 <= len(store.asked) <= 5
        await clock.advance(99.9)
        assert len(store.asked) <= 110
        assert set(store.asked) == {100}
        await results.close()
        await asyncio.gather(*waiting, return_exceptions=True)

    clock.run(scene())


def test_a_result_settled_by_this_process_is_seen_at_once() -> None:
    clock = VirtualClock()
    store = EndedStore(clock)

    async def scene() -> None:
        results = Results(store)
        [task_id, other] = await store.put(2)
        waiting = asyncio.ensure_future(results.wait(task_id))
        await clock.advance(60.5)
        looks = len(store.asked)
        results.settled([other])
        await clock.settle()
        assert len(store.asked) == looks  # not waited for: no look
        await store.cancel(task_id, '{"what":"cancel"}')
        results.settled([task_id])
        await clock.settle()
        assert (await waiting).state == "canceled"
        assert clock.now() == 60.5
        await results.close()

    clock.run(scene())


def test_a_caller_that_gives_up_takes_the_answer_from_no_other_and_the_last_one_ends_the_looks() -> None:
    clock = VirtualClock()
    store = EndedStore(clock)

    async def scene() -> None:
        results = Results(store)
        [task_id] = await store.put(1)
        first, second = (asyncio.ensure_future(results.wait(task_id)) for _ in range(2))
        await clock.advance(5)
        first.cancel()
        await clock.advance(5)
        assert not second.done()
        second.cancel()
        await clock.advance(2)
        looks = len(store.asked)
        await clock.advance(3600)
        assert len(store.asked) == looks
        assert asyncio.all_tasks() == {asyncio.current_task()}
        third = asyncio.ensure_future(results.wait(task_id))
        await store.cancel(task_id, '{"what":"cancel"}')
        await clock.advance(2)
        assert (await third).state == "canceled"

    clock.run(scene())


def test_an_outage_is_waited_out_and_any_other_error_reaches_the_callers_that_wait(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = VirtualClock()
    store = EndedStore(clock)

    async def scene() -> None:
        results = Results(store)
        [task_id] = await store.put(1)
        store.fail("ended", 10, GONE)
        waiting = asyncio.ensure_future(results.wait(task_id))
        await clock.advance(5)
        assert not waiting.done()
        store.fail("ended", 1, ValueError("a bug of the driver"))
        await clock.advance(20)
        with pytest.raises(ValueError, match="a bug of the driver"):
            await waiting
        await results.close()

    with caplog.at_level(logging.DEBUG, "everpoll.engine"):
        clock.run(scene())
    answer = [one.levelno for one in caplog.records if "cannot query results: connection refused" in one.message]
    assert answer == [logging.WARNING, *[logging.DEBUG] * 9]


def test_more_tasks_than_fit_into_one_look_are_asked_about_in_slices() -> None:
    clock = VirtualClock()
    store = EndedStore(clock)

    async def scene() -> None:
        results = Results(store)
        ids = await store.put(QUERY_LIMIT + 5)
        waiting = [asyncio.ensure_future(results.wait(task_id)) for task_id in ids]
        await clock.settle()
        assert store.asked == [QUERY_LIMIT, 5]
        await results.close()
        await asyncio.gather(*waiting, return_exceptions=True)

    clock.run(scene())


async def test_a_wait_ends_with_a_clear_error_when_the_app_is_closed_not_with_a_cancellation(app: Everpoll) -> None:
    @app.job()
    async def f() -> None: ...

    task = await f.enqueue(delay="1h")
    waiting = asyncio.ensure_future(task.result())
    await asyncio.sleep(0.01)
    await app.close()
    with pytest.raises(NotRunning, match="the app was closed before the task had ended"):
        await waiting


async def test_not_ended_in_time_raises_timeout_error_and_tells_its_state(app: Everpoll) -> None:
    @app.job()
    async def f() -> None: ...

    task = await f.enqueue(delay="1h")
    with pytest.raises(TimeoutError, match=rf"task {task.id} has not ended within 20ms: it is queued"):
        await task.result(timeout="20ms")
    with pytest.raises(TimeoutError):
        await task.result(timeout=0)
    await task.cancel("no")
    with pytest.raises(JobCanceled):
        await task.result(timeout=0)  # it has ended: no time is needed to say so
    await app.close()
