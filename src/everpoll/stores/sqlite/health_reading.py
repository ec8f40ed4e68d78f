"""Reading looks, dependencies, errors and latencies. Each call runs in one snapshot.

Looks that are not rolled up are found along the chain of their service, the others by their hour: a seek for each.
"""

# ruff: noqa: S608 - only the column lists of this package are put into SQL

from collections import defaultdict
from collections.abc import Iterator, Sequence

from everpoll.drivers.sqlite.connection import Connection
from everpoll.stores.contract import encode
from everpoll.stores.health import DependencyInfo, Edge, EdgePage, ErrorEntry, LatencyPoint, Look, LookPoint
from everpoll.stores.health_answers import (
    HistoryRequest,
    PackedRow,
    Point,
    dependency_of,
    error_of,
    latencies_of,
    latest_of,
    looks_of,
    newer,
    points_of,
)
from everpoll.stores.health_batches import DependencyRow
from everpoll.stores.health_chunks import LookRow
from everpoll.stores.health_limits import LATEST_S, milliseconds
from everpoll.stores.health_ranges import within

SERVICE = "select id from everpoll_health_services where name = ?"
# From the newest look on, as long as they are not rolled up and not before the range.
CHAIN = """with recursive
    chain (previous, at_ms, span_ms, status, latency_us, http_status, error, latencies, rolled, n) as (
        select l.previous, l.at_ms, l.span_ms, l.status, l.latency_us, l.http_status, l.error, l.latencies, h.rolled,
            l.at_ms < :to_ms
        from everpoll_health_heads h cross join everpoll_health_looks l
        where h.service = :service and l.id = h.look and l.id > h.rolled
        union all
        select l.previous, l.at_ms, l.span_ms, l.status, l.latency_us, l.http_status, l.error, l.latencies, c.rolled,
            c.n + (l.at_ms < :to_ms)
        from chain c cross join everpoll_health_looks l
        where l.id = c.previous and l.id > c.rolled and c.at_ms >= :from_ms and c.n < :limit)
    select at_ms, span_ms, status, latency_us, http_status, error, latencies from chain
    where at_ms >= :from_ms and at_ms < :to_ms"""
FIRST_AND_LAST = """select (select min(hour) from everpoll_health_packed),
    (select max(hour) from everpoll_health_packed)"""
PACKED = "select looks, latencies from everpoll_health_packed where hour = ? and service = ?"
NAMED = """select s.name, s.id, s.recent, h.packed_ms from json_each(?) j
    cross join everpoll_health_services s on s.name = j.value
    cross join everpoll_health_heads h on h.service = s.id"""
CHAINS = """with recursive chain (service, previous, at_ms, status, latency_us, rolled, n) as (
        select h.service, l.previous, l.at_ms, l.status, l.latency_us, h.rolled, 1
        from json_each(:services) j cross join everpoll_health_heads h on h.service = j.value
        cross join everpoll_health_looks l on l.id = h.look and l.id > h.rolled
        union all select c.service, l.previous, l.at_ms, l.status, l.latency_us, c.rolled, c.n + 1
        from chain c cross join everpoll_health_looks l
        where l.id = c.previous and l.id > c.rolled and c.n < :n)
    select service, at_ms, status, latency_us from chain"""

LATENCIES = "select latencies_ms, latencies from everpoll_health_services where id = ?"
_COLUMNS = ", ".join(f"d.{name}" for name in DependencyRow._fields)
DEPENDENCIES = f"""select a.canonical, {_COLUMNS} from everpoll_health_dependencies d
    left join everpoll_health_aliases a on a.alias = d.name where d.service = ? order by d.name"""
EDGES = """select s.name, d.name, coalesce(a.canonical, d.name), d.status, d.vanished
    from everpoll_health_services s cross join everpoll_health_dependencies d
    left join everpoll_health_aliases a on a.alias = d.name
    where d.service = s.id and s.name >= :service and (s.name > :service or d.name > :name)
    order by s.name, d.name limit :limit"""
ERRORS = """select at_ms, error, error_message from everpoll_health_errors
    where service = ? and dependency = ? order by at_ms desc limit ?"""

ALL_LOOKS = 2**31
NO_END_MS = milliseconds(LATEST_S)


def service_id(con: Connection, name: str) -> int | None:
    """Return the number of a service; None if it is not known."""
    row = con.execute(SERVICE, (name,)).fetchone()
    return None if row is None else int(row[0])


def looks(con: Connection, service: int, request: HistoryRequest) -> list[Look]:
    """Return looks of a range, newest first."""
    return looks_of(
        request, open_looks(con, service, request.from_ms, request.to_ms, request.limit), _packed(con, service, request)
    )


def open_looks(con: Connection, service: int, from_ms: int, to_ms: int, limit: int = ALL_LOOKS) -> list[LookRow]:
    """Return looks of a range that are not rolled up, newest first."""
    bound = {"service": service, "from_ms": from_ms, "to_ms": to_ms, "limit": limit}
    return [LookRow(*row) for row in con.execute(CHAIN, bound)]


def _packed(con: Connection, service: int, request: HistoryRequest) -> Iterator[PackedRow]:
    """Yield the packed hours of a range, newest first, as far as there are any at all."""
    for hour in reversed(within(request.hours, *con.execute(FIRST_AND_LAST).fetchone())):
        row = con.execute(PACKED, (hour, service)).fetchone()
        if row is not None:
            yield PackedRow(hour, *row)


def last_looks(con: Connection, names: Sequence[str], n: int) -> dict[str, list[LookPoint]]:
    """Return the last looks at each of many services, newest first."""
    named = con.execute(NAMED, (encode(names),)).fetchall()
    points: defaultdict[int, list[Point]] = defaultdict(list)
    bound = {"services": encode([service for _, service, _, _ in named]), "n": n}
    for service, *point in con.execute(CHAINS, bound):
        points[service].append(point)
    return {name: points_of(n, points[service], recent, packed_ms) for name, service, recent, packed_ms in named}


def dependencies(con: Connection, service: int) -> list[DependencyInfo]:
    """Return the dependencies that a service reports, or reported earlier."""
    newest = next((row for row in open_looks(con, service, 0, NO_END_MS) if row.latencies is not None), None)
    rolled = latest_of(*con.execute(LATENCIES, (service,)).fetchone())
    latest = rolled if newest is None else newer(latest_of(newest.at_ms, newest.latencies), rolled)
    rows = con.execute(DEPENDENCIES, (service,))
    return [dependency_of(DependencyRow(*row), canonical, latest) for canonical, *row in rows]


def edges(con: Connection, after: tuple[str, str], limit: int) -> EdgePage:
    """Return the dependencies of all services, ordered by service and name, after a service and a name."""
    rows = con.execute(EDGES, {"service": after[0], "name": after[1], "limit": limit + 1}).fetchall()
    found = tuple(Edge(service, name, canonical, status, bool(gone)) for service, name, canonical, status, gone in rows)
    page = found[:limit]
    return EdgePage(page, (page[-1].service, page[-1].name) if len(found) > limit else None)


def errors(con: Connection, service: int, dependency: str, limit: int) -> list[ErrorEntry]:
    """Return the error history of a dependency, newest first."""
    return [error_of(*row) for row in con.execute(ERRORS, (service, dependency, limit))]


def latencies(con: Connection, service: int, dependency: str, request: HistoryRequest) -> list[LatencyPoint]:
    """Return latencies of a dependency in a range, newest first."""
    rows = open_looks(con, service, request.from_ms, request.to_ms)
    return latencies_of(dependency, request, rows, _packed(con, service, request))
