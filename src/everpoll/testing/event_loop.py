"""AttachedLoop: an asyncio event loop whose time is virtual, from `__init__` to `detach`.

Promises: real I/O that is ready and work in executors come before time moves; timers due at the same instant fire in
the order they were made; `detach` leaves the loop as it was, with time that goes on from the virtual instant.
Never patches a module or a class: only attributes of this one loop.

The only file that uses private parts of asyncio, which are the same from 3.11 to 3.14: `_run_once` calls
`_selector.select(timeout)`, and then fires each handle of the heap `_scheduled` whose `_when` is below `time() +
_clock_resolution`.
"""
# ruff: noqa: SLF001  # asyncio has no public way to replace its time.

import asyncio
import itertools
import math
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Protocol

from everpoll.errors import EverpollError


class Keeper(Protocol):
    """The part of the clock that the loop needs."""

    patience_s: float

    def now(self) -> float:
        """Return the virtual instant."""
        ...

    def is_held(self) -> bool:
        """Return True if time must stand still now."""
        ...

    def on_io(self) -> None:
        """Note that input has come from outside."""
        ...

    def on_round(self, next_due: float) -> None:
        """Note that the loop ran callbacks without any input from outside."""
        ...

    def on_idle(self, next_due: float) -> bool:
        """Move time if nothing can run; return False if it must not move."""
        ...

    def on_stuck(self) -> None:
        """Time could not move, and no I/O came in within the patience."""
        ...

    def hold_for_shutdown(self, shutdown: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a shutdown of threads so that time stands still during it."""
        ...

    def on_close(self) -> None:
        """Note that the loop is being closed."""
        ...


class AttachedLoop:
    """The replaced parts of one loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, keeper: Keeper) -> None:
        self.loop = _replaceable(loop)
        self._keeper = keeper
        self._selector = self.loop._selector
        self._order = itertools.count()
        self._work: list[tuple[asyncio.Future[Any], Future[Any]]] = []
        self._replaced: dict[str, Any] = {}
        self._real_time = self.loop.time.base if isinstance(self.loop.time, _Continued) else self.loop.time
        self._call_at = self.loop.call_at
        self._close = self.loop.close
        self._shift_timers(keeper.now() - self.loop.time())
        self._replace("time", keeper.now)
        self._replace("call_at", self._call_in_order)
        self._replace("run_in_executor", self._run_in_executor)
        self._replace("shutdown_default_executor", keeper.hold_for_shutdown(self.loop.shutdown_default_executor))
        self._replace("close", self._detach_and_close)
        self._replace("_clock_resolution", 0.0)
        self._replace("_selector", _Selector(self._selector, self._select))
        self.set_resolution()

    def set_resolution(self) -> None:
        """Set the clock's resolution to one step of a float; call it whenever time has moved.

        A timer then fires at its own due time and not earlier. asyncio's nanosecond is lost in the rounding from 2**24
        s (194 days) on, and a timer that is due right now would never fire.
        """
        now = self._keeper.now()
        self.loop._clock_resolution = math.nextafter(now, math.inf) - now

    def wake(self) -> None:
        """Wake the loop; safe from any thread."""
        with suppress(RuntimeError):  # Closed meanwhile, by its own thread.
            self.loop.call_soon_threadsafe(_nothing)

    def detach(self) -> None:
        """Return to real time, from now on. Pending timers keep the rest of their delay."""
        for name, value in self._replaced.items():
            if value is _ABSENT:
                delattr(self.loop, name)
            else:
                setattr(self.loop, name, value)
        self.loop.time = _Continued(self._real_time, self._keeper.now())

    def _replace(self, name: str, value: object) -> None:
        self._replaced[name] = vars(self.loop).get(name, _ABSENT)
        setattr(self.loop, name, value)

    def _shift_timers(self, delta_s: float) -> None:
        timers = self.loop._scheduled
        timers.sort()  # A sorted list is a heap, and now the order of equal due times can be written into it.
        for timer in timers:
            timer._when = _Due(timer._when + delta_s, next(self._order))

    def _call_in_order(self, when: float, callback: Callable[..., object], *args: Any, context: Any = None) -> Any:
        return self._call_at(_Due(when, next(self._order)), callback, *args, context=context)

    def _run_in_executor(self, executor: Executor | None, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        work = (self._default_executor() if executor is None else executor).submit(func, *args)
        result = asyncio.wrap_future(work, loop=self.loop)
        self._work.append((result, work))
        return result

    def _default_executor(self) -> Executor:
        self.loop._check_default_executor()
        if self.loop._default_executor is None:
            self.loop.set_default_executor(ThreadPoolExecutor(thread_name_prefix="asyncio"))
        executor: Executor = self.loop._default_executor
        return executor

    def _detach_and_close(self) -> None:
        self._keeper.on_close()
        self._close()

    def _next_due(self) -> float:
        due: float = self.loop._scheduled[0]._when if self.loop._scheduled else math.inf
        return due

    def _select(self, timeout_s: float | None) -> Any:
        is_idle = timeout_s is None or timeout_s > 0
        events = self._select_idle() if is_idle else self._selector.select(0)
        if events:
            self._keeper.on_io()
        elif not is_idle:
            self._keeper.on_round(self._next_due())
        return events

    def _select_idle(self) -> Any:
        # Computed before I/O is read: then a result that a thread posts just before it ends is not missed.
        wait_s = self._worth_waiting_s()
        events = self._selector.select(wait_s)
        if events or wait_s is None:
            return events
        return [] if wait_s == 0 and self._keeper.on_idle(self._next_due()) else self._wait_for_io()

    def _worth_waiting_s(self) -> float | None:
        """Return how long to wait for threads: None while they work, the patience while a result is on its way, else
        0.
        """
        self._work = [(result, work) for result, work in self._work if not (result.done() and work.done())]
        if self._keeper.is_held() or any(not work.done() for _, work in self._work):
            return None
        return self._keeper.patience_s if self._work else 0

    def _wait_for_io(self) -> Any:
        events = self._selector.select(self._keeper.patience_s)
        if not events and not self._keeper.is_held():
            self._keeper.on_stuck()
        return events


class _Selector:
    """The loop's own selector, with another `select`."""

    def __init__(self, selector: Any, select: Callable[[float | None], Any]) -> None:
        self._selector = selector
        self.select = select

    def __getattr__(self, name: str) -> Any:
        return getattr(self._selector, name)


class _Due(float):
    """A due time with an order: in virtual time many are equal, and heapq does not keep the order of equal ones."""

    __slots__ = ("turn",)
    turn: int

    def __new__(cls, when: float, turn: int) -> "_Due":
        due = super().__new__(cls, when)
        due.turn = turn
        return due

    def __lt__(self, other: float) -> bool:
        if isinstance(other, _Due) and float(self) == float(other):
            return self.turn < other.turn
        return float(self) < float(other)


class _Continued:
    """Real time that goes on from a virtual instant."""

    def __init__(self, base: Callable[[], float], now: float) -> None:
        self.base = base
        self._now = now
        self._since = base()

    def __call__(self) -> float:
        return self._now + (self.base() - self._since)


_ABSENT = object()


def _nothing() -> None:
    """Do nothing: the call wakes the loop."""


def _replaceable(loop: asyncio.AbstractEventLoop) -> Any:
    selector = getattr(loop, "_selector", None)
    if isinstance(selector, _Selector):
        raise EverpollError(f"{loop!r} runs under a VirtualClock already: use that one, or leave it first")
    if selector is None or not isinstance(loop, asyncio.BaseEventLoop):
        raise EverpollError(
            f"{type(loop).__module__}.{type(loop).__qualname__} keeps its timers where a VirtualClock cannot reach "
            "them: use clock.run(main()), or clock.new_event_loop as the loop factory"
        )
    return loop
