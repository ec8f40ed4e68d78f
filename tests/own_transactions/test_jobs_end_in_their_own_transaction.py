"""`task.complete(…)`: the job has ended if its transaction was committed, and only then; nothing settles it again."""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any

import asyncpg
import pytest

from everpoll import (
    Backoff,
    BadInput,
    Cancel,
    Everpoll,
    JobFailed,
    LeaseLost,
    NotRunning,
    Retry,
    Snooze,
    Task,
    WrongState,
)
from everpoll.stores.flows import FlowTask
from jobs.jobs_stage import counted, soon
from own_transactions.rounds import LIMIT_S, ledger
from own_transactions.ways import AsyncWay, SyncWay, plain

QUICK = Retry(2, Backoff("10ms", cap="10ms"))
Scene = Callable[[int, int], bool]
"""Of a number and the attempt: whether to commit."""


def booking(app: Everpoll, way: AsyncWay | SyncWay, commits: Scene, after: Callable[[], None] = lambda: None) -> Any:
    """A job that writes its number and completes in one transaction, and then does something else."""
    if isinstance(way, AsyncWay):

        @app.job(retry=QUICK, name="book")
        async def book(task: Task, number: int) -> str:
            await way.open()
            try:
                async with way.transaction(commit=commits(number, task.attempt)) as (connection, write):
                    await write(number)
                    await task.complete({"booked": number}, connection=connection)
            finally:
                await way.close()
            after()
            return "ignored"

        return book

    @app.job(retry=QUICK, name="book")
    def book_plainly(task: Task, number: int) -> str:
        way.open()
        try:
            with way.transaction(commit=commits(number, task.attempt)) as (connection, write):
                write(number)
                task.sync.complete({"booked": number}, connection=connection)
        finally:
            way.close()
        after()
        return "ignored"

    return book_plainly


async def test_a_commit_ends_it_and_a_rollback_is_a_failed_attempt(way: AsyncWay | SyncWay) -> None:
    app = Everpoll(way.url, slots=1)
    book = booking(app, way, lambda number, attempt: number == 1 or attempt == 2)
    settled = counted(app, "settle")
    async with app:
        first, second = await book.enqueue_many([(1,), (2,)])
        assert await first.result(timeout=LIMIT_S) == {"booked": 1}
        assert await second.result(timeout=LIMIT_S) == {"booked": 2}
        infos = [await task.info() for task in (first, second)]
        losses = [await (await app.store()).losses(task.id) for task in (first, second)]
    assert [(info.state, info.attempt, len(info.errors)) for info in infos] == [("done", 1, 0), ("done", 2, 1)]
    assert infos[1].errors[0]["type"] == "RolledBack"
    assert "not committed when the job returned" in infos[1].errors[0]["error"]
    assert losses == [[], []]
    assert await ledger(way.url) == [1, 2]
    # The one settlement that is sent is that of the attempt that failed.
    assert [[one.id for one in batch] for _, batch in settled] == [[second.id]]
    app.sync.close()


async def test_what_a_job_raises_after_its_commit_changes_nothing(
    way: AsyncWay | SyncWay, caplog: pytest.LogCaptureFixture
) -> None:
    app = Everpoll(way.url, slots=1)

    def fail() -> None:
        raise ValueError("too late")

    book = booking(app, way, lambda *_: True, fail)
    with caplog.at_level(logging.WARNING, "everpoll.jobs"):
        async with app:
            task = await book.enqueue(1)
            assert await task.result(timeout=LIMIT_S) == {"booked": 1}
            assert ((await task.info()).state, (await task.info()).errors) == ("done", ())
    assert "it is done, and raised after that: ValueError('too late')" in caplog.text
    assert await ledger(way.url) == [1]
    app.sync.close()


async def test_a_worker_that_was_declared_dead_ends_nothing_and_writes_nothing(way: AsyncWay | SyncWay) -> None:
    """Another worker has the task by then; also a handler that catches the error cannot commit."""
    app, caught = Everpoll(way.url, slots=1), asyncio.Queue[type[BaseException] | None]()
    event_loop = asyncio.get_running_loop()

    def tell(error: BaseException | None) -> None:
        event_loop.call_soon_threadsafe(caught.put_nowait, None if error is None else type(error))

    if isinstance(way, AsyncWay):

        @app.job(retry=Retry(1), name="book")
        async def book(task: Task, number: int) -> None:
            if task.fence.split("-")[1] != "1":
                return
            await taken(task)
            await way.open()
            error: BaseException | None = None
            # Each driver has its own word for a transaction that cannot be committed.
            with contextlib.suppress(Exception):
                async with way.transaction(commit=True) as (connection, write):
                    await write(number)
                    try:
                        await task.complete(connection=connection)
                    except LeaseLost as lost:
                        error = lost
            await way.close()
            tell(error)

    else:

        @app.job(retry=Retry(1), name="book")
        def book(task: Task, number: int) -> None:
            if task.fence.split("-")[1] != "1":
                return
            asyncio.run_coroutine_threadsafe(taken(task), event_loop).result(LIMIT_S)
            way.open()
            error: BaseException | None = None
            with contextlib.suppress(Exception), way.transaction(commit=True) as (connection, write):
                write(number)
                try:
                    task.sync.complete(connection=connection)
                except LeaseLost as lost:
                    error = lost
            way.close()
            tell(error)

    async def taken(task: Task) -> None:
        run = task._run
        assert run is not None
        store: Any = await app.store()
        heartbeat = await asyncio.to_thread(store.heartbeat_connection)
        await asyncio.to_thread(heartbeat.rescue, run.incarnation, [], [(task.id, run.lease.sequence)])
        await asyncio.to_thread(heartbeat.close)
        assert (await task.info()).incarnation is None

    async with app:
        task = await book.enqueue(1)
        async with asyncio.timeout(LIMIT_S):
            assert await caught.get() is LeaseLost
        await task.result(timeout=LIMIT_S)
        assert (await task.info()).rescues == 1
    assert await ledger(way.url) == []
    app.sync.close()


async def test_a_handler_that_fails_before_its_commit_has_failed_by_its_own_error(way: AsyncWay | SyncWay) -> None:
    app = Everpoll(way.url, slots=1)
    if isinstance(way, AsyncWay):

        @app.job(retry=Retry(1), name="book")
        async def book(task: Task, number: int) -> None:
            await way.open()
            try:
                async with way.transaction(commit=False) as (connection, write):
                    await write(number)
                    await task.complete(connection=connection)
                raise KeyError("mine")
            finally:
                await way.close()

    else:

        @app.job(retry=Retry(1), name="book")
        def book(task: Task, number: int) -> None:
            way.open()
            try:
                with way.transaction(commit=False) as (connection, write):
                    write(number)
                    task.sync.complete(connection=connection)
                raise KeyError("mine")
            finally:
                way.close()

    async with app:
        with pytest.raises(JobFailed, match="KeyError: 'mine'"):
            await (await book.enqueue(1)).result(timeout=LIMIT_S)
    assert await ledger(way.url) == []
    app.sync.close()


async def test_a_shutdown_after_the_commit_gives_nothing_back(async_way: AsyncWay) -> None:
    way = async_way
    app, committed = Everpoll(way.url, slots=1), asyncio.Event()

    @app.job()
    async def book(task: Task, number: int) -> None:
        await way.open()
        async with way.transaction(commit=True) as (connection, write):
            await write(number)
            await task.complete("kept", connection=connection)
        await way.close()
        committed.set()
        await asyncio.sleep(3600)

    settled = counted(app, "settle")
    await app.__aenter__()
    task = await book.enqueue(1)
    await soon(committed)
    await app.close(grace=0)
    info = await task.info()
    assert (info.state, info.result, info.trail) == ("done", "kept", ())
    assert await (await app.store()).losses(task.id) == []
    assert settled == []
    await app.close()


async def test_the_next_task_of_a_limit_starts_when_one_has_completed(way: AsyncWay | SyncWay) -> None:
    app = Everpoll(way.url, slots=4)
    ran: list[int] = []
    if isinstance(way, AsyncWay):

        @app.job(concurrency=1, name="book")
        async def book(task: Task, number: int) -> None:
            await way.open()
            async with way.transaction(commit=True) as (connection, write):
                await write(number)
                await task.complete(connection=connection)
            await way.close()
            ran.append(number)

    else:

        @app.job(concurrency=1, name="book")
        def book(task: Task, number: int) -> None:
            way.open()
            with way.transaction(commit=True) as (connection, write):
                write(number)
                task.sync.complete(connection=connection)
            way.close()
            ran.append(number)

    async with app:
        tasks = await book.enqueue_many([(number,) for number in range(4)])
        for task in tasks:
            await task.result(timeout=LIMIT_S)
    assert sorted(ran) == [0, 1, 2, 3]
    app.sync.close()


async def test_what_cannot_be_completed_is_refused(async_way: AsyncWay) -> None:
    way = async_way
    app, answer = Everpoll(way.url, slots=1), asyncio.Queue[str]()

    @app.job(retry=Retry(1))
    async def book(task: Task) -> None:
        await way.open()
        async with way.transaction(commit=True) as (connection, _):
            for result in (Snooze("1s"), Cancel("no"), object(), float("nan")):
                with pytest.raises(BadInput) as refused:
                    await task.complete(result, connection=connection)
                answer.put_nowait(str(refused.value))
            with pytest.raises(BadInput) as refused:
                await asyncio.to_thread(task.sync.complete, connection=connection)
            answer.put_nowait(str(refused.value))
            with pytest.raises(BadInput) as refused:
                await task.complete(connection=5)
            answer.put_nowait(str(refused.value))
            await task.complete(connection=connection)
            with pytest.raises(WrongState) as wrong:
                await task.complete(connection=connection)
            answer.put_nowait(str(wrong.value))
            with pytest.raises(WrongState) as wrong:
                await task.progress(1)
            answer.put_nowait(str(wrong.value))
        await way.close()

    async with app:
        task = await book.enqueue()
        await task.result(timeout=LIMIT_S)
        says = [await answer.get() for _ in range(8)]
    assert [text.partition("task ")[2].partition(": ")[2] for text in says[:4]] == [
        "complete() ends it as done: return Snooze(…) from the job instead",
        "complete() ends it as done: return Cancel(…) from the job instead",
        "complete() cannot keep this result: it must be JSON, and small enough to be stored",
        "complete() cannot keep this result: it must be JSON, and small enough to be stored",
    ]
    assert "is asynchronous: use await task.complete(…)" in says[4]
    assert "connection=5 is not a connection that everpoll knows" in says[5]
    assert "complete() was called already; a job ends once" in says[6]
    assert "complete() was called: there is no progress after that" in says[7]
    with pytest.raises(NotRunning, match=r"complete\(\) is known inside its job only"):
        await task.complete(connection=None)


async def test_a_connection_that_is_refused_completes_nothing(async_way: AsyncWay) -> None:
    """The job may go on: complete through another connection, or return as any job does."""
    app = Everpoll(async_way.url)
    without = await asyncpg.connect(plain(async_way.url)) if "postgres" in async_way.url else None

    @app.job(retry=Retry(1))
    async def book(task: Task, completes: bool) -> str:
        if without is not None:
            with pytest.raises(BadInput, match="no transaction is open"):
                await task.complete("refused", connection=without)
        if completes:
            await async_way.open()
            async with async_way.transaction(commit=True) as (connection, write):
                await write(1)
                await task.complete("completed", connection=connection)
            await async_way.close()
        return "returned"

    async with app:
        results = [await (await book.enqueue(one)).result(timeout=LIMIT_S) for one in (True, False)]
    assert results == ["completed", "returned"]
    if without is not None:
        await without.close()


async def test_the_task_that_waits_for_it_starts_with_its_result(async_way: AsyncWay) -> None:
    """Of a chain: the end in the handler's transaction tells the next task, as any end does."""
    app = Everpoll(async_way.url, slots=1)

    @app.job()
    async def book(number: int, task: Task) -> None:
        await async_way.open()
        async with async_way.transaction(commit=True) as (connection, write):
            await write(number)
            await task.complete({"booked": number}, connection=connection)
        await async_way.close()

    @app.job()
    async def tell() -> None: ...

    last, first = tell.new_task((), {}), book.new_task((1,), {})
    async with app:
        store = await app.store()
        answer, _ = await store.enqueue_flow([FlowTask(last, takes="result"), FlowTask(first, then=0)])
        task = app.task(answer.id)
        await task.result(timeout=LIMIT_S)
        assert (await task.info()).args["input"] == {"booked": 1}
    assert await ledger(async_way.url) == [1]
