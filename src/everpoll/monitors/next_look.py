"""Decides when the next look is due, and how breaker and backoff change.

    an answer came        breaker closed, no backoff; the next time of the grid
    no answer came        max(interval, backoff) later; the Nth in a row opens the breaker
    … while open          after the cooldown, counted from the end of the failed look, one probe
    not conclusive        one interval later, or at the end of the current wait; neither success nor failure

Promises: the next look is later than `now`, and not earlier than a Retry-After allows. An interval counts from due
time to due time, so it does not drift. A backoff counts from the end of the failed look. While the breaker is open, no
look is due; after the cooldown, exactly one is.
"""

from msgspec.structs import replace

from everpoll.monitors.control import Control, Waits, breaker_state
from everpoll.monitors.definition import Definition
from everpoll.monitors.look import Look, retry_floor
from everpoll.monitors.look_grid import grid_time_after, next_grid_time, next_interval
from everpoll.policy import spread

EARLY_S = 0.1
"""A look may begin this much before it is due: the clocks of a worker and of the store differ a little."""
SHORTEST_REST_S = 0.05
"""The shortest time between a decision and the next look, if the decision came late and all waits are over."""


def after_answer(definition: Definition, control: Control, look: Look, now: float) -> Control:
    """Plan the next look after one that got an answer: breaker and backoff start over."""
    origin = _origin(definition, control, look)
    due_at = next_grid_time(origin, now, definition.phase_s, definition.every_s)
    not_before = retry_floor(look)
    waits: Waits = "interval"
    if not_before is not None and not_before > due_at:
        # Retry-After is a floor: an earlier look may get the client banned.
        due_at, waits = max(not_before, now + SHORTEST_REST_S), "retry_after"
    return replace(
        control,
        failures=0,
        failed_at=None,
        opened_at=None,
        not_before=not_before,
        origin_at=origin,
        every_s=definition.every_s,
        due_at=due_at,
        waits=waits,
    )


def after_failure(definition: Definition, control: Control, look: Look, now: float, chance: float) -> Control:
    """Plan the next look after one that got no answer; `chance` in [0, 1) is the random number for jitter."""
    origin, ended_at = _origin(definition, control, look), min(look.ended_at, now)
    failures, opened_at = control.failures + 1, None
    if definition.breaker is not None:
        # While the breaker is open, every look is a probe.
        probe_at = None if control.opened_at is None else look.started_at
        opened_at = definition.breaker.failed(breaker_state(control, probe_at), ended_at).opened_at
    counted = replace(
        control,
        failures=failures,
        failed_at=ended_at,
        opened_at=opened_at,
        origin_at=origin,
        every_s=definition.every_s,
    )
    return _planned(definition, counted, now, chance)


def after_inconclusive(definition: Definition, control: Control, look: Look, now: float) -> Control:
    """Plan the next look after an inconclusive one, which is neither a success nor a failure.

    After a probe that was not conclusive, there is no further cooldown. A forced look does not shorten a running wait.
    """
    origin = _origin(definition, control, look)
    if control.failures:
        due_at = next_interval(origin, now, definition.every_s)
    else:
        due_at = next_grid_time(origin, now, definition.phase_s, definition.every_s)
    running_until = look_due_at(definition, control, now)
    passed = replace(control, origin_at=origin, every_s=definition.every_s)
    if running_until > due_at:
        return replace(passed, due_at=running_until)
    return _not_too_early(replace(passed, due_at=due_at, waits="interval"), now)


def look_due_at(definition: Definition, control: Control, now: float) -> float:
    """Return when the next look is due by this definition, which may be newer than the last decision.

    With another target, the look is due at once. Another interval changes the due time at once; breaker, backoff and
    Retry-After still hold.
    """
    if control.fetch != definition.fetch:
        return now
    if control.every_s == definition.every_s or control.origin_at is None:
        return control.due_at
    if control.failures:
        return _planned(definition, control, control.origin_at).due_at
    due_at = grid_time_after(control.origin_at, definition.phase_s, definition.every_s)
    return due_at if control.not_before is None else max(due_at, control.not_before)


def started_over(definition: Definition, control: Control, now: float) -> Control:
    """Return the memory after a change of target: due at once, breaker and backoff start over."""
    if control.fetch == definition.fetch:
        return control
    streak = control.streak
    return replace(
        control,
        fetch=definition.fetch,
        every_s=definition.every_s,
        due_at=now,
        waits="changed",
        origin_at=now if definition.is_heartbeat else None,
        failures=0,
        failed_at=None,
        opened_at=None,
        not_before=None,
        body=None,
        # Looks at the old target prove nothing about the new one. An open incident stays until good looks close it.
        streak=replace(streak, bad=0, good=0, window=0, since=None) if streak.incident is None else streak,
    )


def _origin(definition: Definition, control: Control, look: Look) -> float:
    """Return the instant from which the interval counts: the due time, even if the look was late; else its start."""
    if look.is_forced:
        return look.started_at
    due_at = look_due_at(definition, control, look.started_at)
    return due_at if due_at <= look.started_at + EARLY_S else look.started_at


def _planned(definition: Definition, control: Control, now: float, chance: float = 0.5) -> Control:
    """Set the due time of a service that did not answer, by the number of failures."""
    assert control.origin_at is not None, "a service that failed was looked at"
    if control.opened_at is not None and definition.breaker is not None:
        due_at = control.opened_at + definition.breaker.cooldown_s
        return _not_too_early(replace(control, due_at=due_at, waits="breaker"), now)
    interval_at, backoff_at = next_interval(control.origin_at, now, definition.every_s), 0.0
    if definition.backoff is not None and control.failed_at is not None:
        wait_s = spread(definition.backoff.wait_s(control.failures), definition.backoff.jitter, chance)
        backoff_at = control.failed_at + wait_s
    waits: Waits = "backoff" if backoff_at > interval_at else "interval"
    return _not_too_early(replace(control, due_at=max(interval_at, backoff_at), waits=waits), now)


def _not_too_early(control: Control, now: float) -> Control:
    """Move the due time to the Retry-After of an earlier answer, or into the future, if it is earlier."""
    if control.not_before is not None and control.not_before > control.due_at:
        control = replace(control, due_at=control.not_before, waits="retry_after")
    return control if control.due_at > now else replace(control, due_at=now + SHORTEST_REST_S)
