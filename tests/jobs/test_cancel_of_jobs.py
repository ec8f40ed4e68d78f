"""Canceling a job: queued, running in the event loop, running in a thread; and a stop does not count as a failure."""

import asyncio
import threading
import time

import pytest

from everpoll import Everpoll, JobCanceled, Retry, Task, TaskNotFound
from jobs.jobs_stage import LIMIT_S, ended, soon


async def test_a_queued_job_is_canceled_at_once_and_never_runs(app: Everpoll) -> None:
    ran: list[int] = []

    @app.job()
    async def f(number: int) -> None:
        ran.append(number)

    unwanted = await f.enqueue(1, delay="1h")
    assert await unwanted.cancel("not needed any more")
    assert (await unwanted.info()).state == "canceled"
    assert await unwanted.cancel() is False
    async with app:
        with pytest.raises(JobCanceled, match="was canceled: not needed any more"):
            await unwanted.result(timeout=LIMIT_S)
        await (await f.enqueue(2)).result(timeout=LIMIT_S)
    assert ran == [2]


async def test_a_running_async_job_gets_a_cancelled_error_inside_and_ends(app: Everpoll) -> None:
    began, seen = asyncio.Event(), []

    @app.job(retry=Retry(5))
    async def f() -> None:
        began.set()
        try:
            await asyncio.sleep(LIMIT_S)
        except asyncio.CancelledError:
            seen.append("canceled")
            raise

    async with app:
        task = await f.enqueue()
        await soon(began)
        assert await task.cancel("stop it")
        info = await ended(task)
        with pytest.raises(JobCanceled):
            await task.result(timeout=LIMIT_S)
    assert (info.state, seen) == ("canceled", ["canceled"])
    assert [entry["what"] for entry in info.trail] == ["cancel", "canceled"]
    assert info.trail[0]["why"] == "stop it"


async def test_a_running_plain_job_sees_is_stopping_and_its_task_ends_when_the_function_has(app: Everpoll) -> None:
    began = threading.Event()
    stopped_at: list[float] = []

    @app.job()
    def f(task: Task) -> str:
        began.set()
        deadline = time.monotonic() + LIMIT_S
        while not task.is_stopping and time.monotonic() < deadline:
            time.sleep(0.002)
        stopped_at.append(time.time())
        return "never seen"

    async with app:
        task = await f.enqueue()
        await asyncio.to_thread(began.wait, LIMIT_S)
        assert await task.cancel()
        info = await ended(task)
    assert (info.state, info.result, len(stopped_at)) == ("canceled", None, 1)


async def test_a_task_that_is_not_known_is_told(app: Everpoll) -> None:
    @app.job()
    async def f() -> None: ...

    await f.enqueue()
    with pytest.raises(TaskNotFound, match="no task 123456789: it never existed here, or its history was dropped"):
        await app.task(123456789).info()
    with pytest.raises(TaskNotFound):
        await app.task(123456789).cancel()
    await app.close()


async def test_a_running_async_job_is_handed_back_at_shutdown_without_using_an_attempt(app: Everpoll) -> None:
    began = asyncio.Event()

    @app.job(retry=Retry(1))
    async def f() -> None:
        began.set()
        await asyncio.sleep(LIMIT_S)

    await app.__aenter__()
    task = await f.enqueue()
    await soon(began)
    await app.close(grace=0)
    info = await task.info()
    assert (info.state, info.attempt, info.errors) == ("queued", 0, ())
    assert [entry["what"] for entry in info.trail] == ["hand-back"]
    await app.close()


async def test_a_job_whose_clean_up_raises_when_it_is_stopped_has_not_failed(app: Everpoll) -> None:
    began = asyncio.Event()

    @app.job(retry=Retry(1))
    async def f() -> None:
        began.set()
        try:
            await asyncio.sleep(LIMIT_S)
        finally:
            raise ConnectionError("the clean-up could not reach the remote")

    await app.__aenter__()
    task = await f.enqueue()
    await soon(began)
    await app.close(grace=0)
    info = await task.info()
    assert (info.state, info.attempt, info.errors) == ("queued", 0, ())
    await app.close()


async def test_a_plain_job_is_handed_back_only_after_its_function_has_ended(app: Everpoll) -> None:
    """Handed back earlier, another worker would run it beside a handler that has not noticed yet."""
    began = threading.Event()
    ended_at: list[float] = []

    @app.job()
    def f(task: Task) -> None:
        began.set()
        deadline = time.monotonic() + LIMIT_S
        while not task.is_stopping and time.monotonic() < deadline:
            time.sleep(0.002)
        time.sleep(0.02)
        ended_at.append(time.time())
        raise RuntimeError("this error is not read")

    await app.__aenter__()
    task = await f.enqueue()
    await asyncio.to_thread(began.wait, LIMIT_S)
    await app.close(grace=0)
    info = await task.info()
    assert len(ended_at) == 1
    assert (info.state, info.attempt, info.errors) == ("queued", 0, ())
    await app.close()


async def test_a_plain_job_that_ignores_its_cancel_is_counted_until_its_function_returns() -> None:
    """Nothing can interrupt a thread: the slot stays taken, and health says so."""
    app = Everpoll("memory://")
    began, release = threading.Event(), threading.Event()

    @app.job()
    def stubborn() -> None:
        began.set()
        release.wait(LIMIT_S)

    async with app:
        task = await stubborn.enqueue()
        await asyncio.to_thread(began.wait, LIMIT_S)
        assert _stopping(app) == (1, 0)
        await task.cancel()
        async with asyncio.timeout(LIMIT_S):
            while _stopping(app) != (1, 1):  # noqa: ASYNC110 - health has no event
                await asyncio.sleep(0.002)
        assert (await task.info()).state == "running"
        release.set()
        assert (await ended(task)).state == "canceled"
        assert _stopping(app) == (0, 0)


async def test_with_a_timeout_a_stubborn_plain_job_gives_its_slot_back_after_the_cancel() -> None:
    app = Everpoll("memory://", slots=1)
    began, release = threading.Event(), threading.Event()

    @app.job(timeout="300ms")
    def stubborn() -> None:
        began.set()
        release.wait(LIMIT_S)

    @app.job()
    def other() -> str:
        return "its turn"

    async with app:
        task = await stubborn.enqueue()
        await asyncio.to_thread(began.wait, LIMIT_S)
        await task.cancel()
        assert await (await other.enqueue()).result(timeout=LIMIT_S) == "its turn"
        assert not release.is_set()
        release.set()


def _stopping(app: Everpoll) -> tuple[int, int]:
    health = app.health().worker
    assert health is not None
    return health.running, health.stopping
