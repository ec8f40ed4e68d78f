"""The parameter annotated `Task`: attempt, fence, progress, and where it may stand."""

import pytest

from everpoll import Backoff, Everpoll, LeaseLost, NotRunning, Retry, Task
from everpoll.stores.contract import Ended
from jobs.jobs_stage import LIMIT_S, ended

QUICK = Retry(3, Backoff("2ms", factor=1, jitter=0))


async def test_the_task_parameter_may_stand_anywhere(app: Everpoll) -> None:
    @app.job()
    async def first(task: Task, a: int, b: int = 2) -> list[int]:
        return [task.attempt, a, b]

    @app.job()
    async def middle(a: int, me: Task, b: int) -> list[int]:
        return [me.attempt, a, b]

    @app.job()
    def last(a: int, *rest: int, task: Task, b: int = 5) -> list[int]:
        return [task.attempt, a, *rest, b]

    @app.job()
    async def positional(task: Task, a: int, /) -> list[int]:
        return [task.attempt, a]

    async with app:
        assert await (await first.enqueue(7)).result(timeout=LIMIT_S) == [1, 7, 2]
        assert await (await first.enqueue(7, b=8)).result(timeout=LIMIT_S) == [1, 7, 8]
        assert await (await middle.enqueue(7, 8)).result(timeout=LIMIT_S) == [1, 7, 8]  # type: ignore[call-overload]
        assert await (await middle.enqueue(b=7, a=8)).result(timeout=LIMIT_S) == [1, 8, 7]  # type: ignore[call-overload]
        assert await (await last.enqueue(7, 8, 9)).result(timeout=LIMIT_S) == [1, 7, 8, 9, 5]  # type: ignore[call-overload]
        assert await (await positional.enqueue(7)).result(timeout=LIMIT_S) == [1, 7]


async def test_the_fence_is_another_one_in_every_run(app: Everpoll) -> None:
    fences: list[str] = []

    @app.job(retry=QUICK)
    async def f(task: Task) -> None:
        fences.append(task.fence)
        assert task.fence == task.fence
        assert not task.is_stopping
        raise ValueError("again")

    async with app:
        await ended(await f.enqueue())
        await ended(await f.enqueue())
    assert len(set(fences)) == len(fences) == 6


async def test_progress_is_seen_while_it_runs_and_stays(app: Everpoll) -> None:
    seen: list[object] = []

    @app.job()
    async def f(task: Task) -> None:
        await task.progress({"done": 1, "of": 2})
        seen.append((await task.info()).progress)
        await task.progress("nearly")

    async with app:
        task = await f.enqueue()
        await task.result(timeout=LIMIT_S)
        info = await task.info()
    assert seen == [{"done": 1, "of": 2}]
    assert info.progress == "nearly"


async def test_progress_may_have_a_text(app: Everpoll) -> None:
    @app.job()
    async def work(task: Task) -> None:
        await task.progress(0.4, "copying")

    async with app:
        task = await work.enqueue()
        await task.result(timeout=LIMIT_S)
        assert (await task.info()).progress == {"value": 0.4, "text": "copying"}


async def test_progress_of_a_run_that_lost_its_lease_raises(app: Everpoll) -> None:
    raised: list[str] = []

    @app.job()
    async def f(task: Task) -> None:
        run = task._run
        assert run is not None
        # Another worker has settled it meanwhile: the same as if it had been rescued, run and ended elsewhere.
        await (await app.store()).settle(run.incarnation, [Ended(run.lease.id, run.lease.sequence, "done", '"theirs"')])
        try:
            await task.progress(50)
        except LeaseLost as error:
            raised.append(str(error))
            raise

    async with app:
        task = await f.enqueue()
        info = await ended(task)
        # Its own outcome, a failure, comes too late and is dropped.
        await (await f.enqueue(delay="1h")).info()
    assert raised == [f"task {task.id}: its lease was lost; end without further effects"]
    assert (info.state, info.result) == ("done", "theirs")


async def test_outside_of_its_job_a_task_has_no_attempt_and_no_fence(app: Everpoll) -> None:
    @app.job()
    async def f() -> None: ...

    task = await f.enqueue()
    for read in (lambda: task.attempt, lambda: task.fence, lambda: task.is_stopping):
        with pytest.raises(NotRunning, match="is known inside its job only"):
            read()
    with pytest.raises(NotRunning):
        await task.progress(1)
    await app.close()
