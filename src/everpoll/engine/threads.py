"""DaemonThreads: a pool for plain functions that may hang.

Promises: calls start in the order of submission, at most `limit` at a time, in threads that are made on demand and
reused; every error of a function, even SystemExit, is set in its future. A thread that is left behind, because its
function did not return in time, no longer counts towards the limit: another thread replaces it, up to `limit` of them.
When even those have not returned, `submit` refuses with `NoThreadLeft` instead of waiting for ever.
Never: keeps the interpreter or `asyncio.run` from ending. `ThreadPoolExecutor` joins its threads at exit, so one
function that hangs hangs the process.

    idle ◀──▶ working ──leave_behind, or LONG_S while calls wait──▶ replaced ──▶ returns: works on, or ends if too many
"""

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, ParamSpec, TypeVar

from everpoll.errors import BadInput, NoThreadLeft

P = ParamSpec("P")
T = TypeVar("T")
Call = tuple[Future[Any], Callable[[], Any]]

logger = logging.getLogger("everpoll.engine")

# A function without a timeout may take as long as it likes. After this long its thread is replaced if calls wait.
LONG_S = 60.0

between_calls: list[Callable[[], None]] = []
"""Called in a thread before and after each function, for frameworks that keep connections by thread (Django)."""


class DaemonThreads(Executor):
    """Use it as `loop.run_in_executor(threads, call)`; copying context variables is up to the caller."""

    def __init__(self, limit: int = 32, name: str = "everpoll", now: Callable[[], float] = time.monotonic) -> None:
        if limit < 1:
            raise BadInput(f"limit={limit!r}: {name} needs at least 1 thread")
        self._limit = limit
        self._name = name
        self._now = now
        self._closed = False
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._calls: deque[Call] = deque()
        self._threads: list[threading.Thread] = []
        self._made = 0
        self._idle = 0
        self._working_since: dict[threading.Thread, float] = {}
        # Threads past the timeout of their call, and threads whose call takes long. Up to `limit` of both are replaced.
        self._left: set[threading.Thread] = set()
        self._slow: set[threading.Thread] = set()
        self._changed = threading.Condition()

    @property
    def left_behind(self) -> int:
        """How many threads have not returned from a function that is past its timeout."""
        return len(self._left)

    @property
    def is_healthy(self) -> bool:
        """False once more threads are left behind than are replaced: fewer than `limit` are left for new calls."""
        return len(self._left) <= self._limit

    @property
    def is_short(self) -> bool:
        """True while calls wait, and no idle thread is about to take them."""
        return len(self._calls) > self._idle

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run `fn` in a thread as soon as one is free."""
        future: Future[T] = Future()
        if self._pid != os.getpid():
            self._begin()  # a fork takes no threads along
        with self._changed:
            if self._closed:
                raise RuntimeError(f"{self._name}: cannot submit after shutdown")
            if len(self._left) >= 2 * self._limit:
                raise NoThreadLeft(
                    f"{self._name}: all {len(self._left)} threads run functions that are past their timeout; give "
                    "blocking calls a timeout of their own, and restart this process"
                )
            self._calls.append((future, lambda: fn(*args, **kwargs)))
            self._add_threads()
            self._changed.notify()
        return future

    def leave_behind(self, thread: threading.Thread) -> None:
        """Replace a thread of this pool whose function is past its timeout; to be called while the function runs."""
        with self._changed:
            if thread not in self._working_since:
                return
            self._left.add(thread)
            self._slow.discard(thread)
            self._add_threads()
            count = len(self._left)
        if count == self._limit + 1:
            logger.error(
                "%s: %d threads run functions that are past their timeout; no further one is replaced, and plain "
                "functions are refused when all %d are taken: restart this process",
                self._name,
                count,
                2 * self._limit,
            )

    def replace_slow(self) -> None:
        """Replace the threads that have worked on one call for `LONG_S`, if calls wait for a thread."""
        with self._changed:
            self._add_threads()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no further calls; run or cancel the pending ones; with `wait`, return when the threads have ended."""
        with self._changed:
            self._closed = True
            dropped = list(self._calls) if cancel_futures else []
            if cancel_futures:
                self._calls.clear()
            self._changed.notify_all()
            threads = list(self._threads) if wait else []
        for future, _ in dropped:
            future.cancel()
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join()

    def _add_threads(self) -> None:
        """Start the threads that the waiting calls need and the limit allows."""
        if self.is_short and self._counted() >= self._limit:
            self._find_slow()
        while self.is_short and self._counted() < self._limit:
            self._start_thread()

    def _counted(self) -> int:
        """Return the threads that count towards the limit."""
        return len(self._threads) - min(len(self._left) + len(self._slow), self._limit)

    def _find_slow(self) -> None:
        before = self._now() - LONG_S
        slow = [thread for thread, since in self._working_since.items() if since <= before]
        found = [thread for thread in slow if thread not in self._left and thread not in self._slow]
        if found:
            logger.warning(
                "%s: calls wait for a thread, and %d threads have worked on one call for %g s: they are replaced. "
                "Give functions that may hang a timeout",
                self._name,
                len(found),
                LONG_S,
            )
            self._slow.update(found)

    def _start_thread(self) -> None:
        self._made += 1
        thread = threading.Thread(target=self._work, name=f"{self._name}-{self._made}", daemon=True)
        thread.start()
        self._threads.append(thread)
        self._idle += (
            1  # Idle from the start: otherwise the next submission would start another thread for the same call.
        )

    def _work(self) -> None:
        thread = threading.current_thread()
        while (call := self._next_call(thread)) is not None:
            _run(*call)
            # A waiting thread must not keep the arguments and the result of its last call alive.
            del call
            if not self._goes_on(thread):
                return

    def _next_call(self, thread: threading.Thread) -> Call | None:
        with self._changed:
            self._changed.wait_for(lambda: self._calls or self._closed)
            self._idle -= 1
            if not self._calls:
                return None
            self._working_since[thread] = self._now()
            return self._calls.popleft()

    def _goes_on(self, thread: threading.Thread) -> bool:
        """Return whether a thread that has ended its function is still needed: a replacement may have its place."""
        with self._changed:
            del self._working_since[thread]
            self._left.discard(thread)
            self._slow.discard(thread)
            if self._counted() > self._limit:
                self._threads.remove(thread)
                return False
            self._idle += 1
            return True


def _run(future: Future[Any], function: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = _with_between_calls(function) if between_calls else function()
    except StopIteration as error:
        # A future of asyncio before 3.12 cannot raise it: awaiting the future would wait for ever. PEP 479 does the
        # same.
        wrapped = RuntimeError("the function raised StopIteration")
        wrapped.__cause__ = error
        future.set_exception(wrapped)
    except BaseException as error:  # noqa: BLE001  # The caller gets every error that ends the function.
        future.set_exception(error)
    else:
        future.set_result(result)
    finally:
        # The error's traceback holds this frame: error and future would keep each other alive.
        del future, function


def _with_between_calls(function: Callable[[], Any]) -> Any:
    """Call the function, with the hooks of `between_calls` before and after it."""
    _call_between()
    try:
        return function()
    finally:
        _call_between()


def _call_between() -> None:
    for call in between_calls:
        try:
            call()
        except Exception:  # The function's own end counts, and it may have had its effects.
            logger.exception("%r failed between two functions of a thread", call)
