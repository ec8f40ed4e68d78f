"""When the next look is, and why. Pure.

the earliest hint of a pending fact, else the wait of the cadence
… not before the look's own `Wait(after)` or the remote's Retry-After (jitter only upward from it)
… not after the deadline: the last look comes at the end of the budget
"""

from dataclasses import dataclass

from everpoll.policy import Budget, human, spread_up

JITTER_UP = 0.1
CLOCK_SLACK_S = 0.001
"""Slack for the difference of two clocks: a call that uses all of its budget must not end just before the budget."""
LAST_LOOK_S = 5.0
"""A look planned for the deadline may run up to this late; later than that, the run times out."""


@dataclass(frozen=True, slots=True)
class NextLook:
    """When the next step of a run is, which rule decided it, and why."""

    delay_s: float
    rule: str
    why: str


@dataclass(frozen=True, slots=True)
class LookTimes:
    """The waits and instants from which the time of the next look is chosen."""

    cadence_s: float
    hints: dict[str, float]
    """Instants at which a fact can change, by the reason to look then."""
    after_s: float | None = None
    floor_s: float | None = None
    chance: float = 0.0
    cadence_why: str | None = None
    """The reason for `cadence_s`, if the cadence names one."""


def next_look(times: LookTimes, budget: Budget, now: float, elapsed_s: float) -> NextLook:
    """Choose the time of the next look."""
    ahead = {why: at for why, at in times.hints.items() if at > now}
    if ahead:
        why, at = min(ahead.items(), key=lambda one: one[1])
        chosen = NextLook(at - now, "hint", why)
    else:
        why = times.cadence_why or f"the cadence waits {human(times.cadence_s)}"
        chosen = NextLook(times.cadence_s, "cadence", why)
    for floor_s, rule, asker in ((times.after_s, "after", "the look"), (times.floor_s, "retry-after", "the remote")):
        if floor_s is not None and chosen.delay_s < floor_s:
            delay_s = spread_up(floor_s, JITTER_UP, times.chance)
            chosen = NextLook(delay_s, rule, f"{asker} asked for {human(floor_s)} at least")
    left_s = budget.remaining_s(elapsed_s)
    if chosen.delay_s > left_s:
        return NextLook(left_s, "deadline", f"the last look, at the end of the budget of {human(budget.time_s)}")
    return chosen


def spent(budget: Budget, elapsed_s: float, looks: int) -> str | None:
    """Return why the budget allows no further look, or None. A look planned for the deadline is still allowed."""
    if budget.looks is not None and looks >= budget.looks:
        return budget.spent(min(elapsed_s, budget.time_s / 2), looks)
    return budget.spent(elapsed_s, 0) if elapsed_s >= budget.time_s + LAST_LOOK_S else None


def call_limit_s(timeout_s: float, left_s: float, whole_s: float) -> float:
    """Return the time limit of a call: the timeout, or what is left of the budget if that is less.

    The last look comes at the end of the budget and still gets a tenth of the budget, at least 1 and at most
    LAST_LOOK_S seconds.
    """
    last_s = min(LAST_LOOK_S, max(1.0, whole_s / 10))
    return min(timeout_s, max(left_s + CLOCK_SLACK_S, last_s))


def is_last(budget: Budget, elapsed_s: float) -> bool:
    """Return True if the time budget is used up, so that a look now is the last one."""
    return elapsed_s >= budget.time_s
