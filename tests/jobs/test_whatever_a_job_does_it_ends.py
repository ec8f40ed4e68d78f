"""Whatever a function raises or does to its own task: an attempt is counted, the task ends, the worker lives."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from everpoll import Backoff, BadInput, Everpoll, Retry
from everpoll.engine.pool import OVERDUE_S
from everpoll.testing import VirtualClock
from jobs.jobs_stage import LIMIT_S, ended


class OfItsOwn(BaseException):
    """Not an `Exception`, as those of some frameworks."""


ODD: list[BaseException] = [SystemExit(3), GeneratorExit(), OfItsOwn("odd"), asyncio.CancelledError(), StopIteration()]


def in_the_event_loop(error: BaseException) -> Callable[..., Any]:
    async def f() -> None:
        await asyncio.sleep(0)
        raise error

    return f


def in_a_thread(error: BaseException) -> Callable[..., Any]:
    def f() -> None:
        raise error

    return f


@pytest.mark.parametrize("error", ODD, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("where", [in_the_event_loop, in_a_thread])
async def test_whatever_it_raises_is_a_failed_attempt(where: Callable[..., Any], error: BaseException) -> None:
    app = Everpoll("memory://")
    odd = app.job(name="odd", retry=Retry(2, Backoff("1ms")))(where(error))
    fine = app.job(name="fine")(in_a_thread_fine)
    async with app:
        info = await ended(await odd.enqueue())
        assert await (await fine.enqueue()).result(timeout=LIMIT_S) == "fine"
    assert (info.state, info.attempt, len(info.errors)) == ("failed", 2, 2)


def in_a_thread_fine() -> str:
    return "fine"


async def test_a_keyboard_interrupt_of_a_plain_function_is_its_own_and_ends_no_worker() -> None:
    """No signal is ever delivered in a thread."""
    app = Everpoll("memory://")
    f = app.job(retry=Retry(1))(in_a_thread(KeyboardInterrupt()))
    async with app:
        info = await ended(await f.enqueue())
    assert (info.state, info.errors[0]["error"]) == ("failed", "the function raised KeyboardInterrupt")


CTRL_C = """
import asyncio, everpoll

app = everpoll.Everpoll("memory://")

@app.job()
async def f():
    raise KeyboardInterrupt

async def main():
    async with app:
        await (await f.enqueue()).result()

asyncio.run(main())
"""


def test_a_keyboard_interrupt_in_the_event_loop_ends_the_program() -> None:
    """Ctrl-C was pressed while a handler ran: that must not be swallowed."""
    ended = subprocess.run([sys.executable, "-c", CTRL_C], capture_output=True, text=True, check=False, timeout=LIMIT_S)
    assert ended.returncode != 0
    assert ended.stderr.endswith("KeyboardInterrupt\n")


def test_a_job_that_cancels_its_own_task_is_not_run_again_at_once() -> None:
    """It is handed back as if it was canceled from outside, after a rest: it does not run all the time."""
    clock = VirtualClock()
    app = Everpoll("memory://", clock=clock)
    runs: list[float] = []

    @app.job()
    async def f() -> None:
        runs.append(clock.now())
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    async def scene() -> None:
        async with app:
            task = await f.enqueue()
            await clock.advance(4.5)
            info = await task.info()
        assert len(runs) == 5
        assert (info.state, info.attempt) == ("queued", 0)
        assert info.trail[0]["why"] == "its handler was canceled from outside"

    clock.run(scene())


def test_a_job_that_swallows_its_cancellation_has_failed_and_its_slot_is_free() -> None:
    """After its timeout and a grace another job runs in its place, and what it returns in the end is ignored."""
    clock = VirtualClock()
    app = Everpoll("memory://", clock=clock, slots=1)
    ends = asyncio.Event()
    returned: list[str] = []

    @app.job(timeout="10s", retry=Retry(2, Backoff("1s", jitter=0)))
    async def stubborn() -> str:
        while not ends.is_set():
            try:
                await ends.wait()
            except asyncio.CancelledError:
                continue
        returned.append("late")
        return "late"

    @app.job()
    async def other() -> str:
        return "other"

    async def scene() -> None:
        try:
            async with app:
                task = await stubborn.enqueue()
                await asyncio.sleep(1)
                behind = await other.enqueue()
                assert await behind.result() == "other"
                assert clock.now() == pytest.approx(10 + OVERDUE_S, abs=0.1)
                info = await ended(task)
                assert (info.state, info.attempt, info.rescues) == ("failed", 2, 0)
                assert {one["type"] for one in info.errors} == {"JobTimeout"}
                assert "goes on although it was canceled" in info.errors[0]["error"]
                ends.set()
                await clock.settle()
                assert returned == ["late", "late"]
                assert (await task.info()).state == "failed"
        finally:
            ends.set()

    clock.run(scene())


def test_a_generator_is_no_job() -> None:
    """Calling it runs none of its lines: it would be done without having done anything."""
    app = Everpoll("memory://")

    def plain() -> Iterator[int]:
        yield 1

    async def asynchronous() -> AsyncIterator[int]:
        yield 1

    for function in (plain, asynchronous):
        with pytest.raises(BadInput, match=f"job '{function.__name__}' is a generator: .* without `yield`"):
            app.job(function)
