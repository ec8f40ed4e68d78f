"""Upkeep of what is recorded about services: rolling up, pruning and forgetting, in bounded steps.

Promises: a step of rolling up is one transaction that holds its services, so that a look is rolled up exactly once;
what another process holds is left to it. Recording is not held up: it finds out at its end whether a roll-up came in
between.
"""

# ruff: noqa: S608 - only the table and column names of this module are put into SQL

import asyncio
from itertools import groupby
from operator import itemgetter
from typing import Any

from everpoll.drivers.postgres.lane import Connection, Lane
from everpoll.policy import Rollup
from everpoll.stores.health import Retention
from everpoll.stores.health_chunks import FIGURES, LookRow, figures_of, rollup_of
from everpoll.stores.health_ranges import cutoffs, raised
from everpoll.stores.health_rolling import PackedHour, ServiceRecord, roll_up, touched
from everpoll.stores.postgres.functions import versioned
from everpoll.stores.postgres.health_reading import horizon_of

STEP_SERVICES, STEP_LOOKS = 20, 3_000
"""Services, and looks, of one step of rolling up; other tasks of this process go on between two services."""
STEP_ROWS = 5_000
"""Rows that one statement deletes."""

PICK = versioned("select * from everpoll.health_pick($1, $2, $3)")
OPEN = versioned("""select service, at_ms, span_ms, status, latency_us, http_status, error, latencies
    from everpoll.health_open_looks($1, $2, $3)""")
BUCKETS = versioned("select * from everpoll.health_buckets($1, $2, $3, $4)")
DROP_LOOKS = versioned("select everpoll.health_drop_looks($1, $2)")

SET_PACKED = """insert into everpoll.health_packed (service, hour, size, looks, latencies)
    select * from unnest($1::int[], $2::int[], $3::int[], $4::bytea[], $5::bytea[])
    on conflict (hour, service) do update
    set size = excluded.size, looks = excluded.looks, latencies = excluded.latencies"""
SET_MINUTES = """insert into everpoll.health_minutes (service, hour, minutes)
    select * from unnest($1::int[], $2::int[], $3::bytea[])
    on conflict (hour, service) do update set minutes = excluded.minutes"""
_ARRAYS = ", ".join(f"${number}::bigint[]" for number in range(3, 3 + len(FIGURES)))
_FIGURES = ", ".join(FIGURES)
_NEW_FIGURES = ", ".join(f"{name} = excluded.{name}" for name in (*FIGURES, "histogram"))
_SET_ROLLUP = f"""insert into everpoll.health_%(table)s (service, %(place)s, {_FIGURES}, histogram)
    select * from unnest($1::int[], $2::int[], {_ARRAYS}, ${3 + len(FIGURES)}::bytea[])
    on conflict (%(keys)s) do update set {_NEW_FIGURES}"""
SET_HOURS = _SET_ROLLUP % {"table": "hours", "place": "hour", "keys": "hour, service"}
SET_DAYS = _SET_ROLLUP % {"table": "days", "place": "day", "keys": "service, day"}
SET_LAST_LOOKS = """update everpoll.health_services s
    set recent = n.recent, latencies = n.latencies, latencies_ms = n.latencies_ms, packed_ms = n.packed_ms
    from unnest($1::int[], $2::bytea[], $3::bytea[], $4::bigint[], $5::bigint[])
        n(id, recent, latencies, latencies_ms, packed_ms)
    where s.id = n.id"""

LAST_HOUR = "select z.hour from everpoll.health_hours z order by z.hour desc limit 1"
SET_HORIZON = """insert into everpoll.health_horizon as h (id, looks, minutes, hours, errors_ms)
    values (1, $1, $2, $3, $4)
    on conflict (id) do update set looks = greatest(h.looks, excluded.looks),
        minutes = greatest(h.minutes, excluded.minutes), hours = greatest(h.hours, excluded.hours),
        errors_ms = greatest(h.errors_ms, excluded.errors_ms)"""
TABLES = {"packed": "hour", "minutes": "hour", "hours": "hour", "days": "day"}
"""The tables with a row for each hour or day of a service, in the order of `Cutoffs`."""
PRUNE = versioned("select everpoll.health_prune($1, $2, $3, $4, $5)")

LOCK = "select pg_advisory_xact_lock(hashtext('everpoll'), hashtext('everpoll.health'))"
FORGET = "delete from everpoll.health_services where name = $1 returning id"
FORGET_BUCKETS = versioned("select everpoll.health_forget($1, $2, $3, $4, $5)")
FORGET_ROWS = [
    f"delete from everpoll.health_{table} where service = $1" for table in ("looks", "dependencies", "errors")
]


async def roll_up_some(lane: Lane, until_ms: int, after: int) -> int | None:
    """Roll up the looks of some services; return where to go on, or None."""
    return await lane.call(lambda connection: _step(connection, until_ms, after))


async def _step(connection: Connection, until_ms: int, after: int) -> int | None:
    async with connection.transaction():
        picked = await connection.fetch(PICK, until_ms, after, STEP_SERVICES)
        ids: list[int] = [row["id"] for row in picked]
        rows = await connection.fetch(OPEN, ids, until_ms, STEP_LOOKS) if ids else []
        looks: dict[int, list[LookRow]] = {
            service: [LookRow(*row[1:]) for row in group] for service, group in groupby(rows, itemgetter("service"))
        }
        if looks:
            records = await _read(connection, looks, {row["id"]: row for row in picked})
            for service, record in records.items():
                roll_up(record, looks[service])
                await asyncio.sleep(0)
            await _write(connection, records)
            keys = [(service, look.at_ms) for service, some in looks.items() for look in some]
            await connection.fetch(DROP_LOOKS, *_columns(keys))
    if len(rows) == STEP_LOOKS:
        return max(looks) - 1  # it may have more
    return ids[-1] if len(ids) == STEP_SERVICES else None


async def _read(
    connection: Connection, looks: dict[int, list[LookRow]], picked: dict[int, Any]
) -> dict[int, ServiceRecord]:
    places = {service: touched(rows, picked[service]["recent"]) for service, rows in looks.items()}
    hours = [(hour, service) for service, some in places.items() for hour in some.hours]
    days = [(day, service) for service, some in places.items() for day in some.days]
    records = {
        service: ServiceRecord(
            recent=picked[service]["recent"],
            latencies=picked[service]["latencies"],
            latencies_ms=picked[service]["latencies_ms"],
            packed_ms=picked[service]["packed_ms"],
        )
        for service in looks
    }
    found = await connection.fetch(BUCKETS, *_columns(hours), *_columns(days))
    for kind, service, place, size, figures, packed, latencies in found:
        record = records[service]
        match kind:
            case 1:
                record.packed[place] = PackedHour(size, packed, latencies)
            case 2:
                record.minutes[place] = packed
            case 3:
                record.hours[place] = rollup_of(figures, packed)
            case _:
                record.days[place] = rollup_of(figures, packed)
    return records


async def _write(connection: Connection, records: dict[int, ServiceRecord]) -> None:
    everything = list(records.items())
    packed = [(service, hour, *one) for service, record in everything for hour, one in record.packed.items()]
    minutes = [(service, hour, one) for service, record in everything for hour, one in record.minutes.items()]
    hours = [_row(service, hour, one) for service, record in everything for hour, one in record.hours.items()]
    days = [_row(service, day, one) for service, record in everything for day, one in record.days.items()]
    last = [
        (service, record.recent, record.latencies, record.latencies_ms, record.packed_ms)
        for service, record in everything
    ]
    for sql, rows in (
        (SET_PACKED, packed),
        (SET_MINUTES, minutes),
        (SET_HOURS, hours),
        (SET_DAYS, days),
        (SET_LAST_LOOKS, last),
    ):
        await connection.fetch(sql, *_columns(rows))


def _row(service: int, place: int, rollup: Rollup) -> tuple[Any, ...]:
    return (service, place, *figures_of(rollup), rollup.histogram.encoded())


def _columns(rows: list[Any]) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)]


async def prune(lane: Lane, now: float, retention: Retention) -> bool:
    """Delete some of the rows that are too old; return whether more are left."""
    cut = cutoffs(now, retention)
    horizon = raised(await horizon_of(lane), cut, await lane.value(LAST_HOUR))
    await lane.row(SET_HORIZON, *horizon)
    steps = [
        *((table, place, "true", before) for (table, place), before in zip(TABLES.items(), cut, strict=False)),
        ("errors", "at_ms", "true", cut.errors_ms),
        ("dependencies", "seen_ms", "vanished", cut.errors_ms),
    ]
    gone = [int(await lane.value(PRUNE, f"health_{table}", *rest, STEP_ROWS)) for table, *rest in steps]
    return STEP_ROWS in gone


async def forget(lane: Lane, name: str) -> bool:
    """Forget a service, then delete its buckets; `prune` deletes those that a crash leaves, when they are too old."""
    service = await lane.call(lambda connection: _forget(connection, name))
    if service is None:
        return False
    for table, place in TABLES.items():
        ends = (f"(select {place} from everpoll.health_{table} order by {place} {way} limit 1)" for way in ("", "desc"))
        first, last = await lane.row(f"select {', '.join(ends)}")
        for start in range(first or 0, (-1 if last is None else last) + 1, STEP_ROWS):
            end = min(last, start + STEP_ROWS - 1)
            await lane.row(FORGET_BUCKETS, service, f"health_{table}", place, start, end)
    return True


async def _forget(connection: Connection, name: str) -> int | None:
    """Delete a service with everything that does not go by its age; its number, None if it is not known."""
    async with connection.transaction():
        await connection.fetch(LOCK)
        service: int | None = await connection.fetchval(FORGET, name)
        for sql in FORGET_ROWS if service is not None else ():
            await connection.fetch(sql, service)
    return service
