"""The times of a cron expression as the documentation has them, found by walking every minute of UTC.

Promises: shares nothing with the code under test, neither its reading of expressions nor its way through the days. What
it knows of time zones is the local time of each minute, as `zoneinfo` says it.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import NamedTuple
from zoneinfo import ZoneInfo

WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
RANGES = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
MINUTE = timedelta(minutes=1)


class Minute(NamedTuple):
    """One minute of UTC in a time zone."""

    at: int
    local: datetime
    """Without its zone."""
    is_repeat: bool
    """A clock change repeats this local time, and here it comes the second time."""
    skipped: list[datetime]
    """The local times that a clock change skips right before it."""


def minutes(zone: str, start: float, end: float) -> Iterator[Minute]:
    """Every minute in (start, end]; `start` must be a whole minute."""
    tz = ZoneInfo(zone)
    before = datetime.fromtimestamp(start, tz).replace(tzinfo=None, fold=0)
    for at in range(int(start) + 60, int(end) + 1, 60):
        found = datetime.fromtimestamp(at, tz)
        local = found.replace(tzinfo=None, fold=0)
        skipped = []
        while (before := before + MINUTE) < local:
            skipped.append(before)
        before = local
        yield Minute(at, local, found.fold == 1, skipped)


class Expression:
    """Which local times fit."""

    def __init__(self, cron: str) -> None:
        fields = cron.upper().split()
        self.minutes, self._hours, self._days, self._months, weekdays = (
            _numbers(field, *bounds) for field, bounds in zip(fields, RANGES, strict=True)
        )
        self._weekdays = {number % 7 for number in weekdays}
        self._follows_clock = fields[1].startswith("*")
        # As cron has it: with a day and a weekday that are both chosen, one of them is enough.
        self._either = not fields[2].startswith("*") and not fields[4].startswith("*")

    def comes_at(self, minute: Minute) -> bool:
        """Whether this minute has a time."""
        if self._follows_clock:
            return self._fits(minute.local)
        return (self._fits(minute.local) and not minute.is_repeat) or any(map(self._fits, minute.skipped))

    def _fits(self, local: datetime) -> bool:
        if local.minute not in self.minutes or local.hour not in self._hours or local.month not in self._months:
            return False
        day, weekday = local.day in self._days, local.isoweekday() % 7 in self._weekdays
        return day or weekday if self._either else day and weekday


def _numbers(field: str, low: int, high: int) -> set[int]:
    found: set[int] = set()
    for term in field.split(","):
        span, _, step = term.partition("/")
        first, _, last = ("", "", "") if span == "*" else span.partition("-")
        begin = _number(first) if first else low
        end = _number(last) if last else begin if first and not step else high
        found.update(range(begin, end + 1, int(step or 1)))
    return found


def _number(text: str) -> int:
    return WEEKDAYS.index(text) if text in WEEKDAYS else int(text)


def walked(crons: Iterable[str], zone: str, start: float, end: float) -> dict[str, list[float]]:
    """The times in (start, end] of each of these expressions, in order."""
    return _walked(tuple(crons), zone, start, end)


@cache
def _walked(crons: tuple[str, ...], zone: str, start: float, end: float) -> dict[str, list[float]]:
    expressions = {cron: Expression(cron) for cron in crons}
    found: dict[str, list[float]] = {cron: [] for cron in expressions}
    by_minute: dict[int, list[str]] = defaultdict(list)
    for cron, expression in expressions.items():
        for number in expression.minutes:
            by_minute[number].append(cron)
    for minute in minutes(zone, start, end):
        for cron in expressions if minute.skipped else by_minute[minute.local.minute]:
            if expressions[cron].comes_at(minute):
                found[cron].append(float(minute.at))
    return found


def utc(year: int, month: int, day: int) -> float:
    """Midnight."""
    return datetime(year, month, day, tzinfo=UTC).timestamp()
