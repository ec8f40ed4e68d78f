"""Pause: a set of reasons not to run; a loop runs again once all of them are removed.

Promises: removing one reason never removes another; equal sets are the same object, so that 100,000 paused loops need
one pointer each. After a pause, the loops with the shortest interval come first. Never runs or stops anything.
"""

from collections.abc import Iterable
from enum import StrEnum
from itertools import combinations
from typing import TypeAlias, TypeVar


class PauseReason(StrEnum):
    """Why a loop is paused: no viewer is present, an operator paused it, or the process shuts down."""

    HIDDEN = "hidden"
    OPERATOR = "operator"
    SHUTDOWN = "shutdown"


PauseReasons: TypeAlias = frozenset[PauseReason]
Key = TypeVar("Key")

# The time between two stale loops after a resume, so that they do not all run at once.
STAGGER_S = 0.150

_SHARED: dict[PauseReasons, PauseReasons] = {
    reasons: reasons
    for size in range(len(PauseReason) + 1)
    for reasons in map(frozenset, combinations(PauseReason, size))
}

NOT_PAUSED: PauseReasons = _SHARED[frozenset()]


def paused(reasons: PauseReasons, reason: PauseReason) -> PauseReasons:
    """Return the reasons with this one added."""
    return _SHARED[reasons | {reason}]


def resumed(reasons: PauseReasons, reason: PauseReason) -> PauseReasons:
    """Return the reasons with this one removed."""
    return _SHARED[reasons - {reason}]


def resume_order(stale: Iterable[tuple[float, Key]]) -> list[Key]:
    """Return the keys of (interval_s, key) pairs, shortest interval first; equal intervals keep their order."""
    # By interval alone: keys need not be comparable.
    return [key for _, key in sorted(stale, key=lambda pair: pair[0])]
