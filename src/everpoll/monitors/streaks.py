"""Streaks: counts good and failed looks in a row, and decides when an incident opens and closes.

    all is well ──failed──▶ failing ──after N in a row, X of Y, or for a time──▶ incident is open
         ▲                     │                                                     │
         └────── a good look ──┴────────────── `recover` good looks in a row ────────┘

Promises: at most one incident is open for one service or dependency. A look that is not conclusive neither opens nor
closes one. The id of an incident is made from the service and a counter in its memory: a decision that is repeated from
the same memory after a crash gives the same id.
"""

from msgspec.structs import replace

from everpoll.monitors.alerting import Alert
from everpoll.monitors.control import CALM, Streak
from everpoll.monitors.definition import hashed

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


def observed(streak: Streak, alert: Alert, failed: bool | None, at: float) -> Streak:
    """Return the streak after one more look; `failed` is None if the look was not conclusive."""
    if failed is None:
        return streak if streak.is_unknown else replace(streak, is_unknown=True)
    window = 0 if alert.within is None else ((streak.window << 1) | failed) & ((1 << alert.within) - 1)
    if failed:
        since = at if streak.since is None else streak.since
        return Streak(streak.bad + 1, 0, window, since, False, streak.incident)
    if streak.incident is None:
        return Streak(window=window, since=streak.since) if window else CALM
    return Streak(0, streak.good + 1, window, streak.since, False, streak.incident)


def observed_again(streak: Streak, alert: Alert, at: float) -> Streak:
    """Return the streak after a look that found no change."""
    return observed(streak, alert, None if streak.is_unknown else streak.bad > 0, at)


def opens(streak: Streak, alert: Alert, now: float) -> bool:
    """Return True if an incident must be opened now."""
    if streak.incident is not None or not streak.bad or streak.is_unknown:
        return False
    if alert.within is not None:
        return streak.window.bit_count() >= alert.after
    at = opens_at(streak, alert)
    return streak.bad >= alert.after and (at is None or now >= at)


def opens_at(streak: Streak, alert: Alert) -> float | None:
    """Return when an incident opens without a further look; None: it does not, or it is open."""
    if alert.lasting_s is None or streak.since is None or streak.bad < alert.after:
        return None
    return None if streak.incident is not None or streak.is_unknown else streak.since + alert.lasting_s


def closes(streak: Streak, alert: Alert) -> bool:
    """Return True if the open incident must be closed."""
    return streak.incident is not None and streak.good >= alert.recover


def incident_id(service: str, born: int, number: int, dependency: str | None = None) -> str:
    """Return the id of a service's incident with that number.

    With `born`, a service that is removed and registered again does not reuse the ids of the old one. The hash of the
    dependency keeps ids apart if a look is repeated after a crash and finds another dependency failed.
    """
    ending = "" if dependency is None else f":{hashed(dependency)[:8]}"
    return f"{service}:{_base36(born)}:{number}{ending}"


def _base36(number: int) -> str:
    digits = ""
    while number > 0:
        number, digit = divmod(number, 36)
        digits = _DIGITS[digit] + digits
    return digits or "0"
