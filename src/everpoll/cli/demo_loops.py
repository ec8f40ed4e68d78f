"""The demo's loops: simulated sources of data with simulated failures, in intervals short enough to watch."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from everpoll.app import Everpoll
from everpoll.loops import Failed, LoopState, Ok, Outcome, Stop
from everpoll.policy import Adaptive, Breaker, PauseReason

HIDDEN_EVERY = "9s"
HIDDEN_FOR_S = 3.0


@dataclass
class LoopCounts:
    """Counts of one loop so far."""

    failed: int = 0
    recovered: int = 0
    longest: float = 1.0
    failing: bool = False


@dataclass
class Scenario:
    """The story so far: its lines, the counts of each loop, and what each loop shows."""

    shows: dict[str, str] = field(default_factory=dict)
    seen: dict[str, LoopCounts] = field(default_factory=dict)
    story: list[str] = field(default_factory=list)
    final: dict[str, LoopState] = field(default_factory=dict)
    hidden: bool = False

    def caption(self) -> str:
        """The current state of all loops in a few words."""
        return "no viewer: paused" if self.hidden else "a viewer is there"

    def watch(self, app: Everpoll, name: str) -> Callable[[Outcome], None]:
        """The hook that keeps the counts of one loop."""
        seen = self.seen.setdefault(name, LoopCounts())

        def note(outcome: Outcome) -> None:
            if outcome.kind == "failed":
                seen.failed += 1
                seen.failing = True
                self.story.append(f"{name}: failed: {outcome.reason}")
            elif outcome.ok and seen.failing:
                seen.recovered += 1
                seen.failing = False
                self.story.append(f"{name}: recovered")
            seen.longest = max(seen.longest, app.loops[name].state.multiplier)

        return note


class Sources:
    """Simulated remote systems: each loop calls one method."""

    def __init__(self) -> None:
        self._calls: Counter[str] = Counter()
        self._rng = random.Random(7)  # noqa: S311 - the same story every time

    def _call(self, name: str) -> int:
        self._calls[name] += 1
        return self._calls[name]

    async def prices(self) -> bool:
        """Always succeed."""
        await asyncio.sleep(0.15)
        return True

    async def orders(self) -> bool | Failed:
        """Fail in phases."""
        await asyncio.sleep(0.1)
        return True if self._call("orders") % 6 in {1, 2, 3} else Failed("503 Service Unavailable")

    async def inbox(self) -> None:
        """Lose the connection now and then."""
        await asyncio.sleep(0.05)
        if self._call("inbox") % 5 == 2:
            raise ConnectionResetError("connection reset by peer")

    async def billing(self) -> Failed | None:
        """Fail from the start, then recover."""
        return Failed("timed out", retry_after="500ms") if self._call("billing") < 5 else None

    async def weather(self) -> Ok:
        """Return new values all the time, then hardly ever."""
        call = self._call("weather")
        return Ok(call // 6 if call > 8 else self._rng.random())

    def countdown(self) -> Stop | None:
        """Stop after a while; a plain function."""
        return Stop("has done its work") if self._call("countdown") == 5 else None


def add_loops(app: Everpoll) -> Scenario:
    """Register seven loops; their scenario."""
    scenario, sources = Scenario(), Sources()

    def add(function: Callable[[], Any], every: str, shows: str, **options: Any) -> None:
        name = function.__name__
        scenario.shows[name] = shows
        app.loop(every, on_outcome=scenario.watch(app, name), **options)(function)

    add(sources.prices, "1s", "all is well", first="0s")
    add(sources.orders, "700ms", "fails in phases, backs off, recovers", cap=2)
    add(sources.inbox, "900ms", "an exception is a failure too", when_hidden=3)
    add(sources.billing, "500ms", "a breaker: opens, sends one probe", breaker=Breaker(3, "2s"))
    add(sources.weather, "1s", "follows how often data changes", adaptive=Adaptive("250ms", "3s", patience=2))
    add(sources.countdown, "1500ms", "a plain function; stops by itself")

    def turn() -> None:
        scenario.hidden = not scenario.hidden
        (app.loops.pause if scenario.hidden else app.loops.resume)(PauseReason.HIDDEN)
        scenario.story.append(f"viewers: {scenario.caption()}")

    async def viewers() -> None:
        turn()
        asyncio.get_running_loop().call_later(HIDDEN_FOR_S, turn)

    # A slowdown of 1: this loop goes on while the others are hidden.
    add(viewers, HIDDEN_EVERY, "pauses the others while no viewer is there", first="5s", jitter=0, when_hidden=1)
    return scenario
