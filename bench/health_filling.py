"""Fills the tables of health records with a past, in bulk, from hours that were really rolled up."""

import random
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import asyncpg

from everpoll.policy import Rollup
from everpoll.stores.health_chunks import FIGURES, HOUR_MS, HOURS_A_DAY, LookRow, figures_of
from everpoll.stores.health_rolling import PackedHour, ServiceRecord, roll_up

LOOKS_DAYS, MINUTES_DAYS, YEAR_DAYS = 7, 30, 365
VARIANTS, EVERY_MS = 200, 30_000
TABLES = ("packed", "minutes", "hours", "days")
COLUMNS = {
    "packed": ("service", "hour", "size", "looks", "latencies"),
    "minutes": ("service", "hour", "minutes"),
    "hours": ("service", "hour", *FIGURES, "histogram"),
    "days": ("service", "day", *FIGURES, "histogram"),
}
Row = tuple[Any, ...]


@dataclass(frozen=True)
class Hour:
    """One hour of looks, rolled up."""

    packed: PackedHour
    minutes: bytes
    rollup: Rollup


@dataclass
class Fill:
    """What to fill in."""

    services: int
    days: int
    now: float
    names: list[str] = field(init=False)

    def __post_init__(self) -> None:
        self.names = [f"service-{number:05}" for number in range(self.services)]

    @property
    def last_hour(self) -> int:
        """The hour before the present one."""
        return round(self.now * 1_000) // HOUR_MS - 1

    @property
    def rows(self) -> int:
        """Of all tables."""
        looks, minutes = min(self.days, LOOKS_DAYS), min(self.days, MINUTES_DAYS)
        return self.services * ((looks + minutes + self.days) * HOURS_A_DAY + self.days)

    @cached_property
    def hours(self) -> list[Hour]:
        """The hours that the past is made of."""
        rng = random.Random(11)
        return [_hour(rng) for _ in range(VARIANTS)]

    @cached_property
    def whole_days(self) -> list[Rollup]:
        """The days that it is made of."""
        rng = random.Random(12)
        return [Rollup.merged(one.rollup for one in rng.choices(self.hours, k=HOURS_A_DAY)) for _ in range(VARIANTS)]

    def table(self, name: str) -> Iterator[Row]:
        """The rows of a table, in the order of time."""
        days = {"packed": LOOKS_DAYS, "minutes": MINUTES_DAYS}.get(name, self.days)
        if name == "days":
            last_day = self.last_hour // HOURS_A_DAY - 1
            for place in range(last_day - self.days + 1, last_day + 1):
                for service in range(1, self.services + 1):
                    yield (service, place, *_figures(self.whole_days[(place * 7 + service) % VARIANTS]))
            return
        for place in range(self.last_hour - min(days, self.days) * HOURS_A_DAY + 1, self.last_hour + 1):
            for service in range(1, self.services + 1):
                hour = self.hours[(place * 7 + service) % VARIANTS]
                match name:
                    case "packed":
                        yield (service, place, *hour.packed)
                    case "minutes":
                        yield (service, place, hour.minutes)
                    case _:
                        yield (service, place, *_figures(hour.rollup))


def _hour(rng: random.Random) -> Hour:
    """Looks with latencies around 30 ms and a few slow ones; every twentieth hour has an outage."""
    rows = []
    is_ill = rng.random() < 0.05
    for number in range(HOUR_MS // EVERY_MS):
        is_down = is_ill and 40 <= number < 60
        at_ms = number * EVERY_MS + rng.randrange(200)
        latency_us = round(rng.lognormvariate(10.3, 0.4))
        error = "connection refused" if is_down else None
        rows.append(
            LookRow(
                at_ms, EVERY_MS, 3 if is_down else 0, None if is_down else latency_us, None if is_down else 200, error
            )
        )
    record = ServiceRecord()
    roll_up(record, rows)
    return Hour(record.packed[0], record.minutes[0], record.hours[0])


def _figures(rollup: Rollup) -> Row:
    return (*figures_of(rollup), rollup.histogram.encoded())


def fill_sqlite(path: Path, fill: Fill) -> None:
    """Fill a file that has the schema."""
    with closing(sqlite3.connect(path, isolation_level=None, timeout=30)) as con:
        con.execute("pragma synchronous = off")
        con.execute("begin")
        con.executemany("insert into everpoll_health_services (name) values (?)", [(name,) for name in fill.names])
        for table in TABLES:
            columns = COLUMNS[table]
            marks = ", ".join("?" * len(columns))
            con.executemany(
                f"insert into everpoll_health_{table} ({', '.join(columns)}) values ({marks})",  # noqa: S608 - ours
                fill.table(table),
            )
        con.execute("commit")
        con.execute("pragma wal_checkpoint(truncate)").fetchall()


async def fill_postgres(url: str, fill: Fill) -> None:
    """Fill a database that has the schema."""
    connection = await asyncpg.connect(url)
    try:
        await connection.executemany(
            "insert into everpoll.health_services (name) values ($1)", [(name,) for name in fill.names]
        )
        for table in TABLES:
            for rows in _in_parts(fill.table(table), 50_000):
                await connection.copy_records_to_table(
                    f"health_{table}", schema_name="everpoll", columns=COLUMNS[table], records=rows
                )
        await connection.execute("vacuum analyze")
    finally:
        await connection.close()


def _in_parts(rows: Iterable[Row], size: int) -> Iterator[list[Row]]:
    left = iter(rows)
    while part := list(islice(left, size)):
        yield part


def sizes_sqlite(path: Path) -> dict[str, float]:
    """Bytes of a row of each table, from a file with that table alone filled, by the pages that it takes."""
    with closing(sqlite3.connect(path)) as con:
        return _sizes({table: _bytes_sqlite(con, table) for table in TABLES})


def _bytes_sqlite(con: sqlite3.Connection, table: str) -> tuple[int, int]:
    """Rows and bytes of a copy of the table."""
    name = f"everpoll_health_{table}"
    (rows,) = con.execute(f"select count(*) from {name}").fetchone()  # noqa: S608 - ours
    with closing(sqlite3.connect(":memory:")) as copy:
        (ddl,) = con.execute("select sql from sqlite_master where name = ?", (name,)).fetchone()
        copy.execute(ddl)
        (before,) = copy.execute("pragma page_count").fetchone()
        part = con.execute(f"select * from {name} limit 100000").fetchall()  # noqa: S608 - ours
        copy.executemany(f"insert into {name} values ({', '.join('?' * len(part[0]))})", part)  # noqa: S608 - ours
        (after,), (size,) = (copy.execute(f"pragma {what}").fetchone() for what in ("page_count", "page_size"))
        return rows, round((after - before) * size * rows / len(part))


async def sizes_postgres(url: str) -> dict[str, float]:
    """Bytes of a row of each table, with its indexes."""
    connection = await asyncpg.connect(url)
    try:
        found = {}
        for table in TABLES:
            row = await connection.fetchrow(
                f"select count(*), pg_total_relation_size('everpoll.health_{table}') from everpoll.health_{table}"  # noqa: S608 - ours
            )
            found[table] = (int(row[0]), int(row[1]))
        return _sizes(found)
    finally:
        await connection.close()


def _sizes(tables: dict[str, tuple[int, int]]) -> dict[str, float]:
    each = {table: size / max(1, rows) for table, (rows, size) in tables.items()}
    looks_an_hour = HOUR_MS / EVERY_MS
    year = (
        each["packed"] * LOOKS_DAYS * HOURS_A_DAY
        + each["minutes"] * MINUTES_DAYS * HOURS_A_DAY
        + each["hours"] * YEAR_DAYS * HOURS_A_DAY
        + each["days"] * YEAR_DAYS
    )
    return {
        "a look": each["packed"] / looks_an_hour,
        "a minute": each["minutes"] / 60,
        "an hour": each["hours"],
        "a day": each["days"],
        "a service after a year": year,
    }
