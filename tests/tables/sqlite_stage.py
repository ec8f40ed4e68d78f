"""A table in an SQLite file, which its user reads and writes with the standard library's sqlite3."""

import asyncio
import itertools
import json
import re
import sqlite3
import time
import uuid
from collections.abc import Mapping
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tables.stages import JOBS, Kind, TableStage

TYPES: dict[Kind, str] = {
    "number key": "integer primary key",
    "uuid key": "text primary key default (lower(hex(randomblob(16))))",
    "text key": "text primary key",
    "text": "text",
    "number": "integer",
    "count": "integer not null default 0",
    "decimal": "numeric",
    "instant": "datetime",
    "since": "datetime not null default current_timestamp",
    "json": "json",
}
INSTANT = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?$")


def quoted(name: str) -> str:
    """A name."""
    return '"' + name.replace('"', '""') + '"'


class SqliteStage(TableStage):
    """One file."""

    name = "sqlite"
    has_trigger_push = False

    def __init__(self, path: Path) -> None:
        self.path = path
        self.url = f"sqlite:///{path}"
        self._since: dict[str, list[str]] = {}
        # CURRENT_TIMESTAMP knows whole seconds only: what is inserted within one would have no order.
        self._instants = itertools.count(time.time_ns() // 1_000)

    def connect(self) -> sqlite3.Connection:
        """Another program's connection."""
        return sqlite3.connect(self.path, timeout=30, isolation_level=None)

    async def execute(self, sql: str) -> None:
        await asyncio.to_thread(self._run, sql)

    async def fetch(self, sql: str, *args: Any) -> list[Any]:
        """What it answers."""
        return await asyncio.to_thread(self._run, sql, *args)

    def _run(self, sql: str, *args: Any) -> list[Any]:
        with closing(self.connect()) as con:
            con.row_factory = sqlite3.Row
            return con.execute(sql, args).fetchall()

    async def create(self, columns: Mapping[str, Kind] = JOBS, table: str = "jobs") -> None:
        defined = ", ".join(f"{quoted(name)} {TYPES[kind]}" for name, kind in columns.items())
        self._since[table] = [name for name, kind in columns.items() if kind == "since"]
        await self.execute(f"create table {quoted(table)} ({defined})")

    async def insert(self, *rows: Mapping[str, Any], table: str = "jobs") -> None:
        with closing(self.connect()) as con:
            con.execute("begin immediate")
            for row in rows:
                values = {name: _text(next(self._instants)) for name in self._since.get(table, ())} | dict(row)
                names, places = ", ".join(map(quoted, values)), ", ".join("?" * len(values))
                sql = f"insert into {quoted(table)} ({names}) values ({places})"  # noqa: S608 - a test's own names
                con.execute(sql, [_stored(value) for value in values.values()])
            con.execute("commit")

    async def rows(self, table: str = "jobs", key: str = "id") -> list[dict[str, Any]]:
        sql = f"select * from {quoted(table)} order by {quoted(key)}"  # noqa: S608 - a test's own names
        return [{name: _read(name, row[name]) for name in row.keys()} for row in await self.fetch(sql)]  # noqa: SIM118 - a Row

    async def change(self, key: Any, table: str = "jobs", **values: Any) -> None:
        sets = ", ".join(f"{quoted(name)} = ?" for name in values)
        sql = f"update {quoted(table)} set {sets} where id = ?"  # noqa: S608 - a test's own names
        await self.fetch(sql, *map(_stored, values.values()), key)

    async def age(self, seconds: float, *columns: str, table: str = "jobs") -> None:
        with closing(self.connect()) as con:
            con.create_function("aged", 1, lambda value: _aged(value, seconds))
            sets = ", ".join(f"{quoted(name)} = aged({quoted(name)})" for name in columns)
            con.execute(f"update {quoted(table)} set {sets}")  # noqa: S608 - a test's own names

    async def cut_connections(self) -> None:
        pass

    async def close(self) -> None:
        pass


def _text(instant_us: int) -> str:
    instant = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=instant_us)
    return instant.strftime("%Y-%m-%d %H:%M:%S.%f")


def _aged(value: Any, seconds: float) -> Any:
    if not isinstance(value, str):
        return value if value is None else value - seconds
    return (datetime.fromisoformat(value) - timedelta(seconds=seconds)).isoformat(" ", "microseconds")


def _stored(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
    if isinstance(value, uuid.UUID):
        return str(value)
    return json.dumps(value) if isinstance(value, dict | list) else value


def _read(name: str, value: Any) -> Any:
    if isinstance(value, str) and name == "report":
        return json.loads(value)
    if isinstance(value, str) and INSTANT.match(value):
        return datetime.fromisoformat(value).replace(tzinfo=UTC)
    return value
