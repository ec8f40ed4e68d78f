"""A job that waits, for its delay or its backoff, is run now; one that runs or has ended is refused, and says why."""

import asyncio

import pytest

from everpoll import Backoff, Everpoll, Retry, Task, TaskNotFound, WrongState
from everpoll.stores.contract import NewTask
from jobs.jobs_stage import LIMIT_S, ended, soon


async def test_a_delayed_job_runs_and_the_log_has_the_actor(app: Everpoll) -> None:
    @app.job()
    async def f() -> str:
        return "ran"

    async with app:
        task = await f.enqueue(delay="1h")
        await task.run_now(by="ops")
        assert await task.result(timeout=LIMIT_S) == "ran"
        actions = await (await app.store()).actions_of(task.id)
        info = await task.info()
    assert [one.body for one in actions] == [{"what": "run-now", "by": "ops"}]
    assert [(entry["what"], entry["by"]) for entry in info.trail] == [("run-now", "ops")]


async def test_a_retry_that_waits_for_its_backoff_is_made_now(app: Everpoll) -> None:
    failed = asyncio.Event()

    @app.job(retry=Retry(2, Backoff("1h")))
    async def f(task: Task) -> int:
        if task.attempt == 1:
            failed.set()
            raise LookupError("first")
        return task.attempt

    async with app:
        task = await f.enqueue()
        await soon(failed)
        async with asyncio.timeout(LIMIT_S):
            while (await task.info()).state == "running":  # noqa: ASYNC110 - only the store knows
                await asyncio.sleep(0.01)
        await task.run_now()
        assert await task.result(timeout=LIMIT_S) == 2


async def test_what_runs_or_has_ended_is_refused_and_says_its_state(app: Everpoll) -> None:
    began, go = asyncio.Event(), asyncio.Event()

    @app.job()
    async def f() -> None:
        began.set()
        await go.wait()

    async with app:
        task = await f.enqueue()
        await soon(began)
        with pytest.raises(WrongState, match=f"task {task.id} cannot be run now: it is running"):
            await task.run_now()
        go.set()
        await ended(task)
        with pytest.raises(WrongState, match=r"it is done; retry\(\) puts an ended job back"):
            await task.run_now()
        with pytest.raises(TaskNotFound):
            await app.task(2**40).run_now()
        assert await (await app.store()).actions_of(task.id) == []


async def test_only_jobs_are_run_by_hand(app: Everpoll) -> None:
    [answer] = await (await app.store()).enqueue([NewTask(name="billing", kind="check", key="billing", delay_s=60.0)])
    with pytest.raises(WrongState, match="is a check, not a job"):
        await app.task(answer.id).run_now()
    await app.close()
