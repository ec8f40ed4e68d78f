"""State: a frozen snapshot of a loop, with the names of its phases and outcomes.

Promises: a snapshot never changes, has no reference to a task, a timer or an exception, and contains everything that
the reducer needs. Phase and next due time are computed, never stored, so they cannot contradict the rest.

            start                 due / trigger
    idle ──────────▶ waiting ─────────────────────▶ running ──▶ waiting · open · stopped
                      ▲   │ pause                      │
              resume  │   ▼                            ▼ close
                     paused                         closed ──start──▶ waiting
"""

from enum import IntEnum, StrEnum
from typing import Literal

from msgspec import Struct

from everpoll.policy import NOT_PAUSED, BreakerState, PauseReason


class Phase(StrEnum):
    """The state of a loop in one word, for tables, logs and the API."""

    IDLE = "idle"
    """Registered; the app has not started."""
    WAITING = "waiting"
    RUNNING = "running"
    PAUSED = "paused"
    OPEN = "open"
    """Its breaker is open: the next run is the probe."""
    STOPPED = "stopped"
    """Its function returned `Stop`; `reset()` starts it again."""
    CLOSED = "closed"


class Life(StrEnum):
    """The part of the phase that only an explicit event changes."""

    IDLE = "idle"
    LIVE = "live"
    STOPPED = "stopped"
    CLOSED = "closed"


class Followup(IntEnum):
    """Whether one more run must follow, for triggers that came during a run."""

    NONE = 0
    WANTED = 1
    FORCED = 2


OutcomeKind = Literal["ok", "failed", "snoozed", "stopped", "skipped", "canceled"]


class Outcome(Struct, frozen=True, gc=False):
    """How a run ended; also the result of awaiting `trigger()`."""

    kind: OutcomeKind
    reason: str | None = None
    delay_s: float = 0.0
    """For failed: the earliest retry that the remote allows; for snoozed: the requested delay."""
    changed: bool | None = None
    """For ok: whether the value differs from the last one; None if the function returned no value."""

    @property
    def ok(self) -> bool:
        """True for a success."""
        return self.kind == "ok"


class LoopState(Struct, frozen=True, gc=False, kw_only=True):
    """One loop at one instant. Instants are monotonic seconds of the event loop's clock."""

    base_s: float
    generation: int = 0
    life: Life = Life.IDLE
    runs: int = 0
    in_flight: int = 0
    """The number of the run under way; 0: none. A result with another number is dropped."""
    overran: bool = False
    """The run under way is past its timeout: the failure is counted, but its thread has not returned."""
    followup: Followup = Followup.NONE
    failures: int = 0
    multiplier: float = 1.0
    unchanged: int = 0
    due_from: float | None = None
    """The instant from which `delay_s` counts: the last completion, or the last tick of a fixed rate."""
    delay_s: float = 0.0
    not_before: float | None = None
    """A Retry-After that still holds: runs that end without an answer do not make the next one earlier."""
    tick_at: float | None = None
    missed_ticks: int = 0
    pauses: frozenset[PauseReason] = NOT_PAUSED
    held: bool = False
    """True: a pause reason stops the loop (a reason that only slows it down does not)."""
    slowdown: float = 1.0
    push_alive: bool = False
    breaker: BreakerState = BreakerState()
    last_started: float | None = None
    last_completed: float | None = None
    last_ok: float | None = None
    last_error: str | None = None
    stop_reason: str | None = None
    skipped_condition: int = 0
    skipped_paused: int = 0
    skipped_stopped: int = 0

    @property
    def phase(self) -> Phase:
        """The phase of the loop."""
        if self.life is Life.CLOSED or self.life is Life.IDLE:
            return Phase(self.life.value)
        if self.in_flight:
            return Phase.RUNNING
        if self.life is Life.STOPPED:
            return Phase.STOPPED
        if self.held:
            return Phase.PAUSED
        return Phase.WAITING if self.breaker.opened_at is None else Phase.OPEN

    @property
    def next_due(self) -> float | None:
        """When the loop runs next, or None if no run is scheduled. There is no other deadline."""
        if self.in_flight or self.held or self.due_from is None or self.life is not Life.LIVE:
            return None
        return self.due_from + self.delay_s * self.slowdown

    @property
    def skips(self) -> dict[str, int]:
        """Runs that did not happen, counted by reason; reasons that never occurred are left out."""
        counts = {"condition": self.skipped_condition, "paused": self.skipped_paused, "stopped": self.skipped_stopped}
        return {reason: count for reason, count in counts.items() if count}
