"""The stage on which loops play under virtual time: a clock, an app whose jitter is known, functions that record."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

from everpoll import Everpoll, Loop
from everpoll.loops.deadlines import Deadlines
from everpoll.testing import VirtualClock

# How long, in real time, a thread waits for what a correct program does at once.
PATIENCE_S = 30.0


class Chance:
    """A generator that always draws the same number; 0.5 displaces nothing."""

    def __init__(self, value: float = 0.5) -> None:
        self.value = value

    def random(self) -> float:
        return self.value


class Stage:
    """One clock, one app, and what is left behind on the event loop."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.chance = Chance()
        self.app = Everpoll(clock=self.clock, rng=self.chance)

    def play(self, scene: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self.clock.run(scene())

    def runs(self, *answers: object, takes_s: float = 0.0) -> "Runs":
        return Runs(self.clock, list(answers), takes_s)

    def add(self, function: Callable[[], Any], every: Any = 30, name: str = "prices", **options: Any) -> Loop:
        return self.app.loops.replace(function, every, name=name, **({"jitter": 0} | options))


class Runs:
    """A loop's function: records when it ran and how many at once, takes its time, answers from a script, then None."""

    def __init__(self, clock: VirtualClock, answers: list[object], takes_s: float) -> None:
        self._clock = clock
        self.answers = answers
        self.takes_s = takes_s
        self.at: list[float] = []
        self.under_way = 0
        self.most_at_once = 0
        self.canceled = 0

    async def __call__(self) -> object:
        self.at.append(self._clock.now())
        self.under_way += 1
        self.most_at_once = max(self.most_at_once, self.under_way)
        try:
            await asyncio.sleep(self.takes_s)
        except asyncio.CancelledError:
            self.canceled += 1
            raise
        finally:
            self.under_way -= 1
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, BaseException):
            raise answer
        return answer


class Blocking:
    """A plain function that waits in its thread until it is let go."""

    def __init__(self) -> None:
        self.entered = threading.Semaphore(0)
        self.let_go = threading.Event()
        self.under_way = 0
        self.most_at_once = 0
        self._lock = threading.Lock()

    def __call__(self) -> bool:
        with self._lock:
            self.under_way += 1
            self.most_at_once = max(self.most_at_once, self.under_way)
        self.entered.release()
        assert self.let_go.wait(PATIENCE_S)
        with self._lock:
            self.under_way -= 1
        return True

    def wait_until_entered(self) -> None:
        assert self.entered.acquire(timeout=PATIENCE_S)


async def turns(count: int = 20) -> None:
    """Let the event loop go round, where time stands still because a thread works."""
    for _ in range(count):
        await asyncio.sleep(0)


def in_turn(*acts: Callable[[], object]) -> None:
    """Do one after the other, where there is room for an expression only."""
    for act in acts:
        act()


def timers() -> int:
    """How many timers of everpoll the running event loop holds."""
    scheduled: list[Any] = asyncio.get_running_loop()._scheduled  # type: ignore[attr-defined]
    return sum(
        isinstance(getattr(timer._callback, "__self__", None), Deadlines) for timer in scheduled if timer._callback
    )
