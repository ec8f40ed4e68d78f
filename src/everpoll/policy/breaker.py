"""Breaker: stops calls to a remote that keeps failing, then lets one probe through to test it.

             Nth failure in a row             cooldown over, or forced
    closed ──────────────────────▶ open ─────────────────────────────▶ half-open
       ▲                            ▲                                   │  │
       │                            └── probe failed, or gave no answer ┘  │
       └────────────────────────────────── probe succeeded ────────────────┘

Promises: at most one probe is under way at a time. A probe without a result for a whole cooldown counts as failed, so
that a caller that crashed cannot lock the breaker for ever. Never calls anything: the caller calls, and reports the
result.
"""

from dataclasses import dataclass, replace
from enum import StrEnum

from everpoll.policy.durations import Duration, human, seconds
from everpoll.policy.figures import whole_number


class BreakerPhase(StrEnum):
    """What the breaker does with a call: lets it through, refuses it, or lets one probe through."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


@dataclass(frozen=True, slots=True)
class BreakerState:
    """Failures in a row, when the breaker opened, when its probe began; `BreakerState()` is closed."""

    failures: int = 0
    opened_at: float | None = None
    probe_at: float | None = None


# 100,000 healthy loops share this one value.
_CLOSED = BreakerState()


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Breaker:
    """Opens after this many failures in a row, for the cooldown: `Breaker(10, "5m")`."""

    failures: int
    cooldown_s: float

    def __init__(self, failures: int = 10, cooldown: Duration = "5m") -> None:
        accepted = "how many failures in a row open the breaker, at least 1"
        object.__setattr__(self, "failures", whole_number(failures, name="failures", at_least=1, accepted=accepted))
        object.__setattr__(self, "cooldown_s", seconds(cooldown, name="cooldown", positive=True))

    def __repr__(self) -> str:
        return f"Breaker(failures={self.failures}, cooldown={human(self.cooldown_s)!r})"

    def phase(self, state: BreakerState, now: float) -> BreakerPhase:
        """Return the phase at that instant. An open breaker becomes half-open by time alone."""
        state = self._without_lost_probe(state, now)
        if state.opened_at is None:
            return BreakerPhase.CLOSED
        if state.probe_at is not None or now >= state.opened_at + self.cooldown_s:
            return BreakerPhase.HALF_OPEN
        return BreakerPhase.OPEN

    def ask(self, state: BreakerState, now: float, *, force: bool = False) -> tuple[BreakerState, bool]:
        """Return whether to call now. While not closed, the allowed call is the probe; `force` skips the cooldown."""
        state = self._without_lost_probe(state, now)
        if state.opened_at is None:
            return state, True
        if state.probe_at is not None:
            return state, False
        if force or now >= state.opened_at + self.cooldown_s:
            return replace(state, probe_at=now), True
        return state, False

    def succeeded(self, state: BreakerState) -> BreakerState:
        """Record a call that succeeded, probe or not: the breaker closes."""
        return state if state == _CLOSED else _CLOSED

    def failed(self, state: BreakerState, now: float) -> BreakerState:
        """Record a failed call: the Nth in a row opens the breaker, a failed probe restarts the cooldown."""
        failures = state.failures + 1
        opens = failures >= self.failures if state.opened_at is None else state.probe_at is not None
        # A call that began before the breaker opened and fails later must not prolong the cooldown.
        return BreakerState(failures, now if opens else state.opened_at)

    def abandoned(self, state: BreakerState) -> BreakerState:
        """Record a probe that was canceled without a result: the next call may be the probe."""
        return replace(state, probe_at=None)

    def retry_at(self, state: BreakerState, now: float) -> float:
        """Return the first instant at which `ask` allows a call, unless a call reports its result before."""
        if state.opened_at is None:
            return now
        opened_at = state.opened_at if state.probe_at is None else state.probe_at + self.cooldown_s
        return max(now, opened_at + self.cooldown_s)

    def _without_lost_probe(self, state: BreakerState, now: float) -> BreakerState:
        if state.probe_at is None or now < state.probe_at + self.cooldown_s:
            return state
        # The cooldown counts from the end of the probe's own cooldown, not from now: a late call must not prolong it.
        return BreakerState(state.failures + 1, state.probe_at + self.cooldown_s)
