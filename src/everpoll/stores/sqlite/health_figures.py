"""Reading rollups of one service, and the availability of many. Each call runs in one snapshot.

A service's days are in one piece, its hours a seek each. Only where most services are asked for, hours are read in one
piece, and what waits to be rolled up as well.
"""

# ruff: noqa: S608 - only the column lists of this package are put into SQL

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from everpoll.drivers.sqlite.connection import Connection
from everpoll.policy import Availability, Rollup
from everpoll.stores.contract import encode
from everpoll.stores.health_chunks import CODES, FIGURES, TIMES, availability_of, rollup_of
from everpoll.stores.health_ranges import Found, Since, Wanted, since
from everpoll.stores.sqlite.health_reading import open_looks
from everpoll.stores.sqlite.health_recording import horizon_of

_FIGURES = ", ".join(FIGURES)
DAYS = f"""select day, {_FIGURES}, histogram from everpoll_health_days
    where service = ? and day >= ? and day < ?"""
# One at a time, 2 us each. A list of them, with statistics of a small table, is a scan (or a Bloom filter, which takes
# one), also when the table has grown.
HOUR = f"select {_FIGURES}, histogram from everpoll_health_hours where hour = ? and service = ?"
MINUTES = "select minutes from everpoll_health_minutes where hour = ? and service = ?"

NAMED = """select s.name, s.id from json_each(?) j cross join everpoll_health_services s on s.name = j.value"""
LAST_SERVICE = "select max(id) from everpoll_health_services"
_SUMS = ", ".join(f"sum({name})" for name in TIMES)
_SUMS_OF_LOOKS = ", ".join(
    f"sum(l.span_ms * (l.status = {CODES[word]}))" for word in ("up", "degraded", "down", "unknown")
)
SINCE_DAY = f"select {_SUMS} from everpoll_health_days where service = ? and day >= ?"
# Cross joins: in this order, whatever statistics say.
AT_HOURS = f"""select h.service, {_SUMS} from json_each(:services) s cross join json_each(:hours) o
    cross join everpoll_health_hours h where h.hour = o.value and h.service = s.value group by h.service"""
OPEN_LOOKS = f"""with recursive chain (service, previous, at_ms, span_ms, status, latency_us, rolled) as (
        select h.service, one.previous, one.at_ms, one.span_ms, one.status, one.latency_us, h.rolled
        from json_each(:services) s cross join everpoll_health_heads h on h.service = s.value
        cross join everpoll_health_looks one on one.id = h.look and one.id > h.rolled
        union all select c.service, one.previous, one.at_ms, one.span_ms, one.status, one.latency_us, c.rolled
        from chain c cross join everpoll_health_looks one
        where one.id = c.previous and one.id > c.rolled and c.at_ms >= :from_ms)
    select l.service, {_SUMS_OF_LOOKS}, count(l.latency_us), sum(l.latency_us)
    from chain l where l.at_ms >= :from_ms group by l.service"""
EVERY_HOUR = f"select service, {_SUMS} from everpoll_health_hours where hour >= ? and hour < ? group by service"
EVERY_LOOK = f"""select l.service, {_SUMS_OF_LOOKS}, count(l.latency_us), sum(l.latency_us)
    from everpoll_health_looks l cross join everpoll_health_heads h
    where h.service = l.service and l.id > h.rolled and l.at_ms >= ? group by l.service"""

MANY_SHARE = 4
"""If more than one in so many services is asked for, that is most of them."""

Times = Sequence[int | None]
"""Figures of an availability."""


def found_for(con: Connection, service: int, wanted: Wanted) -> Found:
    """What the tables have of what is wanted."""
    days = con.execute(DAYS, (service, wanted.days.start, wanted.days.stop)) if wanted.days else ()
    return Found(
        days={day: rollup_of(figures, histogram) for day, *figures, histogram in days},
        hours=rollups_at(con, HOUR, wanted.hours, service),
        minutes={hour: row[0] for hour, row in rows_at(con, MINUTES, wanted.minutes, service)},
        looks=open_looks(con, service, wanted.from_ms, wanted.to_ms),
        horizon=horizon_of(con),
    )


def rollups_at(con: Connection, sql: str, places: Iterable[int], service: int) -> dict[int, Rollup]:
    """The rollups of a service at those of the hours or days that have one."""
    return {place: rollup_of(row[:-1], row[-1]) for place, row in rows_at(con, sql, places, service)}


def rows_at(con: Connection, sql: str, places: Iterable[int], service: int) -> Iterator[tuple[int, tuple[Any, ...]]]:
    """The row of a service at each of the hours or days that has one."""
    for place in places:
        row = con.execute(sql, (place, service)).fetchone()
        if row is not None:
            yield place, row


def availability(con: Connection, names: Sequence[str], from_at: float) -> dict[str, Availability]:
    """The availability since an hour, of each of many services."""
    services = {int(service): str(name) for name, service in con.execute(NAMED, (encode(list(names)),))}
    wanted = since(from_at, horizon_of(con))
    parts: defaultdict[int, list[Times]] = defaultdict(list)
    for service in services:
        sums = con.execute(SINCE_DAY, (service, wanted.first_day)).fetchone()
        if sums[0] is not None:
            parts[service].append(sums)
    (last_service,) = con.execute(LAST_SERVICE).fetchone()
    is_most = len(services) * MANY_SHARE > (last_service or 0)
    for service, times in _of_most(con, wanted) if is_most else _of_some(con, wanted, list(services)):
        parts[service].append(times)
    return {name: availability_of(parts[service]) for service, name in services.items() if service in parts}


def _of_most(con: Connection, wanted: Since) -> Iterator[tuple[int, Times]]:
    """The hours before the first day, and what waits to be rolled up, of all services."""
    for sql, bound in ((EVERY_HOUR, (wanted.hours.start, wanted.hours.stop)), (EVERY_LOOK, (wanted.from_ms,))):
        for service, *times in con.execute(sql, bound):
            yield service, times


def _of_some(con: Connection, wanted: Since, services: list[int]) -> Iterator[tuple[int, Times]]:
    """The same of some services: two statements, each a seek for an hour or a look."""
    bound = {"services": encode(services), "hours": encode(list(wanted.hours)), "from_ms": wanted.from_ms}
    for sql in (AT_HOURS, OPEN_LOOKS):
        for service, *times in con.execute(sql, bound):
            yield service, times
