"""The schema: numbered migrations, applied in order, each exactly once, also by several processes at the same time.

Promises: `everpoll_migrations` has the names of the applied migrations. `user_version` and `application_id` are not
used, because the file may be the user's own database. All missing migrations are applied in one transaction. A database
that a newer release has changed is refused.
"""

import sqlite3
import time
from collections.abc import Iterator
from importlib.resources import files

from everpoll.drivers.no_tables import no_tables_in
from everpoll.drivers.sqlite.address import SqliteAddress
from everpoll.drivers.sqlite.connection import Connection, connect
from everpoll.drivers.sqlite.faults import explained
from everpoll.drivers.sqlite.journal import use_wal
from everpoll.errors import BadInput, SchemaOutdated

REGISTER = """create table if not exists everpoll_migrations (
    name text primary key, applied_at integer not null) strict"""


def migrations() -> dict[str, str]:
    """Return every migration of this release, by name, in order."""
    folder = files(__package__) / "migrations"
    scripts = sorted((one for one in folder.iterdir() if one.name.endswith(".sql")), key=lambda one: one.name)
    return {one.name.removesuffix(".sql"): one.read_text(encoding="utf-8") for one in scripts}


def prepare(address: SqliteAddress, patience_s: float, *, migrate: bool) -> list[str]:
    """Make the file usable; return the names of the migrations applied. Blocks, so call it in a thread."""
    if not migrate and not address.path.exists():
        raise no_tables_in(f"{address.path.absolute()}, which does not exist", "the folder that you are in")
    try:
        con = connect(address, patience_s=patience_s, create=migrate)
        try:
            return _prepared(con, patience_s, migrate=migrate)
        finally:
            con.close()
    except (sqlite3.Error, OSError, ValueError) as error:
        if isinstance(error, sqlite3.Error):
            raise explained(error, address.path, opening=True) from error
        raise BadInput(f"{address.path} cannot be used: {error}") from error


def check(con: Connection) -> None:
    """Raise `SchemaOutdated` unless the schema is exactly the one of this release."""
    missing = _missing(con)
    if missing and not _applied(con):
        raise no_tables_in(str(con.path.absolute()), "the file")
    if missing:
        raise SchemaOutdated(f"{con.path} has an older schema: {', '.join(missing)} is missing; run `everpoll migrate`")


def _prepared(con: Connection, patience_s: float, *, migrate: bool) -> list[str]:
    use_wal(con, patience_s)
    if not migrate:
        check(con)
        return []
    if not _missing(con):
        return []
    con.begin(patience_s)
    try:
        missing = _missing(con)  # again: others may have done it while this one waited
        _apply(con, missing)
        con.execute("commit")
    except BaseException:
        con.undo()
        raise
    return missing


def _apply(con: Connection, missing: list[str]) -> None:
    con.execute(REGISTER)
    scripts = migrations()
    for name in missing:
        for statement in _statements(scripts[name]):
            con.execute(statement)  # not executescript(), which commits first
        con.execute("insert into everpoll_migrations values (?, ?)", (name, time.time_ns() // 1_000))


def _missing(con: Connection) -> list[str]:
    known = migrations()
    applied = _applied(con)
    unknown = sorted(applied - known.keys())
    if unknown:
        raise SchemaOutdated(
            f"{con.path} was migrated by another everpoll ({', '.join(unknown)} is unknown to this one): if that one "
            "is newer, upgrade everpoll; if it is older, it was never released: begin with a new database"
        )
    return [name for name in known if name not in applied]


def _applied(con: Connection) -> set[str]:
    if con.execute("select 1 from sqlite_master where name = 'everpoll_migrations'").fetchone() is None:
        return set()
    return {name for (name,) in con.execute("select name from everpoll_migrations")}


def _statements(script: str) -> Iterator[str]:
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
