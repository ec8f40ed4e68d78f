"""Look grid: the times at which a service is looked at while all is well.

An interval has a grid: phase, phase + interval, phase + 2 * interval, and so on since the epoch. The phase is a hash of
the request, so that services with the same URL are looked at together and share it, and all others are spread.

Promises: an interval of 5 s is 5 s on average, because a late look does not delay later ones. Missed times are skipped,
never caught up. The result is always later than `now`.
"""

import math

FIRST_LOOK_S = 5.0
"""A new service is looked at within this time; services that are registered together are spread over it."""
# Seconds since the epoch are floats with a resolution of 0.24 µs: an instant this close to a grid time counts as it.
_SLACK_S = 1e-6


def grid_time_after(instant: float, phase_s: float, every_s: float) -> float:
    """Return the first time of the grid after an instant."""
    return phase_s + (math.floor((instant + _SLACK_S - phase_s) / every_s) + 1) * every_s


def first_look_at(now: float, phase_s: float, every_s: float) -> float:
    """Return when a service that was registered now is first looked at: spread over 5 s, or over a shorter interval."""
    return grid_time_after(now, phase_s, min(FIRST_LOOK_S, every_s))


def next_grid_time(origin: float, now: float, phase_s: float, every_s: float) -> float:
    """Return the time of the grid that follows a look.

    `origin` is the due time of that look, even if it began late; for a look without one, its start. A look off the grid
    (the first one, a forced one, one after a backoff) replaces the nearest time of the grid, so that no further look
    follows within half an interval.
    """
    return grid_time_after(max(now, origin + every_s / 2), phase_s, every_s)


def next_interval(origin: float, now: float, every_s: float) -> float:
    """Return the first whole interval after `origin` that is later than `now`: off the grid, and free of drift."""
    missed = math.floor((now + _SLACK_S - origin) / every_s)
    return origin + (max(missed, 0) + 1) * every_s
