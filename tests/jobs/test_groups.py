"""Groups: jobs side by side, and a callback that runs once, when all of them have ended."""

import asyncio
import random
from typing import Any

import pytest

from everpoll import BadInput, Everpoll, Group, JobCanceled, JobFailed, KeyTaken, Retry, Task, TaskNotFound
from everpoll.stores.contract import TaskFilter
from jobs.jobs_stage import LIMIT_S, ended


def jobs_of(app: Everpoll) -> tuple[Any, Any]:
    @app.job()
    async def double(number: int) -> int:
        return number * 2

    @app.job(retry=Retry(1))
    async def broken() -> None:
        raise ValueError("no")

    return double, broken


async def test_the_callback_gets_the_group_and_its_arguments_once_all_have_ended(app: Everpoll) -> None:
    double, broken = jobs_of(app)
    calls: list[Any] = []

    @app.job()
    async def report(task: Task, group: Group, total: int, *, note: str = "") -> str:
        answers = await group.results(return_exceptions=True)
        calls.append((total, note, [str(one) if isinstance(one, Exception) else one for one in answers]))
        assert group.id == task.id
        return "told"

    async with app:
        # Type checkers know the whole signature: the group is missing for them.
        callback = report.call(42, note="n")  # type: ignore[call-arg, arg-type]
        group = await app.group([double.call(1), broken.call(), double.call(3)]).then(callback).enqueue()
        info = await group.wait(LIMIT_S)
        assert (info.total, info.done, info.failed, info.state, info.ended) == (3, 2, 1, "done", 3)
        assert await app.task(group.id).result() == "told"
    ((total, note, (first, second, third)),) = calls
    assert (total, note, first, third) == (42, "n", 2, 6)
    assert "broken" in second
    assert "ValueError: no" in second


async def test_results_raise_for_a_member_that_was_not_done(app: Everpoll) -> None:
    double, broken = jobs_of(app)
    async with app:
        group = await app.group([double.call(1), double.call(2)]).enqueue()
        assert await group.results() == [2, 4]
        group = await app.group([double.call(1), broken.call()]).enqueue()
        with pytest.raises(JobFailed, match="broken"):
            await group.results()
        first, second = await group.results(return_exceptions=True)
        assert (first, type(second)) == (2, JobFailed)


@pytest.mark.parametrize("has_callback", [True, False])
async def test_an_empty_group_ends_at_once(app: Everpoll, has_callback: bool) -> None:
    @app.job(queue="only")
    def report(group: Group) -> str:
        assert group.sync.info().total == 0
        return f"{group.sync.results()}"

    async with app:
        new = app.group([])
        group = await (new.then(report) if has_callback else new).enqueue()
        info = await group.wait(LIMIT_S)
        assert (info.state, info.total, await group.results()) == ("done", 0, [])
        if has_callback:
            assert await app.task(group.id).result() == "[]"


async def test_chains_are_members_and_their_last_result_counts(app: Everpoll) -> None:
    double, broken = jobs_of(app)

    @app.job()
    async def after(nothing: None) -> str:
        return "after"

    async with app:
        group = await app.group([double.call(1).then(double).then(double), broken.call().then(after)]).enqueue()
        first, second = await group.results(return_exceptions=True)
        assert (first, type(second)) == (8, JobCanceled)
        assert (await group.wait(LIMIT_S)).canceled == 1


async def test_a_canceled_group_cancels_what_has_not_ended_and_its_callback(app: Everpoll) -> None:
    double, _ = jobs_of(app)
    ran: list[str] = []

    @app.job()
    async def report(group: Group) -> None:
        ran.append("report")

    both_hang = asyncio.Barrier(3)
    has_stopped = asyncio.Semaphore(0)

    @app.job()
    async def hang(number: int) -> int:
        await both_hang.wait()
        try:
            await asyncio.Event().wait()
        finally:
            has_stopped.release()
        return number

    async with app:
        members = [double.call(1), hang.call(1), hang.call(2).then(double)]
        group = await app.group(members).then(report).enqueue()
        async with asyncio.timeout(LIMIT_S):
            await both_hang.wait()
            store = await app.store()
            await ended(app.task((await store.members(group.id))[0].id))
            assert await group.cancel("enough", by="tests") == 4
            first, *rest = await group.results(return_exceptions=True)
            await has_stopped.acquire()
            await has_stopped.acquire()
        assert (first, [type(one) for one in rest]) == (2, [JobCanceled] * 2)
        info = await group.wait(LIMIT_S)
        assert (info.state, info.done, info.canceled) == ("canceled", 1, 2)
        assert (await app.task(group.id).info()).cancel_reason == "enough"
        assert await group.cancel() == 0
    assert "report" not in ran


async def test_a_group_that_takes_too_long_says_how_far_it_is(app: Everpoll) -> None:
    double, _ = jobs_of(app)
    group = await app.group([double.call(1), double.options(delay="1h").call(2)]).enqueue()
    with pytest.raises(TimeoutError, match=rf"group {group.id} has not ended within 10ms: 0 of its 2 tasks have"):
        await group.wait("10ms")
    await app.close()


async def test_members_that_history_has_no_more_are_said(app: Everpoll) -> None:
    double, _ = jobs_of(app)
    async with app:
        group = await app.group([double.call(1), double.call(2)]).enqueue()
        await group.wait(LIMIT_S)
        store = await app.store()
        (first, _) = await store.members(group.id)
        assert await store.delete([(first.id, '{"what":"delete"}')]) == ["deleted"]
        with pytest.raises(TaskNotFound, match=f"group {group.id}: 1 of its 2 tasks are gone"):
            await group.results()
        info = await group.info()
        assert (info.total, info.done) == (2, 1)


async def test_what_is_no_group_is_refused(app: Everpoll) -> None:
    double, broken = jobs_of(app)
    with pytest.raises(BadInput, match="is not a call"):
        app.group([double])
    with pytest.raises(BadInput, match=r"is not a list of calls: write app.group\(\[job.call"):
        app.group(double.call(1))
    with pytest.raises(BadInput, match="has a callback, 'double'"):
        app.group([]).then(double).then(broken)
    with pytest.raises(BadInput, match="job 'broken' takes no argument by position"):
        await app.group([]).then(broken).enqueue()
    with pytest.raises(BadInput, match="job 'choice' runs in a process of its own, where there is no group"):
        await app.group([]).then(app.job(run="process")(random.choice)).enqueue()
    task = await double.enqueue(1, key="k", delay="1h")
    with pytest.raises(KeyTaken, match=f"task {task.id} has the key 'k'"):
        await app.group([double.call(1), double.options(key="k").call(2)]).enqueue()
    with pytest.raises(TaskNotFound, match=f"no group {task.id}"):
        await app.jobs.group_of(task.id).info()
    store = await app.store()
    assert len((await store.tasks(TaskFilter())).tasks) == 1
    await app.close()


async def test_priorities_delays_and_limits_of_calls_hold(app: Everpoll) -> None:
    @app.job(concurrency=1, per="tenant")
    async def work(number: int, tenant: str) -> None: ...

    @app.job(concurrency=2, per="tenant")
    async def report(group: Group, tenant: str) -> None: ...

    group = await app.group([work.options(priority=7, delay="1h").call(1, "a")]).then(report, "b").enqueue()
    store = await app.store()
    (member,) = await store.members(group.id)
    assert (member.priority, member.limit and member.limit.key) == (7, "work/a")
    assert (member.due_at - member.created_at).total_seconds() == pytest.approx(3600, abs=5)
    info = await app.task(group.id).info()
    assert info.limit is not None
    assert info.limit.key == "report/b"
    await app.close()


def test_a_group_without_an_event_loop(tmp_path: Any) -> None:
    app = Everpoll(f"sqlite:///{tmp_path}/flows.db")
    double, _ = jobs_of(app)
    group = app.group([double.call(1), double.call(2)]).sync.enqueue()
    assert group.info().queued == 2
    with pytest.raises(TimeoutError):
        group.wait("1ms")

    async def work() -> None:
        async with app:
            await ended(app.task(group.id))

    asyncio.run(work())
    assert (group.wait("20s").done, group.results()) == (2, [2, 4])
    assert group.cancel() == 0
    app.sync.close()


async def test_waiting_for_a_group_waits_for_members_whose_callback_was_canceled(app: Everpoll) -> None:
    started, may_end = asyncio.Event(), asyncio.Event()

    @app.job()
    async def slow() -> None:
        started.set()
        await may_end.wait()

    async with app, asyncio.timeout(LIMIT_S):
        group = await app.group([slow.call()]).enqueue()
        await started.wait()
        assert await app.task(group.id).cancel()
        with pytest.raises(TimeoutError, match="0 of its 1 tasks have"):
            await group.wait("50ms")
        waiting = asyncio.ensure_future(group.wait())
        await ended(app.task(group.id))
        assert not waiting.done()
        may_end.set()
        info = await waiting
    assert (info.state, info.running, info.done) == ("canceled", 0, 1)


async def test_a_callback_that_is_put_back_waits_for_the_members_that_were_put_back(app: Everpoll) -> None:
    """A group that was canceled by mistake: all of it is put back, and its callback runs once, when all have ended."""
    may_end = asyncio.Event()
    calls: list[tuple[int, int]] = []

    @app.job()
    async def slow(number: int) -> int:
        await may_end.wait()
        return number

    @app.job()
    async def report(group: Group) -> None:
        info = await group.info()
        calls.append((info.done, info.queued + info.running))

    async with app, asyncio.timeout(LIMIT_S):
        group = await app.group([slow.call(1), slow.call(2)]).then(report).enqueue()
        assert await group.cancel() == 3
        await group.wait()
        put_back = await app.jobs.redrive(state="canceled", everything=True)
        assert put_back.moved == 3
        assert (await app.task(group.id).info()).blockers == 2
        may_end.set()
        info = await group.wait()
        assert (info.state, info.done) == ("done", 2)
    assert calls == [(2, 0)]
