"""The policy of a run: the part of its watch that decisions depend on."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from everpoll.policy import Backoff, Budget

Exhausted = Literal["failed", "ready"]

DEFAULT_CLEANUP = Backoff("1s", factor=2, cap="1h", jitter=0.2)
DEFAULT_START = Backoff("1s", factor=2, cap="1m", jitter=0.2)


@dataclass(frozen=True, slots=True)
class CheckPolicy:
    """How often a check is tried, and the outcome of the run once all tries are used."""

    tries: int
    every: Backoff
    exhausted: Exhausted = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPolicy:
    """The policy of a run: its budgets, and which functions its watch has."""

    budget: Budget
    """The budget of the run, extensions included."""
    own_budget: Budget
    """The budget of the watch, without extensions: it is stored with the run."""
    outage_s: float
    """How long the budget may be paused for outages of the remote, in all; 0: never."""
    unexpected_errors: int = 5
    cancel_s: float = 300.0
    cleanup: Budget = field(default_factory=lambda: Budget("1d"))
    cleanup_every: Backoff = DEFAULT_CLEANUP
    can_start: bool = False
    can_adopt: bool = False
    can_cancel: bool = False
    can_clean: bool = False
    has_look_many: bool = False
    """The watch has a `look_many`, so a run takes no rate token of its own."""
    checks: Mapping[str, CheckPolicy] = field(default_factory=dict)
