"""A table in a Postgres database."""

import json
import uuid
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import asyncpg

from tables.stages import JOBS, Kind, TableStage

TYPES: dict[Kind, str] = {
    "number key": "bigint primary key",
    "uuid key": "uuid primary key default gen_random_uuid()",
    "text key": "text primary key",
    "text": "text",
    "number": "integer",
    "count": "integer not null default 0",
    "decimal": "numeric",
    "instant": "timestamptz",
    "since": "timestamptz not null default clock_timestamp()",
    "json": "jsonb",
}
CUT = """select pg_terminate_backend(pid) from pg_stat_activity
    where datname = current_database() and pid <> pg_backend_pid()"""
DROP = "drop schema public cascade; create schema public"


def quoted(name: str) -> str:
    """An identifier; a dot parts the schema from the table."""
    return ".".join('"' + part.replace('"', '""') + '"' for part in name.split("."))


class PostgresStage(TableStage):
    """One database of a real server, emptied before each test."""

    def __init__(self, name: str, url: str) -> None:
        self.name = name
        self.url = url
        self._connection: Any = None

    async def connection(self) -> Any:
        """The user's own."""
        if self._connection is None or self._connection.is_closed():
            self._connection = await asyncpg.connect(self.url)
        return self._connection

    async def begin(self) -> None:
        """Empty."""
        await self.execute(DROP)

    async def execute(self, sql: str) -> None:
        await (await self.connection()).execute(sql)

    async def fetch(self, sql: str, *args: Any) -> list[Any]:
        """What it answers."""
        return list(await (await self.connection()).fetch(sql, *args))

    async def create(self, columns: Mapping[str, Kind] = JOBS, table: str = "jobs") -> None:
        defined = ", ".join(f"{quoted_column(name)} {TYPES[kind]}" for name, kind in columns.items())
        await self.execute(f"create table {quoted(table)} ({defined})")

    async def insert(self, *rows: Mapping[str, Any], table: str = "jobs") -> None:
        connection = await self.connection()
        for row in rows:
            names = ", ".join(quoted_column(name) for name in row)
            places = ", ".join(f"${number}" for number in range(1, len(row) + 1))
            sql = f"insert into {quoted(table)} ({names}) values ({places})"  # noqa: S608 - a test's own names
            await connection.execute(sql, *map(_stored, row.values()))

    async def rows(self, table: str = "jobs", key: str = "id") -> list[dict[str, Any]]:
        sql = f"select * from {quoted(table)} order by {quoted_column(key)}"  # noqa: S608 - a test's own names
        return [{name: _read(name, value) for name, value in row.items()} for row in await self.fetch(sql)]

    async def change(self, key: Any, table: str = "jobs", **values: Any) -> None:
        sets = ", ".join(f"{quoted_column(name)} = ${number}" for number, name in enumerate(values, 2))
        sql = f"update {quoted(table)} set {sets} where id = $1"  # noqa: S608 - a test's own names
        await (await self.connection()).execute(sql, key, *map(_stored, values.values()))

    async def age(self, seconds: float, *columns: str, table: str = "jobs") -> None:
        sets = ", ".join(f"{quoted_column(name)} = {quoted_column(name)} - $1::interval" for name in columns)
        sql = f"update {quoted(table)} set {sets}"  # noqa: S608 - a test's own names
        await (await self.connection()).execute(sql, timedelta(seconds=seconds))

    async def cut_connections(self) -> None:
        await self.fetch(CUT)

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.close()


def quoted_column(name: str) -> str:
    """A column, whose name may have dots."""
    return '"' + name.replace('"', '""') + '"'


def _stored(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, dict | list) else value


def _read(name: str, value: Any) -> Any:
    if isinstance(value, uuid.UUID):
        return str(value)
    if isinstance(value, datetime):
        return value
    if isinstance(value, str) and name == "report":
        return json.loads(value)
    return value
