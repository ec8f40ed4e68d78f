"""Concurrent enqueues of one process share a statement; no caller waits for others, or fails because of one."""

import asyncio
from collections.abc import Sequence

import pytest

from engine.engine_stage import SpyStore
from everpoll import Everpoll, StoreUnavailable
from everpoll.engine.enqueuer import BATCH, Enqueuer
from everpoll.stores.contract import Enqueued, NewTask, TaskFilter
from everpoll.stores.limits import STATEMENT_BYTES
from everpoll.stores.memory import MemoryStore
from everpoll.testing import VirtualClock
from jobs.jobs_stage import counted


class SlowStore(SpyStore):
    """Takes a second for an enqueue, and records how many tasks each had."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock)
        self.batches: list[int] = []

    async def enqueue(self, tasks: Sequence[NewTask]) -> list[Enqueued]:
        self.batches.append(len(tasks))
        await asyncio.sleep(1)
        return await super().enqueue(tasks)

    async def names(self) -> list[str]:
        return sorted(task.name for task in (await self.tasks(TaskFilter(), limit=10_000)).tasks)


class PickyStore(SlowStore):
    """Refuses every statement with a culprit in it."""

    async def enqueue(self, tasks: Sequence[NewTask]) -> list[Enqueued]:
        if any(task.name == "culprit" for task in tasks):
            self.batches.append(len(tasks))
            raise ValueError("a trigger of the user's")
        return await super().enqueue(tasks)


def new(name: str = "f", **fields: str) -> NewTask:
    return NewTask(name=name, **fields)  # type: ignore[arg-type]


async def test_concurrent_callers_share_one_statement_on_every_store(app: Everpoll) -> None:
    @app.job()
    async def f(number: int) -> None: ...

    await f.enqueue(0)
    calls = counted(app, "enqueue")
    tasks = await asyncio.gather(*(f.enqueue(number) for number in range(200)))
    assert len({task.id for task in tasks}) == 200
    # The first goes at once, alone; callers that come meanwhile share the next one. Memory is never under way.
    expected = [1] * 200 if isinstance(app._store, MemoryStore) else [1, 199]
    assert [len(batch) for (batch,) in calls] == expected
    infos = await (await app.store()).info([task.id for task in tasks])
    assert [infos[task.id].args["args"] for task in tasks] == [[number] for number in range(200)]
    await app.close()


def test_the_first_goes_at_once_and_callers_that_come_meanwhile_share_the_next() -> None:
    clock = VirtualClock()
    store = SlowStore(clock)

    async def scene() -> None:
        enqueuer = Enqueuer(store)
        answers = await asyncio.gather(*(enqueuer.one(new()) for _ in range(50)))
        assert store.batches == [1, 49]
        assert [answer.id for answer in answers] == list(range(1, 51))
        assert clock.now() == 2
        await enqueuer.one(new())  # alone again: at once
        assert (store.batches[2:], clock.now()) == ([1], 3)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    clock.run(scene())


def test_a_batch_has_an_upper_bound() -> None:
    clock = VirtualClock()
    store = SlowStore(clock)

    async def scene() -> None:
        enqueuer = Enqueuer(store)
        answers = await asyncio.gather(*(enqueuer.one(new()) for _ in range(2 * BATCH + 2)))
        assert store.batches == [1, BATCH, BATCH, 1]
        assert len({answer.id for answer in answers}) == 2 * BATCH + 2

    clock.run(scene())


def test_of_two_callers_with_one_key_the_first_wins_and_both_get_its_task() -> None:
    clock = VirtualClock()
    store = SlowStore(clock)

    async def scene() -> None:
        enqueuer = Enqueuer(store)
        answers = await asyncio.gather(*(enqueuer.one(new(key="k")) for _ in range(3)))
        assert [answer.is_new for answer in answers] == [True, False, False]
        assert len({answer.id for answer in answers}) == 1

    clock.run(scene())


def test_an_error_reaches_every_caller_of_its_statement_and_no_other() -> None:
    clock = VirtualClock()
    store = SlowStore(clock)

    async def scene() -> None:
        enqueuer = Enqueuer(store)
        callers = [asyncio.ensure_future(enqueuer.one(new())) for _ in range(4)]
        await clock.advance(1.5)  # the first one is through
        store.fail("enqueue", 1)
        late = asyncio.ensure_future(enqueuer.one(new("late")))
        results = await asyncio.gather(*callers, late, return_exceptions=True)
        assert isinstance(results[0], Enqueued)
        assert [type(result) for result in results[1:4]] == [StoreUnavailable] * 3
        assert isinstance(results[4], Enqueued)
        assert await store.names() == ["f", "late"]

    clock.run(scene())


def test_a_statement_that_is_refused_is_split_until_only_the_culprits_fail() -> None:
    clock = VirtualClock()
    store = PickyStore(clock)
    culprits = {17, 40}

    async def scene() -> None:
        enqueuer = Enqueuer(store)
        tasks = [new("culprit" if number in culprits else "f") for number in range(65)]
        results = await asyncio.gather(*(enqueuer.one(task) for task in tasks), return_exceptions=True)
        failed = {number: str(result) for number, result in enumerate(results) if isinstance(result, Exception)}
        assert failed == dict.fromkeys(culprits, "a trigger of the user's")
        assert len({result.id for result in results if isinstance(result, Enqueued)}) == 63
        assert len(store.batches) <= 1 + 2 * 2 * 7, "halves, not one by one"
        assert (await enqueuer.one(new())).is_new

    clock.run(scene())


def test_a_caller_that_gives_up_while_its_statement_is_split_is_left_out() -> None:
    clock = VirtualClock()
    store = PickyStore(clock)

    async def scene() -> None:
        enqueuer = Enqueuer(store)
        names = ["first", "culprit", "a", "b", "late"]
        callers = [asyncio.ensure_future(enqueuer.one(new(name))) for name in names]
        await clock.advance(1.5)  # the first is through, the others are being split
        callers[4].cancel()
        results = await asyncio.gather(*callers, return_exceptions=True)
        assert [type(result) for result in results] == [
            Enqueued,
            ValueError,
            Enqueued,
            Enqueued,
            asyncio.CancelledError,
        ]
        assert await store.names() == ["a", "b", "first"]

    clock.run(scene())


def test_a_batch_is_bounded_in_bytes() -> None:
    clock = VirtualClock()
    store = SlowStore(clock)
    quarter = "é" * (STATEMENT_BYTES // 8)

    async def scene() -> None:
        enqueuer = Enqueuer(store)
        sizes = [0, 1, 1, 1, 1, 4, 0, 0]
        await asyncio.gather(*(enqueuer.one(new(args=quarter * size)) for size in sizes))
        assert store.batches == [1, 3, 1, 1, 2]

    clock.run(scene())


def test_the_first_callers_error_does_not_stop_the_others() -> None:
    clock = VirtualClock()
    store = SlowStore(clock)

    async def scene() -> None:
        enqueuer = Enqueuer(store)
        store.fail("enqueue", 1)
        results = await asyncio.gather(*(enqueuer.one(new()) for _ in range(3)), return_exceptions=True)
        assert [type(result) for result in results] == [StoreUnavailable, Enqueued, Enqueued]

    clock.run(scene())


@pytest.mark.parametrize("which", [0, 2])
def test_a_caller_that_is_canceled_takes_no_other_with_it(which: int) -> None:
    clock = VirtualClock()
    store = SlowStore(clock)

    async def scene() -> None:
        enqueuer = Enqueuer(store)
        callers = [asyncio.ensure_future(enqueuer.one(new(f"f{number}"))) for number in range(5)]
        await clock.advance(0.5)
        callers[which].cancel()
        results = await asyncio.gather(*callers, return_exceptions=True)
        assert isinstance(results[which], asyncio.CancelledError)
        assert [type(result) for number, result in enumerate(results) if number != which] == [Enqueued] * 4
        # Canceled before it was on its way, its task does not come into being.
        assert await store.names() == [f"f{number}" for number in range(5) if number != which]

    clock.run(scene())


def test_when_every_waiting_caller_has_given_up_nothing_is_asked_and_the_next_one_is_served() -> None:
    clock = VirtualClock()
    store = SlowStore(clock)

    async def scene() -> None:
        enqueuer = Enqueuer(store)
        callers = [asyncio.ensure_future(enqueuer.one(new())) for _ in range(3)]
        await clock.advance(0.5)
        for caller in callers[1:]:
            caller.cancel()
        await clock.advance(5)
        assert store.batches == [1]
        assert (await enqueuer.one(new())).is_new

    clock.run(scene())
