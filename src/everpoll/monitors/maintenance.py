"""Maintenance: windows in which incidents do not alert, once or every week.

Promises: if an incident opens inside a window, it alerts when the window is over and it is still open. A weekly window
is in the time of its zone; on the two nights a year when clocks change, it is up to an hour longer, never shorter.
Windows that touch or overlap count as one. This module never reads a clock.
"""

from collections.abc import Iterable, Sequence
from datetime import date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from msgspec import Struct

from everpoll.errors import BadInput
from everpoll.policy import Duration, human, seconds, shown

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
LONGEST_WEEKLY_S = 7 * 86_400.0
MAX_SERVICES = 1_000
MAX_REASON_CHARS = 500
# How many windows in a row are followed; an incident inside a longer chain asks again at the end of these.
_LONGEST_CHAIN = 50


class Window(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One window, made by `once` or `weekly`."""

    services: tuple[str, ...] = ()
    """The services of the window; empty: all services."""
    reason: str = ""
    starts_at: float | None = None
    ends_at: float | None = None
    days: tuple[int, ...] = ()
    """The days of a weekly window; 0 is Monday."""
    minute: int = 0
    """The start of a weekly window, in minutes since midnight."""
    lasts_s: float = 0.0
    zone: str = "UTC"

    def covers(self, service: str) -> bool:
        """Return True if the window holds for this service."""
        return not self.services or service in self.services

    def active_until(self, now: float) -> float | None:
        """Return when the window ends if it is open now, else None."""
        if self.starts_at is not None and self.ends_at is not None:
            return self.ends_at if self.starts_at <= now < self.ends_at else None
        open_ones = [ends for starts, ends in self._around(now) if starts <= now < ends]
        return max(open_ones, default=None)

    def _around(self, now: float) -> Iterable[tuple[float, float]]:
        """Return the windows that may be open now: those that began within their length and a day."""
        zone = ZoneInfo(self.zone)
        today = datetime.fromtimestamp(now, zone).date()
        for back in range(-1, int(self.lasts_s // 86_400) + 3):
            day = today - timedelta(days=back)
            if day.weekday() in self.days:
                yield self._on(day, zone)

    def _on(self, day: date, zone: ZoneInfo) -> tuple[float, float]:
        local = datetime(day.year, day.month, day.day, self.minute // 60, self.minute % 60, tzinfo=zone)
        # When clocks change, one local time may be two instants, or none: the window covers both.
        first, second = local.timestamp(), local.replace(fold=1).timestamp()
        return min(first, second), max(first, second) + self.lasts_s


def once(start: Any, end: Any, services: Iterable[str] = (), reason: str = "") -> Window:
    """Return a window from one instant to another; both must be datetimes with a time zone."""
    for name, instant in (("start", start), ("end", end)):
        if not isinstance(instant, datetime) or instant.tzinfo is None:
            raise BadInput(f"maintenance: {name}={shown(instant)}: must be a datetime with a time zone")
    if end <= start:
        raise BadInput(f"maintenance: end={end.isoformat()} must be later than start={start.isoformat()}")
    return Window(
        services=_services(services), reason=_reason(reason), starts_at=start.timestamp(), ends_at=end.timestamp()
    )


def weekly(
    days: str | Sequence[str],
    at: str,
    lasting: Duration,
    zone: str = "UTC",
    services: Iterable[str] = (),
    reason: str = "",
) -> Window:
    """Return a window of every week: `weekly("sun", "02:00", "2h", "Europe/Berlin")`."""
    lasts_s = seconds(lasting, name="maintenance: lasting", positive=True)
    if lasts_s > LONGEST_WEEKLY_S:
        raise BadInput(f"maintenance: lasting={shown(lasting)}: must be at most {human(LONGEST_WEEKLY_S)}")
    return Window(
        services=_services(services),
        reason=_reason(reason),
        days=_days(days),
        minute=_minute(at),
        lasts_s=lasts_s,
        zone=_zone(zone),
    )


def maintained_until(windows: Iterable[Window], service: str, now: float) -> float | None:
    """Return when the maintenance of a service ends; None: there is none now."""
    concerned = [window for window in windows if window.covers(service)]
    until = now
    for _ in range(_LONGEST_CHAIN):
        ends = [end for window in concerned if (end := window.active_until(until)) is not None]
        if not ends:
            break
        until = max(ends)
    return until if until > now else None


def _days(value: Any) -> tuple[int, ...]:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, Sequence) or not names or any(name not in DAYS for name in names):
        raise BadInput(f"maintenance: days={shown(value)}: write some of {', '.join(DAYS)}")
    return tuple(sorted({DAYS.index(name) for name in names}))


def _minute(value: Any) -> int:
    parts = value.split(":") if isinstance(value, str) else ()
    if len(parts) != 2 or not all(len(part) == 2 and part.isascii() and part.isdigit() for part in parts):
        raise BadInput(f'maintenance: at={shown(value)}: must be a time of day; write "02:00"')
    hour, minute = int(parts[0]), int(parts[1])
    if hour > 23 or minute > 59:
        raise BadInput(f'maintenance: at={shown(value)}: must be from "00:00" to "23:59"')
    return hour * 60 + minute


def _zone(value: Any) -> str:
    try:
        return ZoneInfo(value).key
    except (ZoneInfoNotFoundError, ValueError, TypeError, OSError):
        raise BadInput(f'maintenance: zone={shown(value)}: is not a known time zone; write "Europe/Berlin"') from None


def _services(value: Any) -> tuple[str, ...]:
    names = None if isinstance(value, str) or not isinstance(value, Iterable) else tuple(value)
    if names is None or len(names) > MAX_SERVICES or not all(isinstance(name, str) and name for name in names):
        raise BadInput(f'maintenance: services={shown(value)}: write at most {MAX_SERVICES:,} names, as ["billing"]')
    return tuple(dict.fromkeys(names))


def _reason(value: Any) -> str:
    if not isinstance(value, str) or len(value) > MAX_REASON_CHARS:
        raise BadInput(f"maintenance: reason={shown(value)}: must be text of at most {MAX_REASON_CHARS} characters")
    return value
