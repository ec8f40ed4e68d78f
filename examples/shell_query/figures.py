"""The real figures, and the same ones speeded up for a demo."""

from dataclasses import dataclass
from typing import Self

from everpoll import Backoff, Budget

EVERY = Backoff("2s", factor=2, cap="30s", jitter=0.2)
BUDGET = Budget("29m", looks=120)
ROWSET_EVERY = Backoff("1.5s", factor=2, cap="8s", jitter=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """`Figures()` are the document's; `Figures.at_speed(60)` are the same, a minute in a second."""

    every: Backoff = EVERY
    budget: Budget = BUDGET
    completed_after_s: float = 5.0
    """Run time from which a completion date starts the "is it still running?" checks."""
    stuck_after_s: float = 180.0
    """Run time from which they are made without any sign."""
    not_running_times: int = 2
    not_running_gap_s: float = 15.0
    rowset_tries: int = 6
    rowset_every: Backoff = ROWSET_EVERY
    probe_after_s: float = 5.0
    probe_every_s: float = 15.0
    reconcile_every_s: float = 60.0
    grace_s: float = 30.0
    """How old a row of the business table is before the reconciler looks after it."""
    sweep_every_s: float = 3600.0
    request_timeout_s: float = 10.0

    @classmethod
    def at_speed(cls, speed: float) -> Self:
        """Every time divided by the speed; numbers of looks, tries and confirmations stay."""
        of = cls()
        return cls(
            every=Backoff(of.every.initial_s / speed, 2, of.every.cap_s / speed, of.every.jitter),
            budget=Budget(of.budget.time_s / speed, looks=of.budget.looks),
            completed_after_s=of.completed_after_s / speed,
            stuck_after_s=of.stuck_after_s / speed,
            not_running_gap_s=of.not_running_gap_s / speed,
            rowset_every=Backoff(of.rowset_every.initial_s / speed, 2, of.rowset_every.cap_s / speed, jitter=0),
            probe_after_s=of.probe_after_s / speed,
            probe_every_s=of.probe_every_s / speed,
            reconcile_every_s=of.reconcile_every_s / speed,
            grace_s=of.grace_s / speed,
            sweep_every_s=of.sweep_every_s / speed,
            # A real network stays as slow as it is.
            request_timeout_s=max(1.0, of.request_timeout_s / speed),
        )
