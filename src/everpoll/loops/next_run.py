"""Next run: decides when a loop runs again after a run or a skip.

Pure, like the reducer. Promises: a Retry-After is a floor; while the breaker is open, its cooldown decides instead of
the backoff; the ticks of a fixed rate stay on their grid, even if jitter or a backoff moves a single run.
"""

import math

from msgspec.structs import replace

from everpoll.loops.options import LoopPolicy
from everpoll.loops.state import LoopState
from everpoll.policy import LONGEST_S, spread, spread_up


def floor_s(state: LoopState, now: float) -> float:
    """Return how long a Retry-After still holds.

    A skip or a cancel does not end it; a new result of the function does.
    """
    return 0.0 if state.not_before is None else max(0.0, state.not_before - now)


def retried(policy: LoopPolicy, state: LoopState, now: float, chance: float, at_least_s: float) -> LoopState:
    """Set the deadline after a failure that is counted already."""
    if policy.breaker is None or state.breaker.opened_at is None:
        return scheduled(policy, state, now, chance, at_least_s)
    # While the breaker is open, its cooldown decides, not the backoff.
    cooldown_s = max(policy.breaker.retry_at(state.breaker, now) - now, at_least_s, 0.0)
    if policy.fixed_rate:
        return _next_tick(policy, state, now, chance, 0.0, cooldown_s)
    return replace(state, in_flight=0, due_from=now, delay_s=spread_up(cooldown_s, policy.jitter, chance))


def scheduled(policy: LoopPolicy, state: LoopState, now: float, chance: float, at_least_s: float = 0.0) -> LoopState:
    """Set the deadline after a run or a skip that ended now."""
    calm_s = policy.safety_every_s if state.push_alive and policy.safety_every_s else state.base_s
    interval_s = min((state.base_s if state.failures else calm_s) * state.multiplier, LONGEST_S)
    if policy.fixed_rate:
        return _next_tick(policy, state, now, chance, interval_s, at_least_s)
    delay_s = spread(interval_s, policy.jitter, chance)
    if delay_s < at_least_s:
        # Retry-After is a floor: an earlier call may get the client banned.
        delay_s = spread_up(at_least_s, policy.jitter, chance)
    return replace(state, in_flight=0, due_from=now, delay_s=delay_s)


def _next_tick(
    policy: LoopPolicy, state: LoopState, now: float, chance: float, interval_s: float, at_least_s: float
) -> LoopState:
    """Set the next tick of the grid; jitter moves the run, never the grid.

    A backoff counts from the end of the run: the next tick is the first one after the backoff.
    """
    assert state.tick_at is not None, "a live loop has a tick"
    # Jitter may start a run before its tick, so this tick may lie ahead. It is used up in any case.
    next_at, missed = state.tick_at + state.base_s, 0
    earliest = now + max(at_least_s, interval_s if state.failures else 0.0)
    if not state.failures:
        next_at = state.tick_at + interval_s
    if next_at < earliest or next_at <= now:
        # 1e-9 absorbs rounding: 0.1 + 0.2 is a little more than 0.3, and must not skip a tick.
        late = math.ceil((earliest - next_at) / state.base_s - 1e-9)
        missed = max(late, math.floor((now - next_at) / state.base_s) + 1)
        next_at += missed * state.base_s
    displaced_s = spread(state.base_s, policy.jitter, chance) - state.base_s
    return replace(
        state,
        in_flight=0,
        tick_at=next_at,
        missed_ticks=state.missed_ticks + (0 if state.failures else missed),
        due_from=now,
        delay_s=max(at_least_s, next_at + displaced_s - now, 0.0),
    )


def on_grid(policy: LoopPolicy, state: LoopState, instant: float) -> LoopState:
    """Move the tick of a fixed rate to the last one before an instant: ticks up to it do not count as missed."""
    if not policy.fixed_rate or state.tick_at is None or state.tick_at > instant:
        return state
    return replace(state, tick_at=_tick_before(state.tick_at, state.base_s, instant))


def off_grid(policy: LoopPolicy, state: LoopState, instant: float) -> LoopState:
    """Move the tick to the last one before a run that is not part of the grid: no tick is used up or missed."""
    if not policy.fixed_rate or state.tick_at is None:
        return state
    return replace(state, tick_at=_tick_before(state.tick_at, state.base_s, instant))


def _tick_before(tick_at: float, base_s: float, instant: float) -> float:
    """Return the last tick of the grid at or before an instant."""
    return tick_at + math.floor((instant - tick_at) / base_s) * base_s
