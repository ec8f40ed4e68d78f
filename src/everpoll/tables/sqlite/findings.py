"""What is right and wrong with a table, for people: every column, the index, the rest; and the DDL that would help.

Promises: reads, and changes nothing. Everything is found at once.
"""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

from everpoll.drivers.sqlite.address import Address
from everpoll.drivers.sqlite.connection import Connection, connect
from everpoll.drivers.sqlite.faults import explained
from everpoll.drivers.sqlite.journal import is_wal
from everpoll.errors import BadInput
from everpoll.tables.contract import Finding
from everpoll.tables.findings import INSTANTS, READ_ONLY, heartbeat_finding, unfit_text
from everpoll.tables.mapping import Table
from everpoll.tables.sqlite.ddl import NUMBERS, TEXTS, added, created, due_index, index, roles
from everpoll.tables.sqlite.instants import Kind, kind_of
from everpoll.tables.sqlite.plans import indexes
from everpoll.tables.sqlite.shape import Column, Shape, lowered, read_shape
from everpoll.tables.sqlite.words import words, words_in_use

MISSING = "is missing"


def examined(address: Address, table: Table, patience_s: float) -> tuple[Shape | None, list[Finding]]:
    """Look at the file; blocks, so call it in a thread."""
    if not address.path.exists():
        return None, [_absent(table, f"there is no file {address.path}")]
    try:
        con = connect(address, patience_s=patience_s)
        try:
            shape = read_shape(con, table.parts[-1])
            return shape, list(_findings(con, table, shape))
        finally:
            con.close()
    except (sqlite3.Error, OSError, ValueError) as error:
        if isinstance(error, sqlite3.Error):
            raise explained(error, address.path, opening=True) from error
        raise BadInput(f"{address.path} cannot be used: {error}") from error


def unfit(table: Table, path: Path, shape: Shape | None, findings: list[Finding]) -> str | None:
    """Everything that is needed and not there, in one message; None: it can be used."""
    flaws = [one for one in findings if one.keeps_from_use]
    if not flaws:
        return None
    uses = {name: role for role, name in reversed(roles(table)) if role not in {name, "column"}}
    lacks, wrong = [], []
    for one in flaws:
        name = one.what.removeprefix("column ")
        called = f"{name} ({uses[name]})" if name in uses else name
        if one.detail.startswith(MISSING):
            lacks.append(called)
        else:
            wrong.append(f"{called} {one.detail}" if one.what != "table" else one.detail)
    has = [] if shape is None else [one.name for one in shape.columns.values()]
    return unfit_text(table, f" in {path}", lacks, has, wrong)


def _findings(con: Connection, table: Table, shape: Shape | None) -> Iterator[Finding]:
    if shape is None:
        yield _absent(table, f"there is no such table in {con.path}")
        return
    if shape.type != "table":
        yield Finding(what="table", is_fit=False, detail=f"it is a {shape.type}, whose rows cannot be claimed")
        return
    columns = [_column(table, shape, role, name) for role, name in roles(table)]
    yield from columns
    if all(one.is_fit for one in columns):
        yield from indexes(con, table, shape)
        yield words(con, table, shape)
        yield words_in_use(con, table)
    yield heartbeat_finding(table)
    yield _journal(con)
    yield Finding(what="push", is_fit=True, detail="commits of any program are heard within 80 ms, by the file itself")


def _absent(table: Table, detail: str) -> Finding:
    return Finding(what="table", is_fit=False, detail=detail, ddl=created(table))


def _column(table: Table, shape: Shape, role: str, name: str) -> Finding:
    column = shape.column(name)
    what = f"column {name}"
    if column is None:
        detail = f"{MISSING}; a key cannot be added afterwards: name one" if role == "key" else MISSING
        return Finding(what=what, is_fit=False, detail=detail, ddl=added(table, shape, role, name))
    problem = _problem(table, shape, role, column)
    if problem is not None:
        return Finding(what=what, is_fit=False, detail=problem)
    return Finding(what=what, is_fit=True, detail=_described(role, column))


def _problem(table: Table, shape: Shape, role: str, column: Column) -> str | None:
    declared = column.declared.upper()
    wanted: str | None = None
    is_read_only = role in READ_ONLY or (role == "column" and column.name not in table.results)
    if column.is_generated and not is_read_only:
        return "is generated, and cannot be written"
    if role == "key" and lowered(column.name) not in shape.unique:
        return "does not identify a row: it must be the primary key, or have a unique index of its own"
    if role in INSTANTS and kind_of(declared) is None:
        wanted = "a timestamp: text (UTC), or real or integer (seconds since 1970)"
    elif role in NUMBERS and (kind_of(declared) is None or _is_text(declared)):
        wanted = "a whole number"
    elif role in TEXTS and shape.is_strict and not _is_text(declared) and declared != "ANY":
        wanted = "a text"
    return None if wanted is None else f"is {column.declared}, and must be {wanted}"


def _is_text(declared: str) -> bool:
    return "INT" not in declared and any(one in declared for one in ("CHAR", "CLOB", "TEXT"))


def _described(role: str, column: Column) -> str:
    declared = column.declared or "no type"
    if role not in INSTANTS:
        return declared
    kind = kind_of(column.declared)
    held = {Kind.TEXT: "text in UTC", Kind.REAL: "seconds since 1970", Kind.WHOLE: "whole seconds since 1970"}
    detail = f"{declared}: {held[kind]}" if kind else declared
    if role == "started_at" and kind is Kind.WHOLE:
        detail += "; two claims may share a second, so the worker's name gets a suffix of its own for each"
    return detail


def _journal(con: Connection) -> Finding:
    if is_wal(con):
        return Finding(what="journal mode", is_fit=True, detail="WAL: readers and a writer do not wait for each other")
    return Finding(
        what="journal mode",
        is_fit=False,
        is_needed=False,
        detail="not WAL: a worker switches the file to it when it starts, and says so",
    )


def ddl(table: Table, shape: Shape | None, findings: list[Finding]) -> list[str]:
    """Every statement that would help, in the order in which they can be run."""
    statements = [one.ddl for one in findings if one.ddl is not None]
    is_planned = any(one.what == "index" for one in findings)
    can_be_fit = all(one.is_fit or one.ddl for one in findings if one.is_needed)
    if can_be_fit and not is_planned:
        # There is no plan to be had while columns are missing; the indexes are offered all the same.
        statements.append(index(table, shape))
        statements += [] if table.due_at is None else [due_index(table)]
    return list(dict.fromkeys(statements))
