"""Whether the table's own constraints allow the words that everpoll writes into its status.

A row whose end cannot be written runs again and again. SQLite tells nothing about constraints but the text of the
table, so an empty copy of it is made in memory and asked. What cannot be found out that way is not held against it:
a constraint may look at other columns, too, which a real row has filled in; hence the answer is a warning.
"""

import sqlite3
from contextlib import closing

from everpoll.drivers.sqlite.connection import Connection
from everpoll.tables.contract import Finding
from everpoll.tables.mapping import Table
from everpoll.tables.sqlite.shape import Shape
from everpoll.tables.sqlite.statements import named
from everpoll.tables.unmapped_statuses import SAMPLE, words_finding

DEFINITION = "select sql from sqlite_master where type = 'table' and name = ? collate nocase"


def words(con: Connection, table: Table, shape: Shape) -> Finding:
    """What the constraints say to each of them."""
    (definition,) = con.execute(DEFINITION, (table.parts[-1],)).fetchone()
    try:
        refused = _refused(str(definition), table, shape)
    except sqlite3.Error:
        refused = {}  # the copy cannot be made here: a function or a collation of the user's own
    detail = "; ".join(f"{one!r} is refused: {why}" for one, why in refused.items())
    return Finding(
        what="status words", is_fit=not refused, is_needed=False, detail=detail or "no constraint is against them"
    )


def seen_words(con: Connection, table: Table) -> set[str]:
    """Those of a sample of its rows."""
    status, where = named(table.status), f"main.{named(table.parts[-1])}"
    sql = f"select distinct {status} from (select {status} from {where} limit {SAMPLE})"  # noqa: S608 - names are quoted
    return {str(one) for (one,) in con.execute(sql) if one is not None}


def words_in_use(con: Connection, table: Table) -> Finding:
    """Whether the table's rows speak the mapping's language."""
    where = f"main.{named(table.parts[-1])} where {named(table.status)} = ?"
    sql = f"select exists (select 1 from {where})"  # noqa: S608 - names are quoted
    (has_waiting,) = con.execute(sql, (table.queued,)).fetchone()
    return words_finding(table, seen_words(con, table), has_waiting=bool(has_waiting))


def _refused(definition: str, table: Table, shape: Shape) -> dict[str, str]:
    required = [one.name for one in shape.columns.values() if one.is_required and not one.is_generated]
    columns = list(dict.fromkeys([table.status, *(one for one in required if one.lower() != table.status.lower())]))
    names, places = ", ".join(map(named, columns)), ", ".join("?" * len(columns))
    insert = f"insert into {named(table.parts[-1])} ({names}) values ({places})"  # noqa: S608 - names are quoted
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
    # Rows do wait there: where even that word is refused, the reason is another one.
    return {} if table.queued in refused else refused
