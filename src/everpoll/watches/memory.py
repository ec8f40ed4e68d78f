"""The memory of a run: the JSON in its row, with everything that lasts between two looks.

    intent ──start──▶ looking ⇄ verifying ──▶ cleaning ──▶ ended
                         └─────▶ canceling ──────▲          (parked: needs_code, until a release knows its version)

Promises: rows of earlier releases can be read: fields are only added, each with a default.
"""

from copy import copy
from typing import Any, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from everpoll.watches.limits import NAMES_LIMIT

Phase = Literal["intent", "looking", "verifying", "canceling", "cleaning"]
Outcome = Literal["ready", "failed", "canceled", "timed_out"]

OTHERS = "others"
"""The counter for names beyond NAMES_LIMIT."""
LOG_LIMIT = 40
"""How many decisions a run keeps; equal decisions in a row share one entry."""


class Decision(Struct, omit_defaults=True):
    """A decision of a run, with its reason: when the next look comes, or how the run ended."""

    at: float
    rule: str
    """Which rule decided: backoff, hint, after, verify, error, breaker, budget, cancel, …"""
    why: str
    next_s: float | None = None
    """How long until the next look; None: there is none."""
    status: str | None = None
    """The remote's own word."""
    facts: dict[str, Any] = {}
    """The facts that this look has changed."""
    times: int = 1
    first_at: float | None = None
    """When the first of several equal decisions was made."""
    look: int | None = None
    """The number of its look, from 1; of several equal decisions, that of the last. None if no look was made."""
    took_s: float | None = None
    """How long that look waited for the remote."""


class Sighting(Struct, omit_defaults=True):
    """What `confirm` has seen so far."""

    count: int = 0
    last_at: float | None = None
    first_at: float | None = None
    """When the first of the counted sightings was."""
    before_at: float | None = None
    """When the last look before the first sighting was: it saw the operation running."""


class StepNotes(Struct, omit_defaults=True):
    """Notes about the step under way, until it is settled; never stored."""

    visible: tuple[str | None, ...]
    """What subscribers saw of the run when the step began."""
    looks: int
    """The number of looks when the step began."""
    may_have_started: bool = False
    """An earlier lease, or this one, may have called the remote's start."""
    cancel_requested: bool = False
    changed: dict[str, Any] = {}
    """The facts that this step has changed, for the log."""
    look_took_s: float | None = None

    def note_change(self, changed: dict[str, Any]) -> None:
        """Add facts that this step has changed."""
        if changed:
            self.changed = self.changed | changed


class RunMemory(Struct, omit_defaults=True, rename={"started_elsewhere": "is_given"}):
    """A run, as it is stored in its row."""

    run_id: str
    phase: Phase = "intent"
    handle: Any = None
    started_at: float | None = None
    """When the handle was stored, by the store's clock: the budget counts from here."""
    begun_at: float | None = None
    """When the run was first leased: the budget counts from here until the start."""
    started_elsewhere: bool = False
    """The operation was started elsewhere: the first look comes at once, and the cadence begins after that look."""
    looks: int = 0
    looked_at: float | None = None
    """When a look last saw the operation running."""
    sighted_at: float | None = None
    """When a look first asked for a check, with no contrary answer since."""
    span: tuple[float, float | None] | None = None
    """The two looks between which the operation ended, in seconds since its start; the second is None if the run was

    given up."""
    marks: list[tuple[float, float]] = []
    """The first share of progress in each tenth, each with its seconds since the start."""
    learned_as: str | None = None
    """The kind of the operation, if the watch learns by kind."""
    took_s: float | None = None
    """Written by earlier releases: the middle of the span."""
    remote: str | None = None
    """The remote that was called last, if the watch names its remotes."""
    errors: int = 0
    """Looks, starts, cancels and cleanups that failed."""
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
    """The reason that the caller gave for the cancel."""
    cancel_looks: int = 0
    cleanup_tries: int = 0
    cleanup_at: float | None = None
    paused_s: float = 0.0
    """Time that does not count for the budget: the remote was down, or the worker had no code for the run."""
    paused_at: float | None = None
    paused_most_s: float | None = None
    """The longest time that the current pause may last (an outage of the remote); None: no limit."""
    outage_s: float = 0.0
    """The part of `paused_s` that outages of the remote caused."""
    has_token: bool = False
    """The run waits for the remote's rate, and has taken its token already."""
    budget_s: float | None = None
    """The time budget of the watch at the last write; extensions are stored with the operation."""
    budget_looks: int | None = None
    version: int | None = None
    """The watch's version that last wrote the memory; None: the version of the row."""
    op: Any = None
    """The operation, if a migration has changed it."""
    parked: str | None = None
    """Why the run needs code that the worker does not have."""
    cleaned: bool | None = None
    """Whether the cleanup has succeeded; None if there was none."""
    counters: dict[str, int] = {}
    seq: int = 0
    """The number of the last event."""
    log: list[Decision] = []
    step: StepNotes | None = None
    """Notes about the step under way; always None in the row."""

    def note(self, decision: Decision) -> None:
        """Add a decision to the log, or count it if it repeats the last one."""
        last = self.log[-1] if self.log else None
        if last is not None and _same(last, decision):
            first_at = last.at if last.first_at is None else last.first_at
            self.log = [*self.log[:-1], replace(decision, first_at=first_at, times=last.times + 1)]
            return
        self.log = [*self.log[1 - LOG_LIMIT :], decision]

    def for_look(self) -> "RunMemory":
        """Return a copy that a look may change: if the look fails, the run is as it was."""
        copied = copy(self)
        copied.counters, copied.confirms, copied.dues = self.counters.copy(), self.confirms.copy(), self.dues.copy()
        return copied

    def count(self, name: str, by: int = 1) -> None:
        """Add to a counter."""
        counters = self.counters
        if name not in counters and len(counters) >= NAMES_LIMIT:
            name = OTHERS
        counters[name] = counters.get(name, 0) + by

    def elapsed_s(self, now: float) -> float:
        """Return how much of the time budget is used."""
        since = self.started_at if self.started_at is not None else self.begun_at
        if since is None:
            return 0.0
        return max(0.0, now - since - self.paused_s - self.pause_s(now))

    def pause_s(self, now: float) -> float:
        """Return how long the current pause has lasted, up to its limit."""
        if self.paused_at is None:
            return 0.0
        pause_s = max(0.0, now - self.paused_at)
        return pause_s if self.paused_most_s is None else min(pause_s, self.paused_most_s)

    def pause(self, now: float, most_s: float | None = None) -> None:
        """Pause the budget from now on, for at most `most_s`; if it is paused for the same reason, nothing changes."""
        if self.paused_at is not None and (self.paused_most_s is None) != (most_s is None):
            self.unpause(now)
        if self.paused_at is None:
            self.paused_at, self.paused_most_s = now, most_s

    def unpause(self, now: float) -> None:
        """End the pause of the budget."""
        pause_s = self.pause_s(now)
        self.paused_s += pause_s
        if self.paused_most_s is not None:
            self.outage_s += pause_s
        self.paused_at = self.paused_most_s = None


def _same(last: Decision, new: Decision) -> bool:
    # Looks of one entry have consecutive numbers, so that the first and the last tell all.
    is_next = new.look is None if last.look is None else new.look == last.look + 1
    return (last.rule, last.status) == (new.rule, new.status) and is_next and not new.facts and not last.facts


def encode(memory: RunMemory) -> str:
    """Encode a memory as it is stored."""
    return _encoder.encode(memory).decode()


_encoder = msgspec.json.Encoder()
decode = msgspec.json.Decoder(RunMemory).decode
