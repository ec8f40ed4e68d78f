"""Liveness: decides which other workers are dead, from the heartbeats that this worker has seen.

    its beat number changes ──▶ alive       its number stands still over a whole lease ──▶ dead
                                  ▲                           │
                                  └─ the watcher was cut off ─┘   the watch starts over

The watcher is the worker that judges. A worker is dead if it does not beat for a whole lease while the watcher does. An
outage that both share (the database is away, frozen or restarted, a pooler hangs, a machine is paused) also stops the
watcher's own beats. So after a gap in its own beats the watcher starts over. The wall clock is not used: a step of it
declares no worker dead. A verdict names the beat number that stood still, so it has no effect if that worker beats
before the verdict reaches the store.

Promises: a worker that beats at least every half of its lease, while the watcher does too, is never called dead. One
that has stopped is called dead within one lease and one beat of the watcher. Never reads a clock.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

GAP_SHARE = 0.5
"""Of the other's lease: a longer gap between two looks of the watcher may have been an outage that both shared."""
LOOKS_PER_LEASE = 3
"""How often per lease the watcher looks at a worker with a beat number that stands still."""


class OtherWorker(NamedTuple):
    """Another worker, as one beat shows it."""

    incarnation: int
    beats: int
    lease_s: float


class Standstill(NamedTuple):
    """A beat number, and when the watcher saw it first, by the watcher's steady clock."""

    beats: int
    since: float


@dataclass(frozen=True, slots=True)
class Observations:
    """What the watcher has seen of the other workers."""

    looked_at: float | None = None
    """When the last look that was answered was sent."""
    standstills: Mapping[int, Standstill] = field(default_factory=dict)


class Verdict(NamedTuple):
    """The result of one look."""

    observations: Observations
    dead: tuple[tuple[int, int], ...]
    """Incarnations, each with the number that stood still."""
    look_again_s: float | None
    """When to look again, counted from the answer, if that is needed sooner than usual."""


def judge(observations: Observations, asked_at: float, answered_at: float, others: Iterable[OtherWorker]) -> Verdict:
    """Judge the others by a look that was sent and answered at these times of the watcher's steady clock.

    The look happened somewhere between the two: a standstill counts from an answer to a question, and a gap from a
    question to an answer.
    """
    gap_s = None if observations.looked_at is None else answered_at - observations.looked_at
    standstills: dict[int, Standstill] = {}
    dead: list[tuple[int, int]] = []
    again_s: list[float] = []
    for other in others:
        before = observations.standstills.get(other.incarnation)
        is_still = before is not None and before.beats == other.beats
        if before is None or not is_still or gap_s is None or gap_s > other.lease_s * GAP_SHARE:
            standstills[other.incarnation] = Standstill(other.beats, answered_at)
            if is_still:
                again_s.append(other.lease_s / LOOKS_PER_LEASE)
            continue
        standstills[other.incarnation] = before
        left_s = before.since + other.lease_s - asked_at
        if left_s <= 0:
            dead.append((other.incarnation, other.beats))
        else:
            due_s = before.since + other.lease_s - answered_at
            again_s.append(max(0.0, min(due_s, other.lease_s / LOOKS_PER_LEASE)))
    return Verdict(Observations(asked_at, standstills), tuple(dead), min(again_s, default=None))
