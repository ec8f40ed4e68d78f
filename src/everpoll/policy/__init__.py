"""Policies: when to look again, when to stop asking, what to believe.

Promises: every answer follows from the arguments alone; a state goes in and a new one comes out. Never reads a clock,
draws a number, logs or waits; the rooms above do that.
"""

from everpoll.policy.adaptive import Adaptive
from everpoll.policy.backoff import Backoff, growth
from everpoll.policy.breaker import Breaker, BreakerPhase, BreakerState
from everpoll.policy.budget import Budget
from everpoll.policy.clock import Clock
from everpoll.policy.durations import LONGEST_S, Duration, human, seconds
from everpoll.policy.evidence import Confirm, Confirmation, Gate
from everpoll.policy.figures import number, shown, whole_number
from everpoll.policy.jitter import Rng, spread, spread_up
from everpoll.policy.liveness import Sighting, Standstill, Verdict, Vigil, judge
from everpoll.policy.pause import NOT_PAUSED, STAGGER_S, PauseReason, PauseReasons, paused, resume_order, resumed
from everpoll.policy.rate import Rate, Tokens
from everpoll.policy.replies import Cancel, Snooze

__all__ = [
    "LONGEST_S",
    "NOT_PAUSED",
    "STAGGER_S",
    "Adaptive",
    "Backoff",
    "Breaker",
    "BreakerPhase",
    "BreakerState",
    "Budget",
    "Cancel",
    "Clock",
    "Confirm",
    "Confirmation",
    "Duration",
    "Gate",
    "PauseReason",
    "PauseReasons",
    "Rate",
    "Rng",
    "Sighting",
    "Snooze",
    "Standstill",
    "Tokens",
    "Verdict",
    "Vigil",
    "growth",
    "human",
    "judge",
    "number",
    "paused",
    "resume_order",
    "resumed",
    "seconds",
    "shown",
    "spread",
    "spread_up",
    "whole_number",
]
