"""VirtualClock: asyncio under virtual time. Hours of sleeping pass in no time, in order, and exactly.

Promises: when every task waits, time jumps to the next timer; each timer fires with `loop.time()` equal to its due
time; timers of one instant fire in the order they were made; time stands still while executors work, while `hold`
is open and while real I/O is ready. A test that can never go on fails, with a list of the tasks and where they wait.
Never touches `time.time`, `time.monotonic` or `datetime`, and never another event loop than its own.

    free ──async with clock / run / new_event_loop──▶ attached ──exit / loop.close──▶ free (time stays where it is)
"""

import asyncio
import functools
import math
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self, TypeVar

from everpoll.errors import BadDuration, BadInput, EverpollError, NothingLeftToWait, NotRunning
from everpoll.policy import Duration, seconds
from everpoll.testing.event_loop import AttachedLoop
from everpoll.testing.stuck import Guard, waiting_tasks
from everpoll.testing.timekeeper import ROUNDS_LIMIT, Timekeeper

T = TypeVar("T")

_WALL_START = datetime(2030, 1, 1, tzinfo=UTC)


class VirtualClock:
    """Virtual time for one event loop at a time.

    `start` is the first `now()`, `wall` the wall clock at that moment (an aware datetime or epoch seconds), and
    `patience` how long, in real time, to wait for I/O once nothing else can happen.
    """

    def __init__(self, start: float = 0.0, wall: datetime | float = _WALL_START, *, patience: Duration = "5s") -> None:
        if not math.isfinite(start):
            raise BadInput(f"start={start!r}: write a finite number of seconds")
        patience_s = seconds(patience, name="patience")
        if patience_s == 0:
            raise BadDuration("patience=0: a result on its way from a thread needs a moment; write 0.01 or more")
        self._time = Timekeeper(float(start))
        self._wall_ahead_s = _epoch(wall) - self._time.now
        self._keeper = _Keeper(self._time, patience_s)

    def now(self) -> float:
        """Return virtual monotonic seconds: `loop.time()` of the attached loop."""
        return self._time.now

    def wall(self) -> float:
        """Return virtual seconds since the epoch, for display. They move with `now()`, and may jump."""
        return self._time.now + self._wall_ahead_s

    def set_wall(self, epoch: datetime | float) -> None:
        """Set the wall clock, as an administrator would; `now()` does not notice."""
        self._wall_ahead_s = _epoch(epoch) - self._time.now

    def shift_wall(self, delta_s: float) -> None:
        """Let the wall clock jump, forwards or back, as a time server would; `now()` does not notice."""
        self.set_wall(self.wall() + delta_s)

    def run(self, main: Coroutine[Any, Any, T], *, debug: bool | None = None) -> T:
        """Run a coroutine as `asyncio.run` does, in virtual time; time goes on from where an earlier run left it."""
        if not isinstance(main, Coroutine):
            raise BadInput(f"clock.run({main!r}): it takes a coroutine; write clock.run(main()) with parentheses")
        guarded = self._guarded(main)
        try:
            self._keeper.require_free()
            _require_no_running_loop()
            with asyncio.Runner(loop_factory=self.new_event_loop, debug=debug) as runner:
                return runner.run(guarded)
        finally:
            # If the loop never started, coroutines that were not awaited would add a warning to the error.
            guarded.close()
            main.close()

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        """Return a loop under this clock until it is closed: the `loop_factory` of `asyncio.Runner` and of plug-ins."""
        self._keeper.require_free()
        loop = asyncio.SelectorEventLoop()
        self._keeper.attach(loop)
        return loop

    async def __aenter__(self) -> Self:
        self._keeper.require_free()
        self._keeper.attach(asyncio.get_running_loop())
        self._keeper.own()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._keeper.on_close()
        self._keeper.disown(error)

    async def advance(self, duration: Duration) -> None:
        """Move time exactly that far, and return when all that became due on the way has settled.

        Timers at the very target are included, and so are those up to a nanosecond later: twenty sleeps of 0.1 s
        end at 2.0000000000000004, and are part of `advance(2)`. `now()` is then the due time of the last of those.
        """
        self._keeper.require_attached()
        await self._time.pass_by(seconds(duration, name="advance"))

    async def settle(self) -> None:
        """Let everything run that can run now, without moving time."""
        await self.advance(0)

    def jump(self, duration: Duration) -> None:
        """Move time at once, as on a machine that was suspended: timers that became due meanwhile fire late, in order.

        The one way to move time while a thread works or `hold` is open.
        """
        self._keeper.move_to(self._time.now + seconds(duration, name="jump"))

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Keep time still, from any thread, while threads or processes that asyncio does not know of do their work."""
        self._keeper.hold(+1)
        try:
            yield
        finally:
            self._keeper.hold(-1)

    async def _guarded(self, main: Coroutine[Any, Any, T]) -> T:
        self._keeper.own()
        try:
            result = await main
        except BaseException as error:
            self._keeper.disown(error)
            raise
        self._keeper.disown(None)
        return result


class _Keeper:
    """The clock as its event loop sees it."""

    def __init__(self, time: Timekeeper, patience_s: float) -> None:
        self.patience_s = patience_s
        self._time = time
        self._attached: AttachedLoop | None = None
        self._guard: Guard | None = None
        self._holds = 0
        self._lock = threading.Lock()

    def now(self) -> float:
        return self._time.now

    def is_held(self) -> bool:
        return self._holds > 0

    def require_free(self) -> None:
        if self._attached is not None:
            raise EverpollError(
                f"this VirtualClock is attached to {self._attached.loop!r}: leave that, or make another"
            )

    def require_attached(self) -> None:
        if self._attached is None or self._attached.loop is not asyncio.get_running_loop():
            raise NotRunning(
                "the VirtualClock is not attached to this event loop: use clock.run() or `async with clock`"
            )

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        self._attached = AttachedLoop(loop, self)

    def own(self) -> None:
        owner = asyncio.current_task()
        assert owner is not None, "a coroutine always runs in a task"
        self._guard = Guard(owner)

    def disown(self, outcome: BaseException | None) -> None:
        guard, self._guard = self._guard, None
        if guard is not None:
            guard.settle(outcome)

    def move_to(self, instant: float) -> None:
        self._time.move_to(instant)
        if self._attached is not None:
            self._attached.set_resolution()

    def hold(self, change: int) -> None:
        with self._lock:
            self._holds += change
            attached = self._attached
        if attached is not None and change < 0:
            attached.wake()

    def on_io(self) -> None:
        self._time.restart_rounds()

    def on_round(self, next_due: float) -> None:
        if self._time.is_racing(next_due):
            self._interrupt(EverpollError(self._standstill(f"{ROUNDS_LIMIT:,} rounds of the loop moved no time")))

    def on_idle(self, next_due: float) -> bool:
        moved = self._time.move_on(next_due)
        if moved and self._attached is not None:
            self._attached.set_resolution()
        return moved

    def on_stuck(self) -> None:
        waited = f"every task waits, nothing is scheduled, and no I/O came in for {self.patience_s:g} s (patience)"
        self._interrupt(NothingLeftToWait(self._standstill(waited)))

    def on_close(self) -> None:
        with self._lock:
            attached, self._attached = self._attached, None
        if attached is not None:
            attached.detach()
            self._time.abandon(NotRunning("the VirtualClock was left while this task waited in advance()"))

    def hold_for_shutdown(self, shutdown: Callable[..., Any]) -> Callable[..., Any]:
        # From 3.12 on asyncio gives threads 300 s to end: 300 virtual seconds would be over at once.
        @functools.wraps(shutdown)
        async def held(*args: Any, **options: Any) -> None:
            self.hold(+1)
            try:
                await shutdown(*args, **options)
            finally:
                self.hold(-1)

        return held

    def _interrupt(self, error: EverpollError) -> None:
        # Raised right here, the error leaves run_until_complete(): the last resort when no task can be interrupted.
        if self._guard is None or not self._guard.interrupt(error):
            raise error

    def _standstill(self, what: str) -> str:
        assert self._attached is not None, "only an attached loop gets stuck"
        waiting = waiting_tasks(self._attached.loop)
        return (
            f"virtual time stands still at {self._time.now:g} s: {what}. Waiting:\n{waiting}\n"
            "Let the test wake one of them; wrap work of threads that asyncio does not know in `with clock.hold():`"
        )


def _require_no_running_loop() -> None:
    with suppress(RuntimeError):
        loop = asyncio.get_running_loop()
        raise EverpollError(f"clock.run() starts a loop of its own, and {loop!r} runs here: use `async with clock`")


def _epoch(wall: datetime | float) -> float:
    if not isinstance(wall, datetime):
        return float(wall)
    if wall.tzinfo is None:
        raise BadInput(f"wall={wall!r} has no time zone: add tzinfo=datetime.UTC")
    return wall.timestamp()
