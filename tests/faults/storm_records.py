"""What a storm leaves in the database, read from its tables: not by the code that is under test.

A trigger of the test writes a row for each lease, with the instant that the store gave it; history keeps only
the last one.
"""

# ruff: noqa: S608 - names of this file are put into SQL

import json
import sqlite3
from collections import defaultdict
from contextlib import closing
from typing import Any, NamedTuple

import psycopg

from faults.storm import CALLBACKS

SQLITE = [
    CALLBACKS,
    "create table leases (id integer, sequence integer, name text, limit_key text, started_at real)",
    """create trigger note_leases after update on everpoll_tasks
       when new.is_leased = 1 and new.started_at is not old.started_at
       begin insert into leases values (new.id, new.sequence, new.name, new.limit_key, new.started_at / 1e6); end""",
]
POSTGRES = [
    CALLBACKS,
    "create table leases (id bigint, sequence bigint, name text, limit_key text, started_at float8)",
    """create function note_lease() returns trigger language plpgsql as $$ begin
       insert into leases values (new.id, new.sequence, new.name, new.limit_key, extract(epoch from new.started_at));
       return null; end $$""",
    """create trigger note_leases after update on everpoll.tasks for each row
       when (new.is_leased and new.started_at is distinct from old.started_at) execute function note_lease()""",
]


class Row(NamedTuple):
    """A task, live or ended."""

    id: int
    kind: str
    name: str
    state: str
    args: Any
    rescues: int
    trail: list[dict[str, Any]]
    started_at: float | None
    ended_at: float | None
    then_id: int | None
    limit_key: str | None


class Records:
    """One database."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._is_sqlite = url.startswith("sqlite")

    def prepare(self) -> None:
        """Make the tables and the trigger of the test; the schema must be there."""
        for statement in SQLITE if self._is_sqlite else POSTGRES:
            self._ask(statement)

    def live(self) -> int:
        """Count the jobs that have not ended."""
        return int(self._ask(f"select count(*) from {self._table('tasks')} where kind = 'job'")[0][0])

    def deaths(self) -> dict[int, float]:
        """When the store declared workers dead, or they signed off, by incarnation: seconds since the epoch."""
        stopped_at = self._seconds("stopped_at")
        rows = self._ask(f"select incarnation, {stopped_at} from {self._table('workers')} where stopped_at is not null")
        return dict(rows)

    def starts(self, name: str) -> dict[str, dict[tuple[int, int], float]]:
        """When tasks of that job were leased, by limit key: each lease, by its task and sequence, in order."""
        found: dict[str, dict[tuple[int, int], float]] = defaultdict(dict)
        order = f"select limit_key, id, sequence, started_at from leases where name = '{name}' order by started_at"
        for key, task, sequence, at in self._ask(order):
            found[key][task, sequence] = at
        return found

    def callbacks(self) -> list[int]:
        """Return the ids of the callbacks that took effect."""
        return [row[0] for row in self._ask("select id from callbacks")]

    def tasks(self) -> list[Row]:
        """Return every task."""
        found = []
        for table, state, ended_at in (
            ("tasks", "'live'", "null"),
            ("history", "state", self._seconds("ended_at")),
        ):
            rows = self._ask(
                f"""select id, kind, name, {state}, args, rescues, trail, {self._seconds("started_at")}, {ended_at},
                    then_id, limit_key from {self._table(table)}"""
            )
            found += [Row._make([*row[:4], json.loads(row[4]), row[5], _trail(row[6]), *row[7:]]) for row in rows]
        return found

    def _table(self, name: str) -> str:
        return f"everpoll_{name}" if self._is_sqlite else f"everpoll.{name}"

    def _seconds(self, column: str) -> str:
        return f"{column} / 1e6" if self._is_sqlite else f"extract(epoch from {column})::float8"

    def _ask(self, sql: str) -> list[Any]:
        if self._is_sqlite:
            with closing(sqlite3.connect(self._url.removeprefix("sqlite:///"), timeout=60)) as file, file:
                return file.execute(sql).fetchall()
        with psycopg.connect(self._url) as connection:
            cursor = connection.execute(sql.encode())
            return cursor.fetchall() if cursor.description else []


def _trail(stored: Any) -> list[dict[str, Any]]:
    entries = json.loads(stored or "[]") if isinstance(stored, str | None) else stored
    return [json.loads(one) if isinstance(one, str) else one for one in entries]
