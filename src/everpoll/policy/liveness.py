"""Liveness: decides which other workers are dead, from the heartbeats that this worker has seen.

    its beat number changes ──▶ alive       its number stands still over a whole lease ──▶ dead
                                  ▲                           │
                                  └─ the watcher was cut off ─┘   the watch starts over

The watcher is the worker that judges. Another worker is dead if it does not beat for a whole lease while the watcher
does. An outage that both share (the database is away, frozen or restarted, a pooler hangs, a machine is paused) also
stops the watcher's own beats, so after a gap in its own beats the watcher starts over. The wall clock is not used, so a
step of it has no effect. A verdict names the beat number that has not changed: it has no effect if that worker beats
before the verdict reaches the store.

Promises: a worker that beats at least every half of its lease, while the watcher does too, is never called dead. One
that has stopped is called dead within one lease and one beat of the watcher. Never reads a clock.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

GAP_SHARE = 0.5
"""A share of the other worker's lease: a longer gap between two beats of the watcher may have been a shared outage."""
CHECKS_PER_LEASE = 3
"""How often per lease the watcher checks a worker whose beat number does not change."""


class OtherWorker(NamedTuple):
    """Another worker, as the answer to one beat describes it."""

    incarnation: int
    beats: int
    lease_s: float


class Standstill(NamedTuple):
    """A beat number, and when the watcher first saw it, by the watcher's monotonic clock."""

    beats: int
    since: float


@dataclass(frozen=True, slots=True)
class Observations:
    """What the watcher has seen of the other workers."""

    asked_at: float | None = None
    """When the watcher sent its last beat that was answered."""
    standstills: Mapping[int, Standstill] = field(default_factory=dict)


class Verdict(NamedTuple):
    """The result of one beat."""

    observations: Observations
    dead: tuple[tuple[int, int], ...]
    """Incarnations, each with the beat number that has not changed."""
    check_again_s: float | None
    """When to check again, in seconds after the answer, if that must be sooner than usual."""


def judge(observations: Observations, asked_at: float, answered_at: float, others: Iterable[OtherWorker]) -> Verdict:
    """Judge the others by a beat that was sent and answered at these times of the watcher's monotonic clock.

    The database read the beat numbers at some time between the two. So a standstill is measured from an answer to a
    later `asked_at`, and a gap from an `asked_at` to a later answer.
    """
    gap_s = None if observations.asked_at is None else answered_at - observations.asked_at
    standstills: dict[int, Standstill] = {}
    dead: list[tuple[int, int]] = []
    again_s: list[float] = []
    for other in others:
        before = observations.standstills.get(other.incarnation)
        is_still = before is not None and before.beats == other.beats
        if before is None or not is_still or gap_s is None or gap_s > other.lease_s * GAP_SHARE:
            standstills[other.incarnation] = Standstill(other.beats, answered_at)
            if is_still:
                again_s.append(other.lease_s / CHECKS_PER_LEASE)
            continue
        standstills[other.incarnation] = before
        left_s = before.since + other.lease_s - asked_at
        if left_s <= 0:
            dead.append((other.incarnation, other.beats))
        else:
            due_s = before.since + other.lease_s - answered_at
            again_s.append(max(0.0, min(due_s, other.lease_s / CHECKS_PER_LEASE)))
    return Verdict(Observations(asked_at, standstills), tuple(dead), min(again_s, default=None))
