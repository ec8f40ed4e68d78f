"""A plain job that hangs past its timeout keeps its thread; others get new threads, up to a limit, then runs fail."""

import asyncio
import threading
from collections.abc import Callable

import pytest

from everpoll import Everpoll, JobFailed, Retry, Task
from everpoll.engine.threads import DaemonThreads
from everpoll.testing import VirtualClock

LIMIT_S = 60.0


class Stage:
    """An app with one thread for plain jobs, and a job that hangs in it until it is let go."""

    def __init__(self, limit: str = "5s") -> None:
        self.clock = VirtualClock()
        self.app = Everpoll("memory://", clock=self.clock)
        self.app.jobs.threads = self.threads = DaemonThreads(limit=1, name="everpoll-job")
        self.let_go = threading.Event()
        self.entered = threading.Semaphore(0)
        self.hangs = self.app.jobs.add(self._hangs, name="hangs", timeout=limit, retry=Retry(1))
        self.quick = self.app.jobs.add(self._quick, name="quick", timeout="5s", retry=Retry(1))
        self.quick_runs = 0

    def _hangs(self) -> None:
        self.entered.release()
        assert self.let_go.wait(LIMIT_S)

    def _quick(self) -> str:
        self.quick_runs += 1
        return "done"

    async def hang(self) -> Task:
        """A task that hangs in its thread."""
        task = await self.hangs.enqueue()
        await until(lambda: self.entered.acquire(blocking=False))
        return task


async def until(holds: Callable[[], bool]) -> None:
    """Let the event loop go round until it holds; time stands still because a thread works."""
    while not holds():  # noqa: ASYNC110 - a thread makes it hold, not a coroutine
        await asyncio.sleep(0)


def test_hung_plain_jobs_are_replaced_then_refused() -> None:
    stage = Stage()
    app = stage.app

    async def scene() -> None:
        async with app:
            first = await stage.hang()
            stage.clock.jump(5)
            with pytest.raises(JobFailed, match="its thread is left behind"):
                await first.result()
            assert (app.health().threads_left_behind, app.health().healthy) == (1, True)
            assert await (await stage.quick.enqueue()).result() == "done"
            second = await stage.hang()
            stage.clock.jump(5)
            with pytest.raises(JobFailed, match="its thread is left behind"):
                await second.result()
            assert (app.health().threads_left_behind, app.health().healthy) == (2, False)
            with pytest.raises(JobFailed, match="all 2 threads run functions that are past their timeout"):
                await (await stage.quick.enqueue()).result()
            stage.let_go.set()
            await until(lambda: not stage.threads.left_behind)
            assert await (await stage.quick.enqueue()).result() == "done"
            assert app.health().healthy

    stage.clock.run(scene())


def test_a_job_that_got_no_thread_within_its_timeout_says_so() -> None:
    stage = Stage(limit="50s")

    async def scene() -> None:
        async with stage.app:
            await stage.hang()
            waiting = await stage.quick.enqueue()
            await until(lambda: stage.threads.is_short)
            stage.clock.jump(5)
            with pytest.raises(JobFailed, match="no thread was free for it within its timeout of 5 s"):
                await waiting.result()
            stage.let_go.set()

    stage.clock.run(scene())
    assert stage.quick_runs == 0
