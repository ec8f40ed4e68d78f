"""Reading rollups of one service, and the availability of many. Each call runs in one snapshot.

A service's days are in one piece, its hours a seek each. Only where most services are asked for, hours are read in one
piece, and what waits to be rolled up as well.
"""

# ruff: noqa: S608 - only the column lists of this package are put into SQL

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from everpoll.drivers.sqlite.connection import Connection
from everpoll.policy import Availability, Rollup
from everpoll.policy.rollup import HealthWord
from everpoll.stores.contract import encode
from everpoll.stores.health_chunks import CODES, FIGURES, TIMES, availability_of, rollup_of, times_of
from everpoll.stores.health_overlaps import overlaps_last
from everpoll.stores.health_ranges import Found, RangeQuery, Since, for_summary, hour_on, since, summary_of
from everpoll.stores.sqlite.health_reading import NO_END_MS, open_looks
from everpoll.stores.sqlite.health_recording import horizon_of

_FIGURES = ", ".join(FIGURES)
DAYS = f"""select day, {_FIGURES}, histogram from everpoll_health_days
    where service = ? and day >= ? and day < ?"""
# One at a time, 2 us each. A list of them, with statistics of a small table, is a scan (or a Bloom filter, which takes
# one), also when the table has grown.
HOUR = f"select {_FIGURES}, histogram from everpoll_health_hours where hour = ? and service = ?"
MINUTES = "select minutes from everpoll_health_minutes where hour = ? and service = ?"

RECENT = "select recent from everpoll_health_services where id = ?"
NAMED = """select s.id, s.name, h.packed_ms, s.recent from json_each(?) j
    cross join everpoll_health_services s on s.name = j.value
    cross join everpoll_health_heads h on h.service = s.id"""
LAST_SERVICE = "select max(id) from everpoll_health_services"
_WORDS: tuple[HealthWord, ...] = ("up", "degraded", "down", "unknown")
_SUMS = ", ".join(f"sum({name})" for name in TIMES)
_CODES = [CODES[word] for word in _WORDS]
_SUMS_OF_CUT = ", ".join(f"sum(l.span_ms * (l.status = {code}))" for code in _CODES)
# A look takes from the one before it what reaches beyond its own instant.
_SUMS_OF_LOOKS = ", ".join(
    f"sum(l.span_ms * (l.status = {code}) - coalesce(max(0, p.at_ms + p.span_ms - l.at_ms) * (p.status = {code}), 0))"
    for code in _CODES
)
SINCE_DAY = f"select {_SUMS} from everpoll_health_days where service = ? and day >= ?"
# Cross joins: in this order, whatever statistics say.
AT_HOURS = f"""select h.service, {_SUMS} from json_each(:services) s cross join json_each(:hours) o
    cross join everpoll_health_hours h where h.hour = o.value and h.service = s.value group by h.service"""
OPEN_LOOKS = f"""with recursive chain (service, previous, at_ms, span_ms, status, latency_us, rolled) as (
        select h.service, one.previous, one.at_ms, one.span_ms, one.status, one.latency_us, h.rolled
        from json_each(:services) s cross join everpoll_health_heads h on h.service = s.value
        cross join everpoll_health_looks one on one.id = h.look and one.id > h.rolled
        union all select c.service, one.previous, one.at_ms, min(one.span_ms, c.at_ms - one.at_ms), one.status,
            one.latency_us, c.rolled
        from chain c cross join everpoll_health_looks one
        where one.id = c.previous and one.id > c.rolled and c.at_ms >= :from_ms)
    select l.service, min(l.at_ms), {_SUMS_OF_CUT}, count(l.latency_us), sum(l.latency_us)
    from chain l where l.at_ms >= :from_ms group by l.service"""
EVERY_HOUR = f"select service, {_SUMS} from everpoll_health_hours where hour >= ? and hour < ? group by service"
EVERY_LOOK = f"""select l.service, min(l.at_ms), {_SUMS_OF_LOOKS}, count(l.latency_us), sum(l.latency_us)
    from everpoll_health_looks l cross join everpoll_health_heads h
    left join everpoll_health_looks p on p.id = l.previous and p.id > h.rolled and p.at_ms >= :from_ms
    where h.service = l.service and l.id > h.rolled and l.at_ms >= :from_ms group by l.service"""

MANY_SHARE = 4
"""If more than one in so many services is asked for, that is most of them."""

Times = Sequence[int | None]
"""Figures of an availability."""


def found_for(con: Connection, service: int, wanted: RangeQuery) -> Found:
    """Return the rows that the tables have for this request."""
    days = con.execute(DAYS, (service, wanted.days.start, wanted.days.stop)) if wanted.days else ()
    return Found(
        days={day: rollup_of(figures, histogram) for day, *figures, histogram in days},
        hours=rollups_at(con, HOUR, wanted.hours, service),
        minutes={hour: row[0] for hour, row in rows_at(con, MINUTES, wanted.minutes, service)},
        looks=open_looks(con, service, 0, NO_END_MS),
        recent=con.execute(RECENT, (service,)).fetchone()[0],
        horizon=horizon_of(con),
    )


def rollups_at(con: Connection, sql: str, places: Iterable[int], service: int) -> dict[int, Rollup]:
    """Return the rollups of a service at those of the hours or days that have one."""
    return {place: rollup_of(row[:-1], row[-1]) for place, row in rows_at(con, sql, places, service)}


def rows_at(con: Connection, sql: str, places: Iterable[int], service: int) -> Iterator[tuple[int, tuple[Any, ...]]]:
    """Yield the row of a service at each of the hours or days that has one."""
    for place in places:
        row = con.execute(sql, (place, service)).fetchone()
        if row is not None:
            yield place, row


def availability(con: Connection, names: Sequence[str], from_at: float) -> dict[str, Availability]:
    """Return the availability since an hour, of each of many services."""
    services = {row[0]: _Named(*row) for row in con.execute(NAMED, (encode(list(names)),))}
    wanted = since(from_at, horizon_of(con))
    parts: defaultdict[int, list[Times]] = defaultdict(list)
    for service in services:
        sums = con.execute(SINCE_DAY, (service, wanted.first_day)).fetchone()
        if sums[0] is not None:
            parts[service].append(sums)
    (last_service,) = con.execute(LAST_SERVICE).fetchone()
    is_most = len(services) * MANY_SHARE > (last_service or 0)
    first_ms: dict[int, int] = {}
    for service, first, times in _of_most(con, wanted) if is_most else _of_some(con, wanted, list(services)):
        parts[service].append(times)
        if first is not None:
            first_ms[service] = first
    found = {one.name: availability_of(parts[service]) for service, one in services.items() if service in parts}
    for service, first in first_ms.items():
        one = services.get(service)
        if one is not None and overlaps_last(one.recent, one.packed_ms, first):
            found[one.name] = _counted_since(con, service, from_at)
    return found


class _Named(NamedTuple):
    service: int
    name: str
    packed_ms: int
    recent: bytes | None


def _of_most(con: Connection, wanted: Since) -> Iterator[tuple[int, int | None, Times]]:
    """Yield the hours before the first day, and what waits to be rolled up with its first instant, of all services."""
    for service, *times in con.execute(EVERY_HOUR, (wanted.hours.start, wanted.hours.stop)):
        yield service, None, times
    for service, first_ms, *times in con.execute(EVERY_LOOK, {"from_ms": wanted.from_ms}):
        yield service, first_ms, times


def _of_some(con: Connection, wanted: Since, services: list[int]) -> Iterator[tuple[int, int | None, Times]]:
    """Yield those rows for some services: two statements, which find each hour and each look by an index."""
    bound = {"services": encode(services), "hours": encode(list(wanted.hours)), "from_ms": wanted.from_ms}
    for service, *times in con.execute(AT_HOURS, bound):
        yield service, None, times
    for service, first_ms, *times in con.execute(OPEN_LOOKS, bound):
        yield service, first_ms, times


def _counted_since(con: Connection, service: int, from_at: float) -> Availability:
    """Return the availability of a service whose looks overlap those that are rolled up: counted one by one."""
    wanted = for_summary(*hour_on(from_at))
    return availability_of([times_of(summary_of(wanted, found_for(con, service, wanted)))])
