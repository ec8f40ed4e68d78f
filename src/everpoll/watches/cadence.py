"""Cadences: when to look next, from what this run and earlier ones have shown.

A cadence is a pure object: history in, delay out. `Backoff` is the first; `Learned` puts its looks where earlier runs
have ended. Never looks at a clock: the history says how much time has passed.
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
    """What a cadence may know."""

    looks: int = 0
    """Looks of this run so far."""
    elapsed_s: float = 0.0
    """Since the start of this run."""
    durations_s: tuple[float, ...] = ()
    """How long earlier runs of this watch took, newest first: the middle between the look that saw the end and the one
    before it. Runs that timed out or were canceled are left out."""
    runs: tuple[PastRun, ...] = ()
    """The earlier runs themselves, newest first: between which two looks each ended, and its progress."""
    progress: tuple[Mark, ...] = ()
    """What the remote reported about this run: the first (share, seconds since the start) in each tenth."""


@runtime_checkable
class Cadence(Protocol):
    """Anything that says how long to wait until the next look."""

    def next_s(self, history: History, rng: Rng) -> float:
        """Return the seconds until the next look."""
        ...


@dataclass(frozen=True, slots=True)
class Growing:
    """A backoff as a cadence: the nth wait of the run is the nth of the backoff."""

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
        return self.decided(history, rng)[0]

    def decided(self, history: History, rng: Rng) -> tuple[float, str]:
        """Return the seconds until the next look, and why."""
        return self.plan.next_look(history.looks, history.elapsed_s, history.progress, rng)


@dataclass(frozen=True, slots=True, init=False)
class Learned:
    """Looks where earlier runs ended: `Learned(Backoff("2s", cap="30s"))`, which also is the cadence until it knows.

    By default, looks and delay become fewer and shorter by about the same factor. `looks=1` finds the end as soon as
    it can with at most as many looks as the fallback; `looks=0.5` with at most half as many.
    """

    fallback: Backoff
    looks: float | None
    """The share of the fallback's looks that it may make; None: looks and delay shrink alike."""
    least_s: float
    """No gap is shorter than this where looks are close together."""

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
        """See `Cadence`. A watch plans once for each history that it reads; this plans anew at every call."""
        return self.learn(history.runs or [PastRun(one, one) for one in history.durations_s]).next_s(history, rng)

    def learn(self, runs: Sequence[PastRun]) -> Planned:
        """Return the cadence that follows from these runs, newest first."""
        return Planned(planned(self.fallback, self.looks, self.least_s, runs))


def decided(cadence: Cadence, history: History, rng: Rng) -> tuple[float, str | None]:
    """Ask a cadence: return the seconds until the next look, and the reason if it names one."""
    return cadence.decided(history, rng) if isinstance(cadence, Planned) else (cadence.next_s(history, rng), None)


def cadence_of(every: object) -> Cadence | None:
    """Return the cadence that `every=` means; None if it means none."""
    if isinstance(every, Backoff):
        return Growing(every)
    if isinstance(every, Cadence):
        return every
    if isinstance(every, (str, int, float)) and not isinstance(every, bool):
        return Growing(Backoff(every, factor=1.0, jitter=0.1))
    return None
