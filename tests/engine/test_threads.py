"""DaemonThreads runs plain functions in order, within its limit, and never keeps a process alive."""

import asyncio
import subprocess
import sys
import threading
import time
from concurrent.futures import CancelledError, Future, wait
from functools import partial

import pytest

from everpoll.engine.thread_call import ThreadCall
from everpoll.engine.threads import LONG_S, DaemonThreads, between_calls
from everpoll.errors import BadInput, NoThreadLeft


def thread_name() -> str:
    return threading.current_thread().name


def raise_(error: BaseException) -> None:
    raise error


def test_results_and_arguments_pass_through() -> None:
    with DaemonThreads() as threads:
        assert threads.submit(divmod, 7, 2).result() == (3, 1)
        assert threads.submit(int, "ff", base=16).result() == 255


@pytest.mark.parametrize("error", [ValueError("x"), SystemExit(3), KeyboardInterrupt()])
def test_every_error_goes_into_the_future_and_the_thread_lives_on(error: BaseException) -> None:
    with DaemonThreads(limit=1) as threads:
        assert threads.submit(raise_, error).exception() is error
        assert threads.submit(thread_name).result() == "everpoll-1"


def test_a_stop_iteration_reaches_the_caller_that_awaits_it() -> None:
    async def main() -> None:
        with DaemonThreads() as threads, pytest.raises(RuntimeError, match="StopIteration"):
            await asyncio.get_running_loop().run_in_executor(threads, partial(next, iter(())))

    asyncio.run(main())


def test_functions_start_in_the_order_of_submission() -> None:
    started: list[int] = []
    with DaemonThreads(limit=1) as threads:
        for number in range(1000):
            threads.submit(started.append, number)
    assert started == list(range(1000))


def test_threads_start_on_demand_up_to_the_limit_and_are_daemons() -> None:
    release = threading.Event()
    with DaemonThreads(limit=3, name="pool") as threads:
        assert threads._threads == []
        futures = [threads.submit(release.wait) for _ in range(10)]
        assert [thread.name for thread in threads._threads] == ["pool-1", "pool-2", "pool-3"]
        assert all(thread.daemon for thread in threads._threads)
        release.set()
        wait(futures)
    assert len(threads._threads) == 3


def test_as_many_functions_run_at_once_as_the_limit_allows() -> None:
    barrier = threading.Barrier(8)
    with DaemonThreads(limit=8) as threads:
        assert sorted(future.result() for future in [threads.submit(barrier.wait) for _ in range(8)]) == [*range(8)]


def test_an_idle_thread_is_reused() -> None:
    with DaemonThreads() as threads:
        for _ in range(20):
            assert threads.submit(thread_name).result() == "everpoll-1"
            while threads._idle == 0:
                time.sleep(0)


def test_what_a_framework_asks_for_is_called_in_the_thread_before_and_after_each_function(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An error of it changes nothing about the function, which may have had its effects."""
    called: list[tuple[str, str]] = []

    def between() -> None:
        called.append(("between", threading.current_thread().name))
        raise OSError("the connection cannot be closed")

    monkeypatch.setattr("everpoll.engine.threads.between_calls", [between])
    pool = DaemonThreads(limit=1, name="pool")
    assert pool.submit(lambda: called.append(("function", threading.current_thread().name))).result() is None
    with pytest.raises(ValueError, match="x"):
        pool.submit(int, "x").result()
    assert called == [("between", "pool-1"), ("function", "pool-1"), *[("between", "pool-1")] * 3]
    assert "the connection cannot be closed" in caplog.text


def test_without_a_framework_nothing_is_called_between_functions() -> None:
    assert between_calls == []


def test_a_cancelled_function_that_has_not_started_is_not_run() -> None:
    release = threading.Event()
    ran: list[int] = []
    with DaemonThreads(limit=1) as threads:
        threads.submit(release.wait)
        pending = threads.submit(ran.append, 1)
        assert pending.cancel()
        release.set()
    assert ran == []


def test_shutdown_lets_pending_functions_finish() -> None:
    release = threading.Event()
    threads = DaemonThreads(limit=1)
    futures: list[Future[object]] = [threads.submit(release.wait), threads.submit(thread_name)]
    threads.shutdown(wait=False)
    release.set()
    assert futures[1].result() == "everpoll-1"


def test_shutdown_can_cancel_what_is_pending() -> None:
    barrier, release = threading.Barrier(2), threading.Event()
    threads = DaemonThreads(limit=1)
    running, pending = threads.submit(lambda: (barrier.wait(), release.wait())[1]), threads.submit(thread_name)
    barrier.wait()
    threads.shutdown(wait=False, cancel_futures=True)
    with pytest.raises(CancelledError):
        pending.result()
    release.set()
    assert running.result() is True


def test_shutdown_is_safe_twice_and_from_inside_and_ends_submission() -> None:
    threads = DaemonThreads()
    threads.submit(threads.shutdown).result()
    threads.shutdown()
    threads.shutdown()
    with pytest.raises(RuntimeError, match="everpoll: cannot submit after shutdown"):
        threads.submit(thread_name)


def test_a_limit_below_one_is_refused() -> None:
    with pytest.raises(BadInput, match="at least 1"):
        DaemonThreads(limit=0)


def test_neither_asyncio_run_nor_the_interpreter_waits_for_a_function_that_hangs() -> None:
    program = """
import asyncio, threading
from everpoll.engine.thread_call import ThreadCall
from everpoll.engine.threads import LONG_S, DaemonThreads

async def main():
    started = threading.Event()
    def hang():
        started.set()
        threading.Event().wait()
    asyncio.get_running_loop().run_in_executor(DaemonThreads(), hang)
    started.wait()

asyncio.run(main())
print("ended")
"""
    # The timeout bounds a failure; a success ends by itself.
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "ended\n"


def test_a_forked_process_has_threads_of_its_own() -> None:
    """Those of the parent do not come along, and a job given to one of them would never run."""
    script = (
        "import os; from everpoll.engine.threads import DaemonThreads\n"
        "threads = DaemonThreads()\n"
        "threads.submit(int).result()\n"
        "child = os.fork()\n"
        "assert threads.submit(int, '7').result(timeout=20) == 7\n"
        "assert child == 0 or os.waitpid(child, 0)[1] == 0\n"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", script], check=True, timeout=60)


class Hanging:
    """A function that hangs until it is let go."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.let_go = threading.Event()

    def __call__(self) -> None:
        self.entered.set()
        assert self.let_go.wait(15)


def hang(threads: DaemonThreads) -> tuple[Hanging, ThreadCall, Future[None]]:
    hanging = Hanging()
    call = ThreadCall(hanging, threads)
    future = threads.submit(call)
    assert hanging.entered.wait(15)
    return hanging, call, future


def test_a_thread_that_is_left_behind_is_replaced_and_ends_when_it_returns() -> None:
    with DaemonThreads(limit=1) as threads:
        hanging, call, future = hang(threads)
        waiting = threads.submit(thread_name)
        assert threads.is_short
        assert call.leave_behind()
        assert waiting.result(15) == "everpoll-2"
        assert (threads.left_behind, threads.is_healthy) == (1, True)
        hanging.let_go.set()
        future.result(15)
        while threads.left_behind:
            time.sleep(0)
        assert [thread.name for thread in threads._threads] == ["everpoll-2"]
        assert not call.leave_behind()


def test_a_thread_that_returns_works_on_where_its_place_was_not_taken() -> None:
    with DaemonThreads(limit=1) as threads:
        hanging, call, future = hang(threads)
        call.leave_behind()
        hanging.let_go.set()
        future.result(15)
        assert threads.submit(thread_name).result(15) == "everpoll-1"


def test_as_many_are_replaced_as_the_limit_then_submission_is_refused() -> None:
    threads = DaemonThreads(limit=2)
    hung = [hang(threads) for _ in range(2)]
    assert all(call.leave_behind() for _, call, _ in hung)
    hung += [hang(threads) for _ in range(2)]
    assert len(threads._threads) == 4
    waiting = threads.submit(thread_name)
    assert hung[2][1].leave_behind()
    assert (len(threads._threads), threads.is_short, threads.is_healthy) == (4, True, False)
    assert hung[3][1].leave_behind()
    with pytest.raises(NoThreadLeft, match="everpoll: all 4 threads run functions that are past their timeout"):
        threads.submit(thread_name)
    hung[0][0].let_go.set()
    assert waiting.result(15) == "everpoll-1"
    for hanging, _, _ in hung:
        hanging.let_go.set()
    threads.shutdown()


def test_slow_threads_are_replaced_only_while_calls_wait() -> None:
    clock = [0.0]
    with DaemonThreads(limit=1, now=lambda: clock[0]) as threads:
        hanging, _, _ = hang(threads)
        clock[0] = LONG_S
        threads.replace_slow()
        assert len(threads._threads) == 1
        clock[0] = LONG_S - 1
        waiting = threads.submit(thread_name)
        threads.replace_slow()
        assert threads.is_short
        clock[0] = LONG_S
        threads.replace_slow()
        assert waiting.result(15) == "everpoll-2"
        assert threads.left_behind == 0
        hanging.let_go.set()
