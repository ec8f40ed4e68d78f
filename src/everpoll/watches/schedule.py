"""When the next look is, and why: the one rule, pure.

the earliest hint of a pending fact, else what the look asked for, else the cadence
    … not before a server's Retry-After (jitter only upward from it)
    … not after the deadline: the last look comes at the end of the budget, not behind it
"""

from dataclasses import dataclass

from everpoll.policy import Budget, human, spread_up

JITTER_UP = 0.1
CLOCK_SLACK_S = 0.001
"""Two clocks are added up: a call that uses all of its budget must not end a hair before it."""
LAST_LOOK_S = 5.0
"""A look that was meant for the deadline may come this much late and still asks. Later than that, time is over."""


@dataclass(frozen=True, slots=True)
class NextLook:
    """When, which rule said so, and in words."""

    delay_s: float
    rule: str
    why: str


@dataclass(frozen=True, slots=True)
class Wishes:
    """What is known about the next look after this one."""

    cadence_s: float
    hints: dict[str, float]
    """By what they are for: instants."""
    after_s: float | None = None
    floor_s: float | None = None
    chance: float = 0.0


def next_look(wishes: Wishes, budget: Budget, now: float, elapsed_s: float) -> NextLook:
    """The one rule."""
    ahead = {why: at for why, at in wishes.hints.items() if at > now}
    if ahead:
        why, at = min(ahead.items(), key=lambda one: one[1])
        chosen = NextLook(at - now, "hint", why)
    else:
        chosen = NextLook(wishes.cadence_s, "cadence", f"the cadence says {human(wishes.cadence_s)}")
    for floor_s, rule, who in ((wishes.after_s, "after", "the look"), (wishes.floor_s, "retry-after", "the remote")):
        if floor_s is not None and chosen.delay_s < floor_s:
            delay_s = spread_up(floor_s, JITTER_UP, wishes.chance)
            chosen = NextLook(delay_s, rule, f"{who} asked for {human(floor_s)} at least")
    left_s = budget.remaining_s(elapsed_s)
    if chosen.delay_s > left_s:
        return NextLook(left_s, "deadline", f"the last look, at the end of the budget of {human(budget.time_s)}")
    return chosen


def spent(budget: Budget, elapsed_s: float, looks: int) -> str | None:
    """Why there may be no look at all any more. The one that was clamped to the deadline may still be made."""
    if budget.looks is not None and looks >= budget.looks:
        return budget.spent(min(elapsed_s, budget.time_s / 2), looks)
    return budget.spent(elapsed_s, 0) if elapsed_s >= budget.time_s + LAST_LOOK_S else None


def call_limit_s(timeout_s: float, left_s: float, whole_s: float) -> float:
    """How long a call may take: its timeout, but no longer than what is left of its budget.

    The last look comes at the very end of a budget, and has a little time as well: a tenth of the budget, at least 1
    and at most LAST_LOOK_S seconds.
    """
    last_s = min(LAST_LOOK_S, max(1.0, whole_s / 10))
    return min(timeout_s, max(left_s + CLOCK_SLACK_S, last_s))


def is_last(budget: Budget, elapsed_s: float) -> bool:
    """Whether a look at this moment is the last one."""
    return elapsed_s >= budget.time_s
