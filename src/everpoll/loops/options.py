"""Options: checks the user's options of a loop, and makes the policy of them that the reducer reads.

Promises: every bad option is refused when the loop is registered, with a message that names the loop. The policy never
contains a function: conditions and hooks belong to the shell.
"""

import math
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Literal, TypedDict, TypeVar

from msgspec import Struct

from everpoll.errors import BadInput
from everpoll.loops.state import Outcome
from everpoll.policy import Adaptive, Breaker, Duration, PauseReason, human, number, seconds, shown

Condition = Callable[[], bool | Awaitable[bool]]
Hook = Callable[[Outcome], Awaitable[None] | None]

T = TypeVar("T")

SHORTEST_S = 0.001
DEFAULT_CAP = 8.0
DEFAULT_JITTER = 0.1


class LoopOptions(TypedDict, total=False):
    """What `app.loop` takes in addition to `every`."""

    name: str
    """Default: the function's own name."""
    cap: Duration | None
    """The upper limit of the backoff: a number is a multiple of the interval, a duration is a time; None: no limit."""
    jitter: float
    """Each delay is spread by this fraction, 0 to 1, so that many processes do not run in step."""
    first: Duration | None
    """The delay before the first run; default: one interval. `first="0s"` runs at once."""
    when: Condition | None
    """A function that is called before each run; False skips the run and does not change the backoff."""
    timeout: Duration | None
    """A run that takes longer has failed with the reason "timeout"."""
    fixed_rate: bool
    """Keep the phase of the clock: ticks that were missed are counted, not caught up."""
    when_hidden: Literal["stop"] | float
    """What the pause reason `hidden` does: stop the loop, or slow it down by this factor."""
    adaptive: Adaptive | None
    """Adapt the base interval to how often `Ok(value)` changes."""
    breaker: Breaker | None
    """Stop for a cooldown after N failures in a row, then send one probe."""
    safety_every: Duration | None
    """The interval while push works (`push_connected()`): the safety net."""
    on_outcome: Hook | None
    """A function that is called with each outcome, as part of the run."""


_OPTIONS = sorted(LoopOptions.__annotations__)


class LoopPolicy(Struct, frozen=True, kw_only=True):
    """The checked options, as plain numbers: the conformance vectors have the same fields as JSON."""

    every_s: float
    cap: float | None = DEFAULT_CAP
    jitter: float = DEFAULT_JITTER
    first_s: float | None = None
    timeout_s: float | None = None
    fixed_rate: bool = False
    slow_when_hidden: float | None = None
    adaptive: Adaptive | None = None
    breaker: Breaker | None = None
    safety_every_s: float | None = None


def loop_policy(name: str, every: Duration, options: LoopOptions) -> LoopPolicy:
    """Return the policy of the loop `name`; raise `BadInput` for an option that is not valid."""
    if unknown := sorted(options.keys() - set(_OPTIONS)):
        raise BadInput(f"loop {name!r}: no option is called {unknown[0]!r}; there are: {', '.join(_OPTIONS)}")
    every_s = seconds(every, name=f"loop {name!r}: every", positive=True)
    if every_s < SHORTEST_S:
        raise BadInput(f"loop {name!r}: every={shown(every)}: a loop's interval is {human(SHORTEST_S)} or more")
    adaptive = _instance(name, "adaptive", options.get("adaptive"), Adaptive)
    if adaptive is not None and not adaptive.minimum_s <= every_s <= adaptive.maximum_s:
        raise BadInput(f"loop {name!r}: every={human(every_s)} is outside {adaptive}; begin between the two")
    safety_every_s = _optional(name, "safety_every", options.get("safety_every"))
    if safety_every_s is not None and safety_every_s < every_s:
        raise BadInput(
            f"loop {name!r}: safety_every={human(safety_every_s)} is shorter than every={human(every_s)}; "
            "with working push, it polls less often"
        )
    return LoopPolicy(
        every_s=every_s,
        cap=_cap(name, options.get("cap", DEFAULT_CAP), every_s, adaptive),
        jitter=_fraction(name, options.get("jitter", DEFAULT_JITTER)),
        first_s=_optional(name, "first", options.get("first"), positive=False),
        timeout_s=_optional(name, "timeout", options.get("timeout")),
        fixed_rate=_flag(name, "fixed_rate", options.get("fixed_rate", False)),
        slow_when_hidden=_slowdown(name, options.get("when_hidden", "stop")),
        adaptive=adaptive,
        breaker=_instance(name, "breaker", options.get("breaker"), Breaker),
        safety_every_s=safety_every_s,
    )


def pause_reason(reason: PauseReason | str) -> PauseReason:
    """Return the reason that a user named, checked."""
    try:
        return PauseReason(reason)
    except ValueError:
        known = ", ".join(repr(known.value) for known in PauseReason)
        raise BadInput(f"reason={shown(reason)}: a pause has one of these: {known}") from None


def users_reason(reason: PauseReason | str) -> PauseReason:
    """Return the reason, checked; refuse "shutdown", which only everpoll sets."""
    if pause_reason(reason) is PauseReason.SHUTDOWN:
        raise BadInput(
            'reason="shutdown" is set by everpoll itself; pause with "operator" or "hidden", or close the app'
        )
    return pause_reason(reason)


def _flag(name: str, option: str, value: bool) -> bool:
    if isinstance(value, bool):
        return value
    raise BadInput(f"loop {name!r}: {option}={shown(value)}: write True or False")


def _optional(name: str, option: str, value: Duration | None, *, positive: bool = True) -> float | None:
    return None if value is None else seconds(value, name=f"loop {name!r}: {option}", positive=positive)


def _cap(name: str, cap: Duration | None, every_s: float, adaptive: Adaptive | None) -> float | None:
    """Return the cap as a multiple of the interval. A time is converted; it is refused if the interval adapts."""
    if cap is None or cap == math.inf:
        return None
    if isinstance(cap, str | timedelta):
        cap_s = seconds(cap, name=f"loop {name!r}: cap", positive=True)
        if adaptive is not None:
            raise BadInput(f"loop {name!r}: cap={shown(cap)}: its interval adapts; write a multiple of it, as cap=8")
        if cap_s < every_s:
            raise BadInput(f"loop {name!r}: cap={shown(cap)} is shorter than every={human(every_s)}")
        return cap_s / every_s
    accepted = (
        'a time, as "5m", or a multiple of the interval, 1 or more (1 never backs off, 8 is the default), or None for '
        "no limit"
    )
    return number(cap, name=f"loop {name!r}: cap", at_least=1, accepted=accepted)


def _fraction(name: str, jitter: float) -> float:
    accepted = "a fraction from 0 (none) to 1, such as 0.1 for ±10 %"
    return number(jitter, name=f"loop {name!r}: jitter", at_least=0, at_most=1, accepted=accepted)


def _slowdown(name: str, when_hidden: Literal["stop"] | float) -> float | None:
    if when_hidden == "stop":
        return None
    accepted = '"stop", or the factor, 1 or more, by which it slows down'
    return number(when_hidden, name=f"loop {name!r}: when_hidden", at_least=1, at_most=1e6, accepted=accepted)


def _instance(name: str, option: str, value: T | None, kind: type[T]) -> T | None:
    if value is not None and not isinstance(value, kind):
        raise BadInput(f"loop {name!r}: {option}={shown(value)}: write {kind.__name__}(…)")
    return value
