"""The table as it stands in the file: its columns, what they are declared as, and what identifies a row.

Reads the catalog only. Names are compared as SQLite does, without regard to case.
"""

from everpoll.drivers.sqlite.connection import Connection
from everpoll.tables.mapping import Table
from everpoll.tables.shape import INSTANT, NUMBER, TEXT, Column, Shape
from everpoll.tables.sqlite.instants import Kind, kind_of

TABLE = "select type, wr, strict from pragma_table_list where schema = 'main' and name = ? collate nocase"
COLUMNS = "select name, type, \"notnull\", pk, hidden from pragma_table_xinfo(?, 'main')"
UNIQUE = """select max(i.name) from pragma_index_list(?, 'main') l, pragma_index_info(l.name, 'main') i
    where l."unique" = 1 and l.partial = 0 group by l.name having count(*) = 1 and count(i.name) = 1"""
GENERATED = frozenset({2, 3})
NOT_UNIQUE = "does not identify a row: it must be the primary key, or have a unique index of its own"
HELD = {Kind.TEXT: "text in UTC", Kind.REAL: "seconds since 1970", Kind.WHOLE: "whole seconds since 1970"}


class FileShape(Shape[Column], frozen=True, kw_only=True):
    """One table of a file. `columns` have names in small letters."""

    kind: str
    """`table`, `view`, …"""
    is_strict: bool
    row_number: str | None
    """The column, in small letters, that every index ends with by itself; None where that is not a single column."""

    def column(self, name: str) -> Column | None:
        """Return the column with that name, in any case; None: the table has none."""
        return self.columns.get(lowered(name))


def lowered(name: str) -> str:
    """Lower a name as SQLite compares names: only A to Z."""
    return "".join(chr(ord(one) + 32) if "A" <= one <= "Z" else one for one in name)


def read_shape(con: Connection, table: Table) -> FileShape | None:
    """Read the columns of the table of that name in the file itself; None: there is none."""
    name = table.parts[-1]
    found = con.execute(TABLE, (name,)).fetchone()
    if found is None:
        return None
    kind, is_without_rowid, is_strict = found
    rows = con.execute(COLUMNS, (name,)).fetchall()
    primary = [(lowered(one), declared.upper()) for one, declared, _, pk, _ in rows if pk]
    alone, alone_as = primary[0] if len(primary) == 1 else (None, "")
    row_number = alone if is_without_rowid or alone_as == "INTEGER" else None
    columns = {
        lowered(one): Column(
            name=one,
            declared=declared,
            holds=_holds(declared.upper(), is_strict=bool(is_strict)),
            # SQLite lets NULL into a primary key of old, but not into one that numbers the rows.
            is_required=bool(required) or lowered(one) == row_number,
            is_generated=hidden in GENERATED,
        )
        for one, declared, required, _, hidden in rows
    }
    unique = {lowered(one) for (one,) in con.execute(UNIQUE, (name,))} | {alone}
    return FileShape(
        columns=columns,
        wanted={"status": TEXT, "priority": NUMBER},
        flaws={} if lowered(table.key) in unique else {"key": NOT_UNIQUE},
        notes=_notes(table, columns),
        kind=kind,
        is_strict=bool(is_strict),
        row_number=row_number,
    )


def _holds(declared: str, *, is_strict: bool) -> frozenset[str]:
    is_text = "INT" not in declared and any(one in declared for one in ("CHAR", "CLOB", "TEXT"))
    takes = {
        TEXT: is_text or not is_strict or declared == "ANY",
        INSTANT: kind_of(declared) is not None,
        NUMBER: kind_of(declared) is not None and not is_text,
    }
    return frozenset(what for what, is_so in takes.items() if is_so)


def _notes(table: Table, columns: dict[str, Column]) -> dict[str, str]:
    notes = {}
    for role in ("started_at", "finished_at", "heartbeat", "due_at", "updated_at"):
        column = columns.get(lowered(table.used.get(role, "")))
        if column is not None and (kind := kind_of(column.declared)) is not None:
            notes[role] = f": {HELD[kind]}"
            if role == "started_at" and kind is Kind.WHOLE:
                notes[role] += "; two claims may share a second, so the worker's name gets a suffix of its own for each"
    return notes
