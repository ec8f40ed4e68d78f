"""The stores under test, each with a way to let time pass.

Promises: after `pass_time(s)` the store behaves as if `s` seconds had gone by, at once. Memory has a clock that can be
stepped. The clock of a database cannot, so every instant that it has stored is moved into the past instead: to the
store, which only ever compares instants with its clock, both are the same.
"""

import functools
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol

import psycopg

from everpoll.stores.contract import NewTask, Store
from everpoll.stores.memory import MemoryStore
from everpoll.stores.urls import store_for
from servers.postgres import binary_folders

CUT = """select pg_terminate_backend(pid) from pg_stat_activity
    where datname = current_database() and pid <> pg_backend_pid()"""
# Truncating would take 50 to 90 ms: a dozen partitions, each with its indexes.
FORGET = """delete from everpoll.tasks; delete from everpoll.history; delete from everpoll.workers;
    delete from everpoll.losses; delete from everpoll.events; delete from everpoll.figures;
    delete from everpoll.health_services;
    delete from everpoll.health_looks; delete from everpoll.health_packed; delete from everpoll.health_minutes;
    delete from everpoll.health_hours; delete from everpoll.health_days; delete from everpoll.health_dependencies;
    delete from everpoll.health_errors; delete from everpoll.health_aliases; delete from everpoll.health_windows;
    delete from everpoll.health_horizon; delete from everpoll.starts; delete from everpoll.pauses;
    delete from everpoll.feed_horizon"""
INSTANTS = """select c.relname, a.attname from pg_class c join pg_attribute a on a.attrelid = c.oid
    where c.relnamespace = 'everpoll'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition
      and c.relname not in ('migrations', 'function_sets')
      and a.atttypid = 'timestamptz'::regtype and not a.attisdropped"""
WALL_START = 1_900_000_000.0


def backend_names() -> list[str]:
    """Every store, Postgres once per version found here; `postgres` alone tells that none was found."""
    versions = [f"postgres-{major}" for major in sorted(binary_folders(), reverse=True)]
    return ["memory", "sqlite", *(versions or ["postgres"])]


class Backend(Protocol):
    """One empty place for tasks."""

    name: str
    url: str | None
    """Where other processes find the same tasks; None: nowhere."""

    def store(self) -> Store:
        """A store object, not opened yet. Each call makes another one on the same tasks."""

    def calm(self, store: Store) -> Store:
        """The same store, without whatever it does sooner or later depending on measured time."""

    async def pass_time(self, seconds: float) -> None:
        """Let time pass."""

    async def cut_connections(self) -> None:
        """Break every connection to it, as a restarted server or a pooler would; where there is none, do nothing."""

    async def pretend_newer(self) -> None:
        """Make it look as if a later release had migrated it."""

    async def insert_first_release_row(self, name: str) -> int:
        """A due task with arguments [1], in the columns that the first release knew; its id."""

    async def forget_everything(self) -> None:
        """Drop every task and worker, as if the place were new. No store may be open."""


class SteppedClock:
    """Moves when told to, and by a microsecond whenever it is read: two decisions never share an instant."""

    def __init__(self) -> None:
        self._now = 0.0

    def now(self) -> float:
        self._now += 1e-6
        return self._now

    def wall(self) -> float:
        return WALL_START + self._now

    def step(self, seconds: float) -> None:
        self._now += seconds


class MemoryBackend:
    """There is one store object only: another would have other tasks."""

    name = "memory"
    url: str | None = None

    def __init__(self) -> None:
        self._clock = SteppedClock()
        self._store = MemoryStore(self._clock)

    def store(self) -> Store:
        return self._store

    def calm(self, store: Store) -> Store:
        return store

    async def pass_time(self, seconds: float) -> None:
        self._clock.step(seconds)

    async def cut_connections(self) -> None:
        pass

    async def pretend_newer(self) -> None:
        raise AssertionError("memory has no schema")

    async def insert_first_release_row(self, name: str) -> int:
        [answer] = await self._store.enqueue([NewTask(name=name, args="[1]")])
        return answer.id

    async def forget_everything(self) -> None:
        self._store = MemoryStore(self._clock)


class SqliteBackend:
    """One file. Its columns say by their names what they hold: `_at` and `at` are microseconds."""

    name = "sqlite"

    def __init__(self, path: Path) -> None:
        self._path = path
        self.url: str | None = f"sqlite:///{path}"

    def store(self) -> Store:
        return store_for(str(self.url))

    def calm(self, store: Store) -> Store:
        return store

    async def pass_time(self, seconds: float) -> None:
        with closing(sqlite3.connect(self._path, timeout=30, isolation_level=None)) as connection:
            connection.execute("begin immediate")
            for table, column in self._instants(connection):
                connection.execute(f"update {table} set {column} = {column} - {round(seconds * 1_000_000)}")  # noqa: S608 - from the catalog
            connection.execute("commit")

    async def cut_connections(self) -> None:
        pass

    async def pretend_newer(self) -> None:
        with closing(sqlite3.connect(self._path)) as connection, connection:
            connection.execute("insert into everpoll_migrations values ('9999_future', 0)")

    async def insert_first_release_row(self, name: str) -> int:
        with closing(sqlite3.connect(self._path)) as connection, connection:
            row = connection.execute(
                """insert into everpoll_tasks (due_at, created_at, rank, version, line, kind, queue, name, args)
                   values (1, 1, 0, 1, 0, 'job', 'default', ?, '[1]') returning id""",
                [name],
            ).fetchone()
        return int(row[0])

    async def forget_everything(self) -> None:
        with closing(sqlite3.connect(self._path, timeout=30)) as connection, connection:
            for table in self._tables(connection):
                connection.execute(f"delete from {table}")  # noqa: S608 - from the catalog

    def _instants(self, connection: sqlite3.Connection) -> list[tuple[str, str]]:
        return [
            (table, str(column))
            for table in self._tables(connection)
            for (_, column, *_) in connection.execute(f"pragma table_info({table})")
            if column == "at" or column.endswith("_at")
        ]

    def _tables(self, connection: sqlite3.Connection) -> list[str]:
        names = connection.execute("select name from sqlite_master where type = 'table' and name like 'everpoll%'")
        return [str(name) for (name,) in names if name != "everpoll_migrations"]


@functools.cache
def lasting_connection(url: str, process: int) -> psycopg.Connection[Any]:
    """The connection by which this process prepares a database: it lasts, for a new one would learn every table anew.

    With a connection for each test, preparing took 13 ms of CPU time; now it takes 1 ms. A test that holds a lock in
    its event loop fails, for nothing else would end the wait.
    """
    del process
    return psycopg.connect(url, autocommit=True, options="-c lock_timeout=30s")


class PostgresBackend:
    """One database, which the tests of a session use one after the other."""

    def __init__(self, name: str, url: str) -> None:
        self.name = name
        self.url: str | None = f"{url}?sslmode=disable"  # a connection costs half as much

    async def begin(self, *, migrated: bool) -> None:
        """Nobody is connected, and nothing is there, except for the schema where it is wanted."""
        self._execute(CUT)
        [(is_migrated,)] = self._execute("select to_regclass('everpoll.tasks') is not null")
        if is_migrated:
            self._execute(FORGET if migrated else "drop schema everpoll cascade")
        elif migrated:
            store = self.store()
            await store.open()
            await store.close()

    def _execute(self, sql: str) -> psycopg.Cursor[Any]:
        url = f"{str(self.url).partition('?')[0]}?sslmode=disable"  # a test may add options that are everpoll's
        connection = lasting_connection(url, os.getpid())
        if connection.closed:  # by a server that a test has stopped
            lasting_connection.cache_clear()
            connection = lasting_connection(url, os.getpid())
        return connection.execute(sql.encode())

    def store(self) -> Store:
        return store_for(str(self.url))

    def calm(self, store: Store) -> Store:
        """Looks behind marks follow measured time, and that of a busy machine is anything: let every look be full."""
        marks: Any = vars(store)["_marks"]
        marks.ranges = marks.full
        marks.sweep = lambda _: None
        return store

    async def pass_time(self, seconds: float) -> None:
        tables: dict[str, list[str]] = {}
        for table, column in self._execute(INSTANTS):
            tables.setdefault(table, []).append(f"{column} = {column} - interval '{seconds} seconds'")
        orders = (f"update everpoll.{table} set {', '.join(sets)}" for table, sets in tables.items())  # noqa: S608 - from the catalog
        self._execute(";".join(orders))

    async def cut_connections(self) -> None:
        self._execute(CUT)

    async def pretend_newer(self) -> None:
        self._execute("insert into everpoll.migrations (name) values ('9999_future')")

    async def insert_first_release_row(self, name: str) -> int:
        sql = f"insert into everpoll.tasks (kind, name, args) values ('job', '{name}', '[1]') returning id"  # noqa: S608 - a test's own name
        [(task_id,)] = self._execute(sql)
        return int(task_id)

    async def forget_everything(self) -> None:
        self._execute(FORGET)
