"""Upkeep of what is recorded about services: rolling up, pruning and forgetting, in steps of a few milliseconds.

Promises: a step is one transaction, and nothing else writes meanwhile, so that a look is rolled up exactly once,
whichever processes do it. Rows of looks are deleted in the order of their ids, after every service that has one of them
is rolled up: that changes as few pages as recording did.
"""

# ruff: noqa: S608 - only the table and column names of this module are put into SQL

from collections.abc import Sequence

from everpoll.drivers.sqlite.bulk import write_rows
from everpoll.drivers.sqlite.connection import Connection
from everpoll.policy import Rollup
from everpoll.stores.health import Retention
from everpoll.stores.health_chunks import FIGURES, LookRow, figures_of
from everpoll.stores.health_ranges import cutoffs, raised
from everpoll.stores.health_rolling import PackedHour, ServiceRecord, roll_up, touched
from everpoll.stores.sqlite.health_figures import HOUR, MINUTES, rollups_at, rows_at
from everpoll.stores.sqlite.health_reading import service_id
from everpoll.stores.sqlite.health_recording import LAST, LINK, SET_HEADS, Head, horizon_of

STEP_SERVICES, STEP_LOOKS = 10, 1_500
"""Services, and looks, of one step of rolling up: about 10 ms."""
STEP_ROWS = 2_000
"""Rows that one step deletes from each table: about 8 ms."""

NEXT = """select service, look, at_ms, rolled, open_ms, packed_ms from everpoll_health_heads
    where service > ? and look > rolled and open_ms < ? order by service limit ?"""
CHAIN = """with recursive
    chain (id, previous, at_ms, span_ms, status, latency_us, http_status, error, latencies) as (
        select id, previous, at_ms, span_ms, status, latency_us, http_status, error, latencies
        from everpoll_health_looks where id = :look and id > :rolled
        union all
        select l.id, l.previous, l.at_ms, l.span_ms, l.status, l.latency_us, l.http_status, l.error, l.latencies
        from chain c cross join everpoll_health_looks l where l.id = c.previous and l.id > :rolled)
    select id, at_ms, span_ms, status, latency_us, http_status, error, latencies from chain"""
DROP_LOOK = "delete from everpoll_health_looks where id = ?"
FIRST = "select min(id) from everpoll_health_looks"
ROLLED = "select min(rolled) from everpoll_health_heads where look > rolled"
SWEEP = "delete from everpoll_health_looks where id <= ?"

_FIGURES = ", ".join(FIGURES)
_MARKS = ", ?" * len(FIGURES)
_NEW_FIGURES = ", ".join(f"{name} = excluded.{name}" for name in (*FIGURES, "histogram"))
PACKED = "select size, looks, latencies from everpoll_health_packed where hour = ? and service = ?"
LAST_LOOKS = "select recent, latencies, latencies_ms from everpoll_health_services where id = ?"
DAY = f"select {_FIGURES}, histogram from everpoll_health_days where day = ? and service = ?"
SET_PACKED = """insert into everpoll_health_packed (service, hour, size, looks, latencies) values (?, ?, ?, ?, ?)
    on conflict (hour, service) do update
    set size = excluded.size, looks = excluded.looks, latencies = excluded.latencies"""
SET_MINUTES = """insert into everpoll_health_minutes (service, hour, minutes) values (?, ?, ?)
    on conflict (hour, service) do update set minutes = excluded.minutes"""
SET_HOUR = f"""insert into everpoll_health_hours (service, hour, {_FIGURES}, histogram) values (?, ?{_MARKS}, ?)
    on conflict (hour, service) do update set {_NEW_FIGURES}"""
SET_DAY = f"""insert into everpoll_health_days (service, day, {_FIGURES}, histogram) values (?, ?{_MARKS}, ?)
    on conflict (service, day) do update set {_NEW_FIGURES}"""
SET_LAST_LOOKS = "update everpoll_health_services set recent = ?, latencies = ?, latencies_ms = ? where id = ?"

LAST_HOUR = "select max(hour) from everpoll_health_hours"
SET_HORIZON = "replace into everpoll_health_horizon (id, looks, minutes, hours, errors_ms) values (1, ?, ?, ?, ?)"
OLD_ERRORS = """select rowid from everpoll_health_errors indexed by everpoll_health_errors_old
    where at_ms < ? limit ?"""
OLD_DEPENDENCIES = """select rowid from everpoll_health_dependencies indexed by everpoll_health_dependencies_vanished
    where vanished = 1 and seen_ms < ? limit ?"""

BUCKETS = {"packed": "hour", "minutes": "hour", "hours": "hour", "days": "day"}
"""The tables with a row for each hour or day of a service, in the order of `Cutoffs`."""
OLD_BUCKETS = {
    table: f"select {place}, service from everpoll_health_{table} where {place} < ? order by {place}, service limit ?"
    for table, place in BUCKETS.items()
}
DROP_BUCKET = {
    table: f"delete from everpoll_health_{table} where {place} = ? and service = ?" for table, place in BUCKETS.items()
}
FORGET = (
    "delete from everpoll_health_services where id = ?",
    "delete from everpoll_health_heads where service = ?",
    "delete from everpoll_health_dependencies where service = ?",
    "delete from everpoll_health_errors where service = ?",
)


def roll_up_some(con: Connection, until_ms: int, after: int) -> int | None:
    """Roll up the looks of some services; return where to go on, or None."""
    heads = [Head(*row) for row in con.execute(NEXT, (after, until_ms, STEP_SERVICES))]
    left = STEP_LOOKS
    for head in heads:
        left -= _roll_up_one(con, head, until_ms)
        if left <= 0:
            return head.service - 1  # it may have more
    return heads[-1].service if len(heads) == STEP_SERVICES else None


def _roll_up_one(con: Connection, head: Head, until_ms: int) -> int:
    """Roll up looks of a service, the oldest first; return how many."""
    chain = con.execute(CHAIN, {"look": head.look, "rolled": head.rolled}).fetchall()[::-1]
    rows = [LookRow(*row[1:]) for row in chain[:STEP_LOOKS] if row[1] < until_ms]
    record = _read(con, head, rows)
    roll_up(record, rows)
    _write(con, head.service, record)
    head.packed_ms = max(head.packed_ms, record.packed_ms)
    old, left = chain[: len(rows)], chain[len(rows) :]
    if left:
        head.rolled = max(head.rolled, min(row[0] for row in left) - 1)
        head.open_ms = left[0][1]
        con.execute(LINK, (None, left[0][0]))
        # Those that arrived late have ids after the ids of looks that stay.
        con.executemany(DROP_LOOK, [(row[0],) for row in old if row[0] > head.rolled])
    else:
        head.rolled = max(row[0] for row in old)
    write_rows(con, SET_HEADS, [head.row])
    return len(rows)


def _read(con: Connection, head: Head, rows: Sequence[LookRow]) -> ServiceRecord:
    service = head.service
    recent, latencies, latencies_ms = con.execute(LAST_LOOKS, (service,)).fetchone()
    hours, days = touched(rows, recent)
    return ServiceRecord(
        packed={hour: PackedHour(*row) for hour, row in rows_at(con, PACKED, hours, service)},
        minutes={hour: row[0] for hour, row in rows_at(con, MINUTES, hours, service)},
        hours=rollups_at(con, HOUR, hours, service),
        days=rollups_at(con, DAY, days, service),
        recent=recent,
        latencies=latencies,
        latencies_ms=latencies_ms,
        packed_ms=head.packed_ms,
    )


def _write(con: Connection, service: int, record: ServiceRecord) -> None:
    con.executemany(SET_PACKED, [(service, hour, *packed) for hour, packed in record.packed.items()])
    con.executemany(SET_MINUTES, [(service, hour, minutes) for hour, minutes in record.minutes.items()])
    for sql, rollups in ((SET_HOUR, record.hours), (SET_DAY, record.days)):
        con.executemany(sql, [_row(service, place, rollup) for place, rollup in rollups.items()])
    con.execute(SET_LAST_LOOKS, (record.recent, record.latencies, record.latencies_ms, service))


def _row(service: int, place: int, rollup: Rollup) -> tuple[int | bytes | None, ...]:
    return (service, place, *figures_of(rollup), rollup.histogram.encoded())


def sweep(con: Connection) -> bool:
    """Delete some of the looks that are rolled up; return whether more are left.

    The newest row stays: ids must not be reused.
    """
    (first,), (last,), (rolled,) = (con.execute(sql).fetchone() for sql in (FIRST, LAST, ROLLED))
    if first is None:
        return False
    end = last - 1 if rolled is None else min(rolled, last - 1)
    con.execute(SWEEP, (min(end, first + STEP_ROWS - 1),))
    return bool(first + STEP_ROWS <= end)


def prune(con: Connection, now: float, retention: Retention) -> bool:
    """Delete some of the rows that are too old; return whether more are left."""
    cut = cutoffs(now, retention)
    (last_hour,) = con.execute(LAST_HOUR).fetchone()
    con.execute(SET_HORIZON, raised(horizon_of(con), cut, last_hour))
    steps = [
        *((OLD_BUCKETS[table], DROP_BUCKET[table], before) for table, before in zip(BUCKETS, cut, strict=False)),
        (OLD_ERRORS, "delete from everpoll_health_errors where rowid = ?", cut.errors_ms),
        (OLD_DEPENDENCIES, "delete from everpoll_health_dependencies where rowid = ?", cut.errors_ms),
    ]
    has_more = [_pruned(con, *step) for step in steps]
    return any(has_more)


def _pruned(con: Connection, old: str, drop: str, before: int) -> bool:
    keys = con.execute(old, (before, STEP_ROWS)).fetchall()
    con.executemany(drop, keys)
    return len(keys) == STEP_ROWS


def forget(con: Connection, name: str) -> int | None:
    """Forget a service, so that no read finds it any more; return its number, None if it is not known.

    Its buckets are left for `forget_some`, or for pruning.
    """
    service = service_id(con, name)
    if service is not None:
        for sql in FORGET:
            con.execute(sql, (service,))
    return service


def places(con: Connection, table: str) -> range:
    """Return the hours or days that a table of buckets has."""
    ends = (f"(select {end}({BUCKETS[table]}) from everpoll_health_{table})" for end in ("min", "max"))
    first, last = con.execute(f"select {', '.join(ends)}").fetchone()
    return range(0) if first is None else range(first, last + 1)


def forget_some(con: Connection, service: int, table: str, some: range) -> None:
    """Delete the buckets of a forgotten service at these hours or days."""
    con.executemany(DROP_BUCKET[table], [(place, service) for place in some])
