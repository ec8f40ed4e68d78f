"""Schedules enqueue their jobs: each time once, whatever workers there are, and only while a live worker has them."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from everpoll import BadInput, Everpoll, Task
from everpoll.jobs.schedule_rows import KIND, QUEUE
from everpoll.stores.contract import Store, TaskFilter
from jobs.jobs_stage import LIMIT_S


async def enqueued(app: Everpoll) -> list[float]:
    """The times of the jobs that there are, in order."""
    found = await (await app.store()).tasks(TaskFilter(kind="job"), limit=1_000)
    return sorted(one.args["scheduled_for"] for one in found.tasks)


async def until_enqueued(app: Everpoll, count: int) -> list[float]:
    """The times, once there are that many."""
    while len(times := await enqueued(app)) < count:  # noqa: ASYNC110 - no worker runs these jobs
        await asyncio.sleep(0.05)
    return times


async def test_each_slot_enqueues_its_job_once_with_its_arguments(app: Everpoll) -> None:
    seen: list[tuple[Any, ...]] = []
    enough = asyncio.Event()

    @app.schedule(every="1s", args=("a",), kwargs={"b": 2})
    @app.job()
    async def sweep(a: str, b: int, task: Task) -> None:
        seen.append((a, b, task.scheduled_for))
        if len(seen) == 3:
            enough.set()

    async with app, asyncio.timeout(LIMIT_S):
        await enough.wait()
        [shown] = await app.schedules.list()
    assert {one[:2] for one in seen} == {("a", 2)}
    times = [one[2] for one in seen]
    assert all(time.tzinfo is UTC and time.microsecond == 0 for time in times)
    assert len(set(times)) == len(times)
    assert (shown.name, shown.job, shown.timetable, shown.is_registered) == ("sweep", "sweep", "every 1s", True)
    assert shown.last_at is not None
    assert shown.next_at is not None
    assert shown.last_at < shown.next_at


async def test_a_scheduled_job_has_the_key_of_its_job(app: Everpoll) -> None:
    """While the task of an earlier time has the key, a later time enqueues no second one."""

    @app.schedule(every="1s", args=("a",))
    @app.job(key=lambda name: f"sweep:{name}", queue="elsewhere")
    async def sweep(name: str) -> None: ...

    app.worker_options = replace(app.worker_options, queues={"default": 1})
    async with app, asyncio.timeout(LIMIT_S):
        [time] = await until_enqueued(app, 1)
        first = datetime.fromtimestamp(time, UTC)
        while (await app.schedules.list())[0].last_at in {None, first}:  # noqa: ASYNC110 - no worker runs these jobs
            await asyncio.sleep(0.05)
        found = await (await app.store()).tasks(TaskFilter(kind="job"), limit=10)
    assert [one.key for one in found.tasks] == ["sweep:a"]


async def test_a_job_that_no_schedule_enqueued_has_no_slot(app: Everpoll) -> None:
    @app.job()
    async def plain(task: Task) -> str:
        return repr(task.scheduled_for)

    async with app:
        assert await (await plain.enqueue()).result(timeout=LIMIT_S) == "None"


async def test_workers_that_serve_other_queues_keep_their_schedules(another_store: Callable[[], Store]) -> None:
    """`queues=` chooses among the user's queues; a schedule's own queue is not one of them."""
    served = Everpoll(another_store(), queues={"mail": 1})

    @served.schedule(every="1s")
    @served.job(queue="default")
    async def elsewhere() -> None: ...

    assert list(served.queues) == ["mail"]
    async with served, asyncio.timeout(LIMIT_S):
        await until_enqueued(served, 1)
        assert QUEUE not in served.queues


async def test_a_changed_timetable_holds_from_the_next_start(app: Everpoll, another_store: Callable[[], Store]) -> None:
    async def registered(cron: str) -> str:
        one = Everpoll(another_store())

        @one.schedule(cron, tz="Europe/Berlin", name="report")
        @one.job()
        async def job() -> None: ...

        async with one:
            [shown] = await one.schedules.list()
        return shown.timetable

    assert await registered("0 3 * * *") == "0 3 * * * Europe/Berlin"
    assert await registered("0 4 * * *") == "0 4 * * * Europe/Berlin"
    live = await (await app.store()).tasks(TaskFilter(kind=KIND, indexed=True))
    assert len(live.tasks) == 1
    await app.close()


async def test_two_workers_with_the_same_schedule_enqueue_each_slot_once(another_store: Callable[[], Store]) -> None:
    def another() -> Everpoll:
        one = Everpoll(another_store(), queues={"other": 1})

        @one.schedule(every="1s")
        @one.job(queue="not served")
        async def tick() -> None: ...

        return one

    async with another() as first, another(), asyncio.timeout(LIMIT_S):
        times = await until_enqueued(first, 3)
    assert len(set(times)) == len(times)
    assert all(time == datetime.fromtimestamp(time, UTC).replace(microsecond=0).timestamp() for time in times)


async def test_mistakes_are_refused_where_they_are_made(app: Everpoll) -> None:
    @app.job()
    async def one(a: int) -> None: ...

    with pytest.raises(BadInput, match="not a job: write @app"):
        app.schedule("* * * * *")(lambda: None)  # type: ignore[type-var]
    with pytest.raises(BadInput, match="missing a required argument"):
        app.schedule("* * * * *")(one)
    with pytest.raises(BadInput, match="missed='never'"):
        app.schedule("* * * * *", missed="never", args=(1,))(one)  # type: ignore[arg-type]
    app.schedule("* * * * *", args=(1,))(one)
    with pytest.raises(BadInput, match="registered already; give one of the two another name="):
        app.schedule("0 * * * *", args=(1,))(one)
    app.schedule("0 * * * *", args=(1,), name="hourly")(one)
    assert sorted(app.schedules) == ["hourly", "one"]
    async with app:
        with pytest.raises(BadInput, match="before it starts"):
            app.schedule("5 * * * *", args=(1,), name="late")(one)
