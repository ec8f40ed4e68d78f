"""Policies: pure decisions about waits, retries, budgets, breakers, rates and evidence.

Promises: every answer depends on the arguments alone; a function takes a state and returns a new one. Never reads a
clock, draws a random number, logs or waits; the packages that use this one do that.
"""

from everpoll.policy.adaptive import Adaptive
from everpoll.policy.backoff import Backoff, growth
from everpoll.policy.breaker import Breaker, BreakerPhase, BreakerState
from everpoll.policy.budget import Budget
from everpoll.policy.clock import Clock
from everpoll.policy.durations import LONGEST_S, Duration, human, seconds
from everpoll.policy.evidence import Confirm, Confirmation, Gate
from everpoll.policy.figures import number, shown, whole_number
from everpoll.policy.histogram import Histogram, bucket_of
from everpoll.policy.jitter import Rng, spread, spread_up
from everpoll.policy.liveness import Observations, OtherWorker, Standstill, Verdict, judge
from everpoll.policy.pause import NOT_PAUSED, STAGGER_S, PauseReason, PauseReasons, paused, resume_order, resumed
from everpoll.policy.rate import Rate, Tokens
from everpoll.policy.replies import Cancel, Snooze
from everpoll.policy.rollup import Availability, Rollup, Tally
from everpoll.policy.storable_texts import flaw_of, unstorable
from everpoll.policy.uptime import Ahead, Uptime, ahead_of, uptime_of

__all__ = [
    "LONGEST_S",
    "NOT_PAUSED",
    "STAGGER_S",
    "Adaptive",
    "Ahead",
    "Availability",
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
    "Histogram",
    "Observations",
    "OtherWorker",
    "PauseReason",
    "PauseReasons",
    "Rate",
    "Rng",
    "Rollup",
    "Snooze",
    "Standstill",
    "Tally",
    "Tokens",
    "Uptime",
    "Verdict",
    "ahead_of",
    "bucket_of",
    "flaw_of",
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
    "unstorable",
    "uptime_of",
    "whole_number",
]
