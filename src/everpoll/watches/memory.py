"""What a run remembers between two looks: the JSON in its row. Everything that must last lives here, and only here.

    intent ──start──▶ looking ⇄ verifying ──▶ cleaning ──▶ ended
                         └─────▶ canceling ──────▲          (parked: needs_code, until a release knows its version)

Promises: rows of earlier releases are understood: fields are only ever added, each with a default.
"""

from typing import Any, Literal

import msgspec
from msgspec import Struct

from everpoll.watches.limits import NAMES_LIMIT

Phase = Literal["intent", "looking", "verifying", "canceling", "cleaning"]
Outcome = Literal["ready", "failed", "canceled", "timed_out"]

OTHERS = "others"
"""Who counts under more names than a run may have counts the rest here."""
LOG_LIMIT = 40
"""Decisions that a run remembers. Equal ones in a row are one entry, so that this is a long time."""


class Decision(Struct, omit_defaults=True):
    """Why the next look is when it is, or how the run ended; `times` in a row."""

    at: float
    rule: str
    """Which rule decided: backoff, hint, after, verify, error, breaker, budget, cancel, …"""
    why: str
    next_s: float | None = None
    """How long until the next look; None: there is none."""
    status: str | None = None
    """The remote's own word."""
    facts: dict[str, Any] = {}
    """Those that this look has changed."""
    times: int = 1
    first_at: float | None = None
    """Of several equal ones."""
    look: int | None = None
    """The number of the look that it follows, from 1 on; of several equal ones, that of the last. None: of no look."""
    took_s: float | None = None
    """How long that look waited for the remote."""


class Sighting(Struct, omit_defaults=True):
    """What `confirm` has seen so far."""

    count: int = 0
    last_at: float | None = None


class RunMemory(Struct, omit_defaults=True):
    """One run, as it lies in its row."""

    run_id: str
    phase: Phase = "intent"
    handle: Any = None
    started_at: float | None = None
    """When the handle was stored, by the store's clock: the clock that counts for the budget."""
    begun_at: float | None = None
    """When it was first leased: the clock for the time before the start."""
    is_given: bool = False
    """It was started elsewhere: its first look comes at once, and the cadence begins behind that."""
    looks: int = 0
    looked_at: float | None = None
    """The last look that got an answer …"""
    took_s: float | None = None
    """… so that the end lies in the middle between that one and the one that saw it."""
    remote: str | None = None
    """The remote that was asked last, where the watch names its remotes."""
    errors: int = 0
    """Looks, starts and cancels that failed in passing."""
    errors_in_a_row: int = 0
    confirms: dict[str, Sighting] = {}
    dues: dict[str, float] = {}
    verifies: dict[str, int] = {}
    user: dict[str, Any] = {}
    status: str | None = None
    progress: str | None = None
    outcome: Outcome | None = None
    value: Any = None
    reason: str | None = None
    evidence: Any = None
    decided_at: float | None = None
    cancel_sent: bool = False
    canceling_at: float | None = None
    cancel_why: str | None = None
    """What whoever canceled it said."""
    cancel_looks: int = 0
    cleanup_tries: int = 0
    cleanup_at: float | None = None
    paused_s: float = 0.0
    """Time in which nobody could look, through no fault of the run: it does not count."""
    paused_at: float | None = None
    paused_most_s: float | None = None
    """How much of the present pause counts at most; None: all of it. An outage of the remote may last for ever."""
    outage_s: float = 0.0
    """How much of `paused_s` was for outages of the remote."""
    has_token: bool = False
    """It was postponed for the remote's rate, and has its turn when it comes back."""
    budget_s: float | None = None
    """The budget of its watch, as the code that last wrote it has it; extensions are kept with the operation."""
    budget_looks: int | None = None
    version: int | None = None
    """Of the code that last wrote it; None: that of the row."""
    op: Any = None
    """The operation, where a migration has changed it."""
    parked: str | None = None
    """Why no code here may look at it."""
    cleaned: bool | None = None
    """Whether the cleanup has succeeded; None: there was nothing to do."""
    counters: dict[str, int] = {}
    seq: int = 0
    """Of the last event."""
    log: list[Decision] = []

    def note(self, decision: Decision) -> None:
        """Remember a decision; one that repeats the last is counted there."""
        last = self.log[-1] if self.log else None
        if last is not None and _same(last, decision):
            last.first_at = last.at if last.first_at is None else last.first_at
            last.at, last.next_s, last.why, last.times = decision.at, decision.next_s, decision.why, last.times + 1
            last.look, last.took_s = decision.look, decision.took_s
            return
        self.log.append(decision)
        del self.log[:-LOG_LIMIT]

    def count(self, name: str, by: int = 1) -> None:
        """One more of these."""
        counters = self.counters
        if name not in counters and len(counters) >= NAMES_LIMIT:
            name = OTHERS
        counters[name] = counters.get(name, 0) + by

    def elapsed_s(self, now: float) -> float:
        """The time that counts."""
        since = self.started_at if self.started_at is not None else self.begun_at
        if since is None:
            return 0.0
        return max(0.0, now - since - self.paused_s - self.pause_s(now))

    def pause_s(self, now: float) -> float:
        """How much the present pause counts so far."""
        if self.paused_at is None:
            return 0.0
        pause_s = max(0.0, now - self.paused_at)
        return pause_s if self.paused_most_s is None else min(pause_s, self.paused_most_s)

    def pause(self, now: float, most_s: float | None = None) -> None:
        """The budget stands still from now on, for that long at most; a pause of the same sort goes on."""
        if self.paused_at is not None and (self.paused_most_s is None) != (most_s is None):
            self.unpause(now)
        if self.paused_at is None:
            self.paused_at, self.paused_most_s = now, most_s

    def unpause(self, now: float) -> None:
        """The budget runs again."""
        pause_s = self.pause_s(now)
        self.paused_s += pause_s
        if self.paused_most_s is not None:
            self.outage_s += pause_s
        self.paused_at = self.paused_most_s = None


def _same(last: Decision, new: Decision) -> bool:
    # Of several equal looks the numbers follow one another, so that the first and the last tell all of them.
    is_next = new.look is None if last.look is None else new.look == last.look + 1
    return (last.rule, last.status) == (new.rule, new.status) and is_next and not new.facts and not last.facts


def encode(memory: RunMemory) -> str:
    """As it is stored."""
    return _encoder.encode(memory).decode()


_encoder = msgspec.json.Encoder()
decode = msgspec.json.Decoder(RunMemory).decode
