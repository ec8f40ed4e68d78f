"""Cadences: when to look next, from the history of this run and of earlier ones.

A cadence is pure: history in, delay out. `Backoff` lets delays grow; `Learned` looks around the times at which earlier
runs ended. A cadence never reads a clock: the history has the elapsed time.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from everpoll.errors import BadInput
from everpoll.policy import Backoff, Duration, Rng, number, seconds, shown
from everpoll.watches.learned_plan import Plan, planned
from everpoll.watches.past_runs import Mark, PastRun

LEAST_LOOKS = 0.05


@dataclass(frozen=True, slots=True)
class History:
    """The facts from which a cadence decides."""

    looks: int = 0
    """Looks of this run so far."""
    elapsed_s: float = 0.0
    """Seconds since the start of this run."""
    durations_s: tuple[float, ...] = ()
    """How long earlier runs of this watch took, newest first: up to the middle between the look that saw the end and

    the look before it. Runs that timed out or were canceled are left out."""
    runs: tuple[PastRun, ...] = ()
    """The earlier runs themselves, newest first: between which two looks each ended, and its progress."""
    progress: tuple[Mark, ...] = ()
    """What the remote reported about this run: the first (share, seconds since the start) in each tenth."""


@runtime_checkable
class Cadence(Protocol):
    """Decides how long to wait until the next look."""

    def next_s(self, history: History, rng: Rng) -> float:
        """Return the seconds until the next look."""
        ...


@dataclass(frozen=True, slots=True)
class Growing:
    """A backoff as a cadence: the nth wait of the run is the nth delay of the backoff."""

    backoff: Backoff

    def next_s(self, history: History, rng: Rng) -> float:
        """See `Cadence`."""
        return self.backoff.delay(history.looks + 1, rng)


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan as a cadence, with its reasons."""

    plan: Plan

    def next_s(self, history: History, rng: Rng) -> float:
        """See `Cadence`."""
        return self.wait_and_reason(history, rng)[0]

    def wait_and_reason(self, history: History, rng: Rng) -> tuple[float, str]:
        """Return the seconds until the next look, and why."""
        return self.plan.next_look(history.looks, history.elapsed_s, history.progress, rng)


@dataclass(frozen=True, slots=True, init=False)
class Learned:
    """Looks around the times at which earlier runs ended: `Learned(Backoff("2s", cap="30s"))`.

    The backoff is the fallback: it decides until enough runs have ended. By default, the number of looks and the delay
    until the end is noticed shrink by about the same factor. `looks=1` notices the end as early as possible with at
    most as many looks as the fallback makes; `looks=0.5` with at most half as many.
    """

    fallback: Backoff
    looks: float | None
    """The share of the fallback's looks that it may make; None: the number of looks and the delay shrink alike."""
    least_s: float
    """The shortest wait between two looks."""

    def __init__(self, fallback: Backoff, looks: float | None = None, least: Duration = "1s") -> None:
        if not isinstance(fallback, Backoff):
            raise BadInput(f'Learned({shown(fallback)}): write Learned(Backoff("2s", cap="30s"))')
        if looks is not None:
            accepted = "the share of the fallback's looks, as 0.5"
            looks = number(looks, name="looks", at_least=LEAST_LOOKS, at_most=1, accepted=accepted)
        put = object.__setattr__
        put(self, "fallback", fallback)
        put(self, "looks", looks)
        put(self, "least_s", seconds(least, name="least", positive=True))

    def next_s(self, history: History, rng: Rng) -> float:
        """See `Cadence`. This makes a plan at each call; a watch makes one for each history that it reads."""
        return self.learn(history.runs or [PastRun(one, one) for one in history.durations_s]).next_s(history, rng)

    def learn(self, runs: Sequence[PastRun]) -> Planned:
        """Return the cadence for the history of these runs, newest first."""
        return Planned(planned(self.fallback, self.looks, self.least_s, runs))


def next_wait(cadence: Cadence, history: History, rng: Rng) -> tuple[float, str | None]:
    """Return the seconds until the next look, and the reason if the cadence names one."""
    return (
        cadence.wait_and_reason(history, rng) if isinstance(cadence, Planned) else (cadence.next_s(history, rng), None)
    )


def cadence_of(every: object) -> Cadence | None:
    """Return the cadence that `every=` means; None if it means none."""
    if isinstance(every, Backoff):
        return Growing(every)
    if isinstance(every, Cadence):
        return every
    if isinstance(every, (str, int, float)) and not isinstance(every, bool):
        return Growing(Backoff(every, factor=1.0, jitter=0.1))
    return None
