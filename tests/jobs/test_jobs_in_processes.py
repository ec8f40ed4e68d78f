"""`run="process"`: a timeout or a cancel ends the process, and an unexpected end is reported."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from everpoll import BadInput, Everpoll, JobFailed, Task
from everpoll.engine import child_processes
from everpoll.engine.child_processes import Child, ChildProcesses, _end
from everpoll.jobs.process_calls import CHILD, Request
from everpoll.stores.contract import Store
from everpoll.stores.memory import MemoryStore
from jobs import heavy
from jobs.conftest import stores
from jobs.heavy import Image
from jobs.jobs_stage import ended
from stores.backends import Backend
from stores.conftest import made
from worker_processes import WorkerProcess

LIMIT_S = 60.0


@asynccontextmanager
async def working(store: Store) -> AsyncIterator[Everpoll]:
    """An app that runs the functions of another module."""
    app = Everpoll(store, processes=2)
    for name in ("resize", "who", "loaded", "fails", "odd", "spins", "spins_briefly", "closes_its_output"):
        job = heavy.app.jobs[name]
        timeout = "500ms" if name == "spins_briefly" else None
        fatal = (KeyError,) if name == "fails" else ()
        function: Any = vars(job)["__wrapped__"]
        app.job(run="process", name=name, retry=job.retry, timeout=timeout, fatal=fatal)(function)
    async with app:
        yield app


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not is_so():  # noqa: ASYNC110 - another process does it
            await asyncio.sleep(0.02)


def is_running(pid: int) -> bool:
    """Whether the process exists, and is not a dead one whose parent has not asked yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def started_by(file: Path) -> int:
    """The process that a function started."""
    return int(Path(f"{file}.started").read_text())


async def test_results_and_errors_come_back_from_a_process_that_is_reused(another_store: Callable[[], Store]) -> None:
    async with working(another_store()) as app:
        task = await app.jobs["resize"].enqueue(Image(2, 3), 10)
        assert await task.result(timeout=LIMIT_S) == Image(20, 30)
        pids = [await (await app.jobs["who"].enqueue()).result(timeout=LIMIT_S) for _ in range(3)]
        assert len(set(pids)) == 1
        assert pids[0] != os.getpid()
        assert await (await app.jobs["loaded"].enqueue()).result(timeout=LIMIT_S) == []
        info = await ended(await app.jobs["fails"].enqueue("raise"), LIMIT_S)
        assert (info.attempt, info.errors[0]["type"], info.errors[0]["error"]) == (2, "ValueError", "not so")
        assert "in fails" in info.errors[0]["traceback"]
        assert await (await app.jobs["who"].enqueue()).result(timeout=LIMIT_S) == pids[0]
    await until(lambda: not is_running(pids[0]))


async def test_the_log_has_the_lines_of_the_function_and_none_of_everpoll(caplog: pytest.LogCaptureFixture) -> None:
    async with working(MemoryStore()) as app:
        await ended(await app.jobs["fails"].enqueue("raise"), LIMIT_S)
    assert 'raise ValueError("not so")' in caplog.text
    assert "src/everpoll" not in caplog.text


async def test_a_function_that_closes_its_output_is_done(another_store: Callable[[], Store]) -> None:
    async with working(another_store()) as app:
        assert await (await app.jobs["closes_its_output"].enqueue()).result(timeout=LIMIT_S) == "done"


async def test_a_cancel_while_a_process_starts_leaves_no_process_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    has_begun, goes_on = threading.Event(), threading.Event()
    processes: list[subprocess.Popen[bytes]] = []
    start = child_processes._started

    def slow(module: str, theirs: socket.socket) -> "subprocess.Popen[bytes]":
        has_begun.set()
        goes_on.wait()
        assert theirs.fileno() >= 0, "another file may have its number by now"
        processes.append(start(module, theirs))
        return processes[0]

    monkeypatch.setattr(child_processes, "_started", slow)
    starting = asyncio.ensure_future(Child.start(CHILD))
    await asyncio.to_thread(has_begun.wait)
    starting.cancel()
    await asyncio.gather(starting, return_exceptions=True)
    goes_on.set()
    await until(lambda: bool(processes) and processes[0].returncode is not None)


async def test_ends_that_decide_come_back_too(another_store: Callable[[], Store]) -> None:
    async with working(another_store()) as app:
        for how in ("fatal", "hopeless"):
            info = await ended(await app.jobs["fails"].enqueue(how), LIMIT_S)
            assert (info.state, info.attempt) == ("failed", 1)
        canceled = await ended(await app.jobs["odd"].enqueue("cancel"), LIMIT_S)
        assert (canceled.state, canceled.cancel_reason) == ("canceled", "enough")
        unkept = await ended(await app.jobs["odd"].enqueue("object"), LIMIT_S)
        assert (unkept.state, unkept.result) == ("done", None)
        assert "its result is not JSON and was not kept" in unkept.trail[-1]["why"]
        assert (await ended(await app.jobs["odd"].enqueue("none"), LIMIT_S)).state == "done"


@pytest.mark.parametrize(
    ("how", "kind", "says"),
    [
        ("exit", "ProcessEnded", "its process ended with exit code 3 before it answered"),
        ("kill", "ProcessEnded", "its process was killed by SIGKILL (9); perhaps the system ran out of memory"),
        ("sys.exit", "SystemExit", "7"),
    ],
)
async def test_the_exit_code_or_the_signal_is_in_the_error(
    another_store: Callable[[], Store], how: str, kind: str, says: str
) -> None:
    async with working(another_store()) as app:
        info = await ended(await app.jobs["fails"].enqueue(how), LIMIT_S)
        assert (info.state, info.attempt) == ("failed", 2)
        assert [(one["type"], one["error"]) for one in info.errors] == [(kind, says)] * 2
        assert await (await app.jobs["who"].enqueue()).result(timeout=LIMIT_S) > 0


async def test_the_rules_of_a_job_hold_whatever_its_function_is_called(another_store: Callable[[], Store]) -> None:
    """The name in the module stands for the function, and another one for the job."""
    app = Everpoll(another_store(), processes=1)
    app.job(run="process", name="forgetful", retry=heavy.forgetful.retry)(heavy._forget_me)
    async with app:
        info = await ended(await app.jobs["forgetful"].enqueue(), LIMIT_S)
    assert (info.state, info.attempt, info.errors[0]["type"]) == ("failed", 1, "KeyError")


async def test_a_fork_of_the_process_answers_nothing(another_store: Callable[[], Store]) -> None:
    app = Everpoll(another_store(), processes=1)
    for name in ("forks", "who"):
        app.job(run="process", name=name)(vars(heavy.app.jobs[name])["__wrapped__"])
    async with app:
        assert await (await app.jobs["forks"].enqueue()).result(timeout=LIMIT_S) == "parent"
        assert isinstance(await (await app.jobs["who"].enqueue()).result(timeout=LIMIT_S), int)


async def test_a_timeout_counts_from_the_begin_of_the_function(tmp_path: Path) -> None:
    """Else a function whose module is slow to import would never run: each attempt has a new process."""
    importing, go = tmp_path / "importing", tmp_path / "go"
    waits = f"open({str(importing)!r}, 'w')\nwhile not os.path.exists({str(go)!r}):\n    time.sleep(0.01)"
    (tmp_path / "slow_to_import.py").write_text(f"import os, time\n{waits}\ndef answer(): return 42\n")
    request = Request("slow_to_import", None, "answer", '{"args":[],"kwargs":{}}', [*sys.path, str(tmp_path)], "answer")
    children, has_begun = ChildProcesses(CHILD, 1), asyncio.Event()
    answer = asyncio.ensure_future(children.call(request, LIMIT_S, has_begun.set))
    await until(importing.exists)
    assert not has_begun.is_set()
    go.touch()
    assert b"42" in await answer
    assert has_begun.is_set()
    await children.close()


async def test_a_timeout_ends_the_process(another_store: Callable[[], Store], tmp_path: Path) -> None:
    file = tmp_path / "pid"
    async with working(another_store()) as app:
        # A first call, so that the start of an interpreter does not count.
        await (await app.jobs["who"].enqueue()).result(timeout=LIMIT_S)
        task = await app.jobs["spins_briefly"].enqueue(str(file))
        with pytest.raises(
            JobFailed, match=r"JobTimeout: took longer than its timeout of 0\.5 s; its process was ended"
        ):
            await task.result(timeout=LIMIT_S)
        if file.exists():
            assert not is_running(int(file.read_text()))


async def test_a_cancel_kills_a_function_that_is_deaf_and_what_it_started(
    another_store: Callable[[], Store], tmp_path: Path
) -> None:
    file = tmp_path / "pid"
    async with working(another_store()) as app:
        task = await app.jobs["spins"].enqueue(str(file))
        await until(file.exists)
        pid, started = int(file.read_text()), started_by(file)
        assert is_running(pid)
        assert is_running(started)
        await task.cancel()
        info = await ended(task, LIMIT_S)
        assert info.state == "canceled"
        assert not is_running(pid)
        await until(lambda: not is_running(started))


async def test_a_shutdown_ends_the_process_and_hands_the_task_back(
    another_store: Callable[[], Store], tmp_path: Path
) -> None:
    file = tmp_path / "pid"
    async with working(another_store()) as app:
        task = await app.jobs["spins"].enqueue(str(file))
        await until(file.exists)
        await app.close(grace=0)
    pid = int(file.read_text())
    assert not is_running(pid)
    info = await task.info()
    assert (info.state, info.attempt) == ("queued", 0)
    await app.close()


async def test_no_more_processes_than_asked_for(another_store: Callable[[], Store]) -> None:
    async with working(another_store()) as app:
        tasks = await app.jobs["who"].enqueue_many([()] * 20)
        pids = {await task.result(timeout=LIMIT_S) for task in tasks}
        assert 1 <= len(pids) <= 2
        assert len(app.jobs.children) <= 2


@pytest.fixture(params=[name for name in stores() if name != "memory"])
def place(request: pytest.FixtureRequest, runner: asyncio.Runner, tmp_path: Path) -> Iterator[Backend]:
    """A database that several processes share."""
    with made(request, runner, tmp_path, migrated=True) as place:
        yield place


async def test_processes_of_a_worker_that_is_killed_end_by_themselves(place: Backend, tmp_path: Path) -> None:
    """`kill -9` of one `everpoll run` of two: none of its processes is left, and those of the other one go on."""
    env = {"EVERPOLL_URL": str(place.url), "HEAVY_SLOTS": "1"}
    files = [tmp_path / "first", tmp_path / "second"]
    app = Everpoll(place.store())
    job = app.job(name="spins")(heavy.spins._function)
    workers: dict[str, WorkerProcess] = {}
    try:
        tasks = []
        for label, file in zip(("w1", "w2"), files, strict=True):
            # One slot each: that of the first worker is taken when the second one starts.
            tasks.append(await job.enqueue(str(file)))
            workers[label] = WorkerProcess(label, tmp_path, env, "jobs.heavy:app", "1s")
            await until(file.exists)
        killed, other = [str((await task.info()).worker) for task in tasks]
        pids = [(int(file.read_text()), started_by(file)) for file in files]
        assert killed != other
        workers[killed].kill()
        await until(lambda: not any(map(is_running, pids[0])))
        assert all(map(is_running, pids[1]))
    finally:
        for worker in workers.values():
            worker.kill()
        await app.close()
    await until(lambda: not any(map(is_running, pids[1])))


def test_what_no_other_process_can_run_is_refused_at_registration() -> None:
    app = Everpoll("memory://")

    async def coroutine() -> None: ...

    def local() -> None: ...

    def with_task(task: Task) -> None: ...

    with_task.__qualname__ = "with_task"
    for function, says in (
        (coroutine, "is for plain functions"),
        (local, "is not at the top of its module"),
        (lambda: None, "is not at the top of its module"),
        (with_task, "knows no task"),
    ):
        with pytest.raises(BadInput, match=says):
            app.job(run="process", name="f")(function)
    with pytest.raises(BadInput, match='write run="process", or leave it out'):
        app.job(run="thread", name="f")(os.getpid)  # type: ignore[call-overload]
    for processes in (0, -1, True):
        with pytest.raises(BadInput, match="processes"):
            Everpoll("memory://", processes=processes)


def test_a_signal_that_has_no_name_is_told_by_its_number() -> None:
    assert _end(-signal.SIGTERM) == "its process was killed by SIGTERM (15)"
    assert "signal 99 (99)" in _end(-99)
