"""DaemonThreads: an executor for plain functions that may hang.

Promises: starts in the order of submission, at most `limit` at a time, threads made on demand and reused; every error
of a function, even SystemExit, ends up in its future. Never keeps the interpreter or `asyncio.run` from ending, which
is why it exists: `ThreadPoolExecutor` joins its threads at exit, so one function that hangs hangs the process.
"""

import os
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, ParamSpec, TypeVar

from everpoll.errors import BadInput

P = ParamSpec("P")
T = TypeVar("T")
Job = tuple[Future[Any], Callable[[], Any]]


class DaemonThreads(Executor):
    """To be used as `loop.run_in_executor(threads, function)`; context variables are the caller's business."""

    def __init__(self, limit: int = 32, name: str = "everpoll") -> None:
        if limit < 1:
            raise BadInput(f"limit={limit!r}: {name} needs at least 1 thread")
        self._limit = limit
        self._name = name
        self._closed = False
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._jobs: deque[Job] = deque()
        self._threads: list[threading.Thread] = []
        self._idle = 0
        self._changed = threading.Condition()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run `fn` in a thread as soon as one is free."""
        future: Future[T] = Future()
        if self._pid != os.getpid():
            self._begin()  # a fork takes no threads along
        with self._changed:
            if self._closed:
                raise RuntimeError(f"{self._name}: cannot submit after shutdown")
            if len(self._jobs) >= self._idle and len(self._threads) < self._limit:
                self._start_thread()
            self._jobs.append((future, lambda: fn(*args, **kwargs)))
            self._changed.notify()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more; what is pending still runs, or is cancelled; `wait` for the threads to end."""
        with self._changed:
            self._closed = True
            dropped = list(self._jobs) if cancel_futures else []
            if cancel_futures:
                self._jobs.clear()
            self._changed.notify_all()
        for future, _ in dropped:
            future.cancel()
        for thread in self._threads if wait else ():
            if thread is not threading.current_thread():
                thread.join()

    def _start_thread(self) -> None:
        thread = threading.Thread(target=self._work, name=f"{self._name}-{len(self._threads) + 1}", daemon=True)
        thread.start()
        self._threads.append(thread)
        self._idle += 1  # From birth, or the next submission would start another thread for the same job.

    def _work(self) -> None:
        while (job := self._next_job()) is not None:
            _run(*job)
            # A waiting thread must not keep the arguments and the result of its last job alive.
            del job
            with self._changed:
                self._idle += 1

    def _next_job(self) -> Job | None:
        with self._changed:
            self._changed.wait_for(lambda: self._jobs or self._closed)
            self._idle -= 1
            return self._jobs.popleft() if self._jobs else None


def _run(future: Future[Any], function: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = function()
    except StopIteration as error:
        # asyncio before 3.12 cannot carry it: whoever awaits the future would wait for ever. As PEP 479 does.
        wrapped = RuntimeError("the function raised StopIteration")
        wrapped.__cause__ = error
        future.set_exception(wrapped)
    except BaseException as error:  # noqa: BLE001  # Whatever ends the function must reach who waits for it.
        future.set_exception(error)
    else:
        future.set_result(result)
    finally:
        # The error's traceback holds this frame: error and future would keep each other alive.
        del future, function
