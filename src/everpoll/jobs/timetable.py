"""When a schedule is due: the slots of a cron expression in a time zone, or of a fixed interval.

Pure. Promises: a slot is one instant, the same in every process. A local time that a clock change skips is due right
after the gap; one that a clock change repeats is due once, the first time. An expression whose hour begins with `*`
follows the local clock: a time that is skipped does not come, and one that is repeated comes twice, so `30 * * * *` is
due in both of two equal hours. Slots of an interval are the multiples of it since the epoch.
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
"""With `missed="skip"`, a slot that is found later than this is missed."""
MINUTE = timedelta(minutes=1)
BATCH = 100
"""With `missed="all"`, how many slots one run catches up on; the next run follows at once."""


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
        """Return the first slot behind the instant."""
        return next(self.slots(instant))

    def slots(self, after: float) -> Iterator[float]:
        """Yield all slots behind the instant, in order; without end."""
        if self.every_s is not None:
            place = math.floor(after / self.every_s) + 1
            while True:
                if place * self.every_s > after:
                    yield place * self.every_s
                place += 1
        last = after
        for slot in self._cron(after):
            # Several local times that a clock change skips are due at one instant.
            if slot > last:
                yield (last := slot)

    def latest(self, after: float, until: float) -> float | None:
        """Return the last slot in (after, until]; None: there is none."""
        if self.every_s is not None:
            found = math.floor(until / self.every_s) * self.every_s
            return found if after < found <= until else None
        latest = None
        # Walking back with cronsim meets other slots around clock changes than walking forward does: what counts is
        # the way forward, from a little before.
        start = max(after, until - 86_400.0)
        for begin in (start, after):
            for slot in self.slots(begin):
                if slot > until:
                    break
                latest = slot
            if latest is not None or begin == after:
                break
        return latest

    def _cron(self, after: float) -> Iterator[float]:
        """Yield the slots from a little before the instant, in order.

        cronsim walks local times, without their zone. In a zone whose clock changes by half an hour it misses slots:
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
    """Return a local time, without its zone, behind which all slots lie that come later than the instant."""
    local = datetime.fromtimestamp(after, zone)
    first, second = (local.replace(fold=fold).utcoffset() or timedelta() for fold in (0, 1))
    # In an hour that will be repeated, local times of before come again.
    return (local - (first - second)).replace(tzinfo=None)


def _instants(local: datetime, zone: tzinfo) -> tuple[float, ...]:
    """Return when it is this local time: once; twice, if a clock change repeats it; never, if one skips it."""
    first, second = (local.replace(tzinfo=zone, fold=fold).timestamp() for fold in (0, 1))
    if first == second:
        return (first,)
    return (first, second) if first < second else ()


class Due(Struct, frozen=True):
    """What a schedule does now."""

    slots: tuple[float, ...]
    """To be enqueued."""
    last: float
    """Slots up to here are dealt with."""
    next_at: float
    """When to look again; may lie in the past."""


def due(timetable: Timetable, missed: Missed, last: float, now: float) -> Due:
    """Decide which of the slots in (last, now] run."""
    if missed == "all":
        found = tuple(islice((slot for slot in _until(timetable, last, now)), BATCH))
        last = found[-1] if found else last
        return Due(found, last, timetable.after(last))
    latest = timetable.latest(last, now)
    if latest is None:
        return Due((), last, timetable.after(max(last, now)))
    runs = missed == "once" or now - latest <= LATE_S
    return Due((latest,) if runs else (), latest, timetable.after(latest))


def _until(timetable: Timetable, last: float, now: float) -> Iterator[float]:
    for slot in timetable.slots(last):
        if slot > now:
            return
        yield slot


def timetable_of(where: str, cron: object, every: Duration | None, tz: str) -> Timetable:
    """Return the checked timetable; raise `BadInput` for one that has no slots."""
    if (cron is None) == (every is None):
        raise BadInput(f'{where}: write either a cron expression, as "*/5 * * * *", or every="5m"')
    if every is not None:
        every_s = seconds(every, name=f"{where}: every", positive=True)
        if every_s < SHORTEST_S:
            raise BadInput(f"{where}: every={shown(every)}: must be at least {human(SHORTEST_S)}; use a loop for less")
        if tz != "UTC":
            raise BadInput(f"{where}: tz={shown(tz)} has no meaning with every=, whose slots count from the epoch")
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
