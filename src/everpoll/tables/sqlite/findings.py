"""Findings that only an SQLite file has: plans of queries, constraints, the journal. See `tables/findings.py`.

Promises: it reads, and changes nothing. It reports everything at once.
"""

# ruff: noqa: S608 - names are quoted

import sqlite3
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing

from everpoll.drivers.sqlite.address import SqliteAddress
from everpoll.drivers.sqlite.connection import Connection
from everpoll.drivers.sqlite.journal import is_wal
from everpoll.drivers.sqlite.own_connection import brief_connection
from everpoll.errors import BadInput
from everpoll.tables import findings
from everpoll.tables.contract import Finding
from everpoll.tables.findings import SAMPLE
from everpoll.tables.mapping import Table
from everpoll.tables.sqlite.ddl import ddl_of
from everpoll.tables.sqlite.settling import read_rows
from everpoll.tables.sqlite.shape import FileShape, lowered, read_shape
from everpoll.tables.sqlite.statements import Statements, named

DEFINITION = "select sql from sqlite_master where type = 'table' and name = ? collate nocase"
PARTIAL = "select name from pragma_index_list(?, 'main') where partial = 1"
# Rows of the same instant may be sorted: `FOR RIGHT PART OF ORDER BY`, or `LAST TERM`.
SORTS = "USE TEMP B-TREE FOR ORDER BY"


def examined(address: SqliteAddress, table: Table, patience_s: float) -> tuple[FileShape | None, list[Finding]]:
    """Look at the file; blocks, so call it in a thread."""
    if not address.path.exists():
        return None, [findings.absent(f"there is no file {address.path}", ddl_of(table, None))]
    try:
        with brief_connection(address, patience_s) as con:
            shape = read_shape(con, table)
            return shape, list(_findings(con, table, shape))
    except (OSError, ValueError) as error:
        raise BadInput(f"{address.path} cannot be used: {error}") from error


def _findings(con: Connection, table: Table, shape: FileShape | None) -> Iterator[Finding]:
    if shape is None:
        yield findings.absent(f"there is no such table in {con.path}", ddl_of(table, None))
        return
    if shape.kind != "table":
        yield findings.no_table(shape.kind)
        return
    columns = findings.columns(table, shape, ddl_of(table, shape).add_column)
    yield from columns
    if all(one.is_fit for one in columns):
        statements = Statements(table, shape)
        yield from _indexes(con, statements, shape)
        yield _allowed_words(con, table, shape)
        has_waiting = con.execute(
            f"select exists (select 1 from {statements.name} where {statements.has_status(table.queued)})"
        )
        seen = seen_words(con, statements)
        yield findings.words_in_use(table, seen, has_waiting=bool(has_waiting.fetchone()[0]))
    yield _journal(con)
    yield Finding(what="push", is_fit=True, detail="commits of any program are heard within 80 ms, by the file itself")


def _journal(con: Connection) -> Finding:
    return findings.judged(
        "journal mode",
        is_fit=is_wal(con),
        good="WAL: readers and a writer do not wait for each other",
        bad="not WAL: a worker switches the file to it when it starts, and says so",
    )


def explain(con: Connection, statement: str) -> list[str]:
    """Return the steps of SQLite's plan."""
    anything: defaultdict[str, int] = defaultdict(int)
    return [str(row[3]) for row in con.execute(f"explain query plan {statement}", anything)]


def _indexes(con: Connection, statements: Statements, shape: FileShape) -> Iterator[Finding]:
    """Judge the index of the poll query and that for due times, by SQLite's own plan (EXPLAIN)."""
    ddl = ddl_of(statements.table, shape)
    steps, is_fit = _served(con, statements, shape, statements.poll(1)[0])
    bad = f"every look reads or sorts too much: {steps}"
    yield findings.judged("index", is_fit=is_fit, good=steps, bad=bad, ddl=ddl.index(), is_needed=True)
    if statements.next_due is not None:
        steps, is_fit = _served(con, statements, shape, statements.next_due)
        yield findings.due_index(is_fit, ddl, steps)


def _served(con: Connection, statements: Statements, shape: FileShape, query: str) -> tuple[str, bool]:
    """Return the plan, and whether an index leads to waiting rows only, by their status or by a condition.

    An index that merely avoids the sorting is worse than none: SQLite would read all ended rows before the waiting
    ones.
    """
    steps, table = explain(con, query), statements.table
    column = shape.column(table.status)
    by_status = f"({column.name if column else table.status}=?"
    partial = tuple(f" INDEX {name}" for (name,) in con.execute(PARTIAL, (table.parts[-1],)))
    is_led = any(by_status in step or step.split(" (")[0].endswith(partial) for step in steps)
    return "; ".join(steps), is_led and SORTS not in steps


def seen_words(con: Connection, statements: Statements) -> set[str]:
    """Return the statuses of a sample of the table's rows."""
    status = statements.at("status")
    sql = f"select distinct {status} from (select {status} from {statements.name} limit {SAMPLE})"
    return {str(one) for (one,) in read_rows(con, (sql, {})) if one is not None}


def _allowed_words(con: Connection, table: Table, shape: FileShape) -> Finding:
    """Judge whether the table's own constraints allow every word that everpoll writes into the status.

    A row whose end cannot be written runs again and again. SQLite shows constraints only as the text of the table, so
    this makes an empty copy in memory and tries each word. The result is a warning, never an error: a constraint may
    also look at other columns, which are filled in a real row.
    """
    (definition,) = con.execute(DEFINITION, (table.parts[-1],)).fetchone()
    try:
        refused = _refused(str(definition), table, shape)
    except sqlite3.Error:
        refused = {}  # the copy cannot be made here: a function or a collation of the user's own
    bad = "; ".join(f"{one!r} is refused: {why}" for one, why in refused.items())
    return findings.judged("status words", is_fit=not refused, good="no constraint is against them", bad=bad)


def _refused(definition: str, table: Table, shape: FileShape) -> dict[str, str]:
    required = [one.name for one in shape.columns.values() if one.is_required and not one.is_generated]
    columns = list(dict.fromkeys([table.status, *(one for one in required if lowered(one) != lowered(table.status))]))
    names, places = ", ".join(map(named, columns)), ", ".join("?" * len(columns))
    insert = f"insert into {named(table.parts[-1])} ({names}) values ({places})"
    refused: dict[str, str] = {}
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as copy:
        copy.execute(definition)
        for word in table.words:
            copy.execute("begin")
            try:
                copy.execute(insert, [word, *[1] * (len(columns) - 1)])
            except sqlite3.IntegrityError as error:
                refused[word] = str(error)
            copy.execute("rollback")
    # Rows wait in this table: if even the word for waiting is refused, the copy lacks what a real row has.
    return {} if table.queued in refused else refused
