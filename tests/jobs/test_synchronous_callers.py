"""`.sync`: the same calls without an event loop, from scripts, threads and forks; none of them hangs."""

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from everpoll import BadInput, Everpoll, JobFailed, NotRunning, Retry, StoreUnavailable, Task, TaskNotFound
from everpoll.stores.contract import Store
from jobs.jobs_stage import LIMIT_S
from stores.backends import backend_names
from stores.conftest import made

DATABASES = [name for name in backend_names() if name != "memory"][:2]


@pytest.fixture(params=DATABASES)
def url(request: pytest.FixtureRequest, runner: asyncio.Runner, tmp_path: Path) -> Iterator[str]:
    with made(request, runner, tmp_path, migrated=True) as place:
        assert place.url is not None
        yield place.url


def shop(url: str) -> tuple[Everpoll, Any, Any]:
    app = Everpoll(url)

    @app.job()
    def add(a: int, b: int, task: Task) -> int:
        task.sync.progress({"adding": a})
        return a + b

    @app.job(retry=Retry(1))
    async def broken() -> None:
        raise ValueError("no")

    return app, add, broken


@contextmanager
def running(app: Everpoll) -> Iterator[None]:
    """The app at work in a thread of its own, as in a web server beside synchronous endpoints."""
    started, stop = threading.Event(), threading.Event()

    async def main() -> None:
        async with app:
            started.set()
            await asyncio.to_thread(stop.wait)

    thread = threading.Thread(target=asyncio.run, args=(main(),))
    thread.start()
    assert started.wait(LIMIT_S)
    try:
        yield
    finally:
        stop.set()
        thread.join()
        app.sync.close()


def test_a_script_enqueues_waits_and_asks(url: str) -> None:
    app, add, broken = shop(url)
    with running(app):
        task = add.sync.enqueue(1, b=2)
        assert task.result(timeout=LIMIT_S) == 3
        info = task.info()
        assert (info.state, info.progress) == ("done", {"adding": 1})
        assert app.sync.task(task.id).result() == 3
        assert task.cancel() is False
        assert [one.result(timeout=LIMIT_S) for one in add.sync.enqueue_many([(1, 1), (2, 2)])] == [2, 4]
        failed = broken.sync.enqueue()
        with pytest.raises(JobFailed, match="no"):
            failed.result(timeout=LIMIT_S)
        assert failed.retry() is True


def test_a_program_without_a_worker_enqueues_and_others_run_it(url: str) -> None:
    """Nothing is left behind that would keep the app from running afterwards, in this very process."""
    app, add, _ = shop(url)
    first = add.sync.enqueue(1, 2, key="k", delay="1h")
    second = add.sync.enqueue(5, 6, key="k")
    assert (second.id, second.is_new) == (first.id, False)
    with pytest.raises(TimeoutError, match="has not ended within 10ms"):
        first.result(timeout="10ms")
    first.run_now()
    with running(app):
        assert first.result(timeout=LIMIT_S) == 3


def test_callers_in_many_threads_all_return(url: str) -> None:
    app, add, _ = shop(url)
    with running(app), ThreadPoolExecutor(8) as threads:
        sums = list(threads.map(lambda n: add.sync.enqueue(n, n).result(timeout=LIMIT_S), range(100)))
    assert sums == [2 * n for n in range(100)]


def test_a_forked_process_has_its_own_way_in(url: str) -> None:
    app, add, _ = shop(url)
    before = add.sync.enqueue(1, 1)
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:  # pragma: no cover - another process
        os.write(writes, str(add.sync.enqueue(2, 2).id).encode())
        os._exit(0)
    os.close(writes)
    with os.fdopen(reads) as answer:
        forked = int(answer.read())
    assert os.waitpid(child, 0)[1] == 0
    after = add.sync.enqueue(3, 3)
    with running(app):
        tasks = [before, app.sync.task(forked), after]
        assert [one.result(timeout=LIMIT_S) for one in tasks] == [2, 4, 6]


async def test_a_call_inside_an_event_loop_is_refused_and_says_what_to_write(app: Everpoll) -> None:
    @app.job()
    async def add(a: int) -> int:
        return a

    with pytest.raises(NotRunning, match=r"write await add\.enqueue"):
        add.sync.enqueue(1)
    with pytest.raises(NotRunning, match=r"write await task\.info\(\)"):
        app.sync.task(1).info()


def test_mistakes_are_the_callers_own(url: str) -> None:
    app, add, _ = shop(url)
    with pytest.raises(BadInput, match="missing a required argument: 'b'"):
        add.sync.enqueue(1)
    with pytest.raises(BadInput, match="one key for many"):
        add.sync.enqueue_many([(1, 2)], key="k")
    with pytest.raises(TaskNotFound):
        app.sync.task(987_654).result()
    app.sync.close()


def test_memory_is_reached_where_the_app_runs_and_never_waited_for_in_vain() -> None:
    app, add, _ = shop("memory://")
    task = add.sync.enqueue(1, 2)
    with pytest.raises(NotRunning, match="no app runs in this process"):
        task.result()
    with pytest.raises(TimeoutError):
        task.result(timeout="10ms")
    with running(app):
        assert task.result(timeout=LIMIT_S) == 3
        assert add.sync.enqueue(3, 4).result(timeout=LIMIT_S) == 7
    assert task.result() == 3


def test_a_database_that_is_away_is_an_error_and_not_a_hang(tmp_path: Path) -> None:
    app, add, _ = shop(f"sqlite:///{tmp_path / 'no' / 'such' / 'folder' / 'tasks.db'}")
    with pytest.raises((StoreUnavailable, BadInput)):
        add.sync.enqueue(1, 2)
    app.sync.close()


def test_a_store_that_was_handed_in_is_reached_where_the_app_runs(another_store: Callable[[], Store]) -> None:
    """It has no address by which another could be made."""
    app = Everpoll(another_store())

    @app.job()
    async def double(n: int) -> int:
        return 2 * n

    with running(app):
        assert double.sync.enqueue(4).result(timeout=LIMIT_S) == 8


@pytest.mark.parametrize("task_id", ["7", 7.0, True, None])
async def test_what_is_not_an_id_is_refused_before_anything_is_asked(task_id: Any) -> None:
    app = Everpoll("memory://")
    for handle in (app.task, app.sync.task):
        with pytest.raises(BadInput, match="is not the id of a task: write a whole number"):
            handle(task_id)


@pytest.mark.parametrize("task_id", [0, -1, 2**63])
def test_an_id_that_no_task_can_have_is_not_found_on_any_store(task_id: int) -> None:
    app = Everpoll("memory://")
    for handle in (app.task, app.sync.task):
        with pytest.raises(TaskNotFound, match=r"ids are between 1 and 2\^63-1"):
            handle(task_id)
