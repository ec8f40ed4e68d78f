"""The span in which an operation ended: what its watch learns from a run.

Promises: a span starts at a look that saw the operation running and stops at the first look that saw its end.
"""

from everpoll.watches.memory import RunMemory
from everpoll.watches.past_runs import tenth


def since_start_s(memory: RunMemory, now: float) -> float:
    """Return the seconds since the start. The operation runs on while no look is possible, so pauses count."""
    return 0.0 if memory.started_at is None else max(0.0, now - memory.started_at)


def mark_progress(memory: RunMemory, share: float, now: float) -> None:
    """Remember the first share of progress in each tenth.

    The last share in each tenth is close to the end in any case, so it would make a useless percentage look good.
    """
    at_s = since_start_s(memory, now)
    if share > 0 and at_s > 0 and (not memory.marks or tenth(share) > tenth(memory.marks[-1][0])):
        memory.marks = [*memory.marks, (share, round(at_s, 3))]


def span_of(memory: RunMemory, *, has_start: bool) -> tuple[float, float | None] | None:
    """Return the two looks between which the run ended, in seconds since its start; no second one if it was given up.

    None: the run teaches nothing. It was never looked at, or it was started elsewhere at an unknown time.
    """
    started_at, decided_at = memory.started_at, memory.decided_at
    if started_at is None or decided_at is None or memory.looks == 0 or (memory.started_elsewhere and has_start):
        return None
    running_at, ended_at = memory.looked_at, decided_at if memory.sighted_at is None else memory.sighted_at
    for one in memory.confirms.values():
        # The first of the sightings that led to this end counts; the others only confirm it.
        is_last = one.last_at is not None and (memory.looked_at is None or one.last_at > memory.looked_at)
        if is_last and one.first_at is not None and one.first_at < ended_at:
            running_at, ended_at = one.before_at, one.first_at
    running_s = 0.0 if running_at is None else max(0.0, running_at - started_at)
    if memory.outcome == "ready" or (memory.outcome == "failed" and memory.errors_in_a_row == 0):
        # A run that was adopted began some time between its first lease and its adoption.
        is_adopted = "adopted" in memory.counters and memory.begun_at is not None
        since = memory.begun_at if is_adopted and memory.begun_at is not None else started_at
        return round(running_s, 3), round(max(running_s, ended_at - since), 3)
    return (round(running_s, 3), None) if running_s > 0 else None
