"""The table as it stands in the file: its columns, what they are declared as, and what identifies a row.

Reads the catalog only. Names are compared as SQLite does, without regard to case.
"""

from dataclasses import dataclass

from everpoll.drivers.sqlite.connection import Connection

TABLE = "select type, wr, strict from pragma_table_list where schema = 'main' and name = ? collate nocase"
COLUMNS = "select name, type, \"notnull\", pk, hidden from pragma_table_xinfo(?, 'main')"
UNIQUE = """select max(i.name) from pragma_index_list(?, 'main') l, pragma_index_info(l.name, 'main') i
    where l."unique" = 1 and l.partial = 0 group by l.name having count(*) = 1 and count(i.name) = 1"""
GENERATED = frozenset({2, 3})


@dataclass(frozen=True, slots=True)
class Column:
    """One column, as it was declared."""

    name: str
    declared: str
    is_required: bool
    """It does not take NULL."""
    is_generated: bool


@dataclass(frozen=True, slots=True)
class Shape:
    """One table."""

    type: str
    is_strict: bool
    columns: dict[str, Column]
    """By name, in small letters."""
    unique: frozenset[str]
    """The columns that identify a row each by itself, in small letters."""
    row_number: str | None
    """The column, in small letters, that every index ends with by itself; None where that is not a single column."""

    def column(self, name: str) -> Column | None:
        """Whatever the case."""
        return self.columns.get(lowered(name))


def lowered(name: str) -> str:
    """As SQLite compares names: only A to Z have small letters."""
    return "".join(chr(ord(one) + 32) if "A" <= one <= "Z" else one for one in name)


def read_shape(con: Connection, name: str) -> Shape | None:
    """The table of that name in the file itself; None: there is none."""
    found = con.execute(TABLE, (name,)).fetchone()
    if found is None:
        return None
    kind, is_without_rowid, is_strict = found
    rows = con.execute(COLUMNS, (name,)).fetchall()
    primary = [(lowered(one), declared.upper()) for one, declared, _, pk, _ in rows if pk]
    alone, alone_as = primary[0] if len(primary) == 1 else (None, "")
    row_number = alone if is_without_rowid or alone_as == "INTEGER" else None
    columns = {
        # SQLite lets NULL into a primary key of old, but not into one that numbers the rows.
        lowered(one): Column(one, declared, bool(required) or lowered(one) == row_number, hidden in GENERATED)
        for one, declared, required, _, hidden in rows
    }
    unique = {lowered(one) for (one,) in con.execute(UNIQUE, (name,))} | ({alone} if alone else set())
    return Shape(kind, bool(is_strict), columns, frozenset(unique), row_number)
