"""When a schedule is due: the times of a cron expression in a time zone, or of a fixed interval.

Pure. Promises: a scheduled time is one instant, the same in every process. A local time that a clock change skips is
due right after the gap. A local time that a clock change repeats is due once, the first time. An expression whose hour
begins with `*` follows the local clock: a skipped time does not come, and a repeated time comes twice, so `30 * * * *`
is due in both of two equal hours. The times of an interval are its multiples since the epoch.
"""

import math
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import islice
from typing import Literal
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError
from msgspec import Struct

from everpoll.errors import BadInput
from everpoll.policy import Duration, human, seconds, shown

Missed = Literal["skip", "once", "all"]
POLICIES: tuple[Missed, ...] = ("skip", "once", "all")
SHORTEST_S = 1.0
LATE_S = 60.0
"""With `missed="skip"`, a scheduled time that is found later than this is missed."""
MINUTE = timedelta(minutes=1)
BATCH = 100
"""With `missed="all"`, how many scheduled times one run catches up on; the next run follows at once."""


class Timetable(Struct, frozen=True, omit_defaults=True):
    """Either `cron` in the time zone `tz`, or `every_s`."""

    cron: str | None = None
    tz: str = "UTC"
    every_s: float | None = None

    def __str__(self) -> str:
        if self.cron is None:
            return f"every {human(self.every_s or 0.0)}"
        return self.cron if self.tz == "UTC" else f"{self.cron} {self.tz}"

    def after(self, instant: float) -> float:
        """Return the first scheduled time after the instant."""
        return next(self.times(instant))

    def times(self, after: float) -> Iterator[float]:
        """Yield all scheduled times after the instant, in order; without end."""
        if self.every_s is not None:
            place = math.floor(after / self.every_s) + 1
            while True:
                if place * self.every_s > after:
                    yield place * self.every_s
                place += 1
        last = after
        for instant in self._cron(after):
            # Several local times that a clock change skips are due at one instant.
            if instant > last:
                yield (last := instant)

    def latest(self, after: float, until: float) -> float | None:
        """Return the last scheduled time in (after, until]; None: there is none."""
        if self.every_s is not None:
            found = math.floor(until / self.every_s) * self.every_s
            return found if after < found <= until else None
        latest = None
        # Around clock changes cronsim finds other times backward than forward. The forward ones count, so the search
        # begins a little before.
        start = max(after, until - 86_400.0)
        for begin in (start, after):
            for instant in self.times(begin):
                if instant > until:
                    break
                latest = instant
            if latest is not None or begin == after:
                break
        return latest

    def _cron(self, after: float) -> Iterator[float]:
        """Yield the scheduled times from a little before the instant, in order.

        cronsim walks local times, without their zone. In a zone whose clock changes by half an hour it misses times:
        it takes an hour later on the clock for the next full hour.
        """
        assert self.cron is not None
        zone, follows_clock = _zone(self.tz), self.cron.split()[1].startswith("*")
        repeated: list[float] = []
        for local in CronSim(self.cron, _local_time_before(after, zone)):
            found = _instants(local, zone)
            while not (found or follows_clock):
                local += MINUTE  # noqa: PLW2901 - right after the gap
                found = _instants(local, zone)
            if not found:
                continue
            if repeated and repeated[0] < found[0]:
                yield from repeated
                repeated.clear()
            yield found[0]
            if follows_clock:
                repeated += found[1:]
        yield from repeated


def _local_time_before(after: float, zone: tzinfo) -> datetime:
    """Return a local time, without its zone, that is before every scheduled time after the instant."""
    local = datetime.fromtimestamp(after, zone)
    first, second = (local.replace(fold=fold).utcoffset() or timedelta() for fold in (0, 1))
    # In an hour that a clock change will repeat, earlier local times come again.
    return (local - (first - second)).replace(tzinfo=None)


def _instants(local: datetime, zone: tzinfo) -> tuple[float, ...]:
    """Return the instants of a local time: one; two if a clock change repeats it; none if one skips it."""
    first, second = (local.replace(tzinfo=zone, fold=fold).timestamp() for fold in (0, 1))
    if first == second:
        return (first,)
    return (first, second) if first < second else ()


class Due(Struct, frozen=True):
    """The decision of a schedule at one instant."""

    times: tuple[float, ...]
    """The scheduled times to enqueue."""
    last: float
    """Scheduled times up to this instant are done."""
    next_at: float
    """The next scheduled time; may be in the past."""


def due(timetable: Timetable, missed: Missed, last: float, now: float) -> Due:
    """Decide which of the scheduled times in (last, now] run."""
    if missed == "all":
        found = tuple(islice((instant for instant in _until(timetable, last, now)), BATCH))
        last = found[-1] if found else last
        return Due(found, last, timetable.after(last))
    latest = timetable.latest(last, now)
    if latest is None:
        return Due((), last, timetable.after(max(last, now)))
    runs = missed == "once" or now - latest <= LATE_S
    return Due((latest,) if runs else (), latest, timetable.after(latest))


def _until(timetable: Timetable, last: float, now: float) -> Iterator[float]:
    for instant in timetable.times(last):
        if instant > now:
            return
        yield instant


def timetable_of(where: str, cron: object, every: Duration | None, tz: str) -> Timetable:
    """Return the checked timetable; raise `BadInput` for one that never comes."""
    if (cron is None) == (every is None):
        raise BadInput(f'{where}: write either a cron expression, as "*/5 * * * *", or every="5m"')
    if every is not None:
        every_s = seconds(every, name=f"{where}: every", positive=True)
        if every_s < SHORTEST_S:
            raise BadInput(f"{where}: every={shown(every)}: must be at least {human(SHORTEST_S)}; use a loop for less")
        if tz != "UTC":
            raise BadInput(f"{where}: tz={shown(tz)} has no meaning with every=, which counts from the epoch")
        return Timetable(every_s=every_s)
    if not isinstance(cron, str):
        raise BadInput(f'{where}: {shown(cron)} is not a cron expression: write a text such as "*/5 * * * *"')
    if len(cron.split()) != 5:
        raise BadInput(f"{where}: {cron!r} must have 5 fields: minute hour day month weekday")
    try:
        _zone(tz)
    except (ValueError, OSError, KeyError, TypeError):
        raise BadInput(
            f'{where}: tz={shown(tz)} is not a known time zone: write a name such as "Europe/Berlin"; where the system '
            "has no time zones, pip install tzdata"
        ) from None
    timetable = Timetable(cron=cron, tz=tz)
    try:
        timetable.after(0.0)
    except CronSimError as error:
        raise BadInput(f"{where}: {cron!r} is not a valid cron expression: {error}") from None
    except StopIteration:
        raise BadInput(f"{where}: {cron!r} never comes: no date fits it") from None
    return timetable


def _zone(name: str) -> tzinfo:
    return UTC if name == "UTC" else ZoneInfo(name)
