"""Whether the queries of a worker that has nothing to do are served by indexes, as SQLite itself says (EXPLAIN).

An index serves if it leads to the rows that wait and to no others: by their status, or because it holds no others. One
that only spares the sorting is worse than none: it reads everything that has ended before it finds what waits.
"""

from collections import defaultdict
from collections.abc import Iterator

from everpoll.drivers.sqlite.connection import Connection
from everpoll.tables.contract import Finding
from everpoll.tables.mapping import Table
from everpoll.tables.sqlite.ddl import due_index, index
from everpoll.tables.sqlite.shape import Shape
from everpoll.tables.sqlite.statements import Statements

PARTIAL = "select name from pragma_index_list(?, 'main') where partial = 1"
# Rows of the same instant may be sorted: `FOR RIGHT PART OF ORDER BY`, or `LAST TERM`.
SORTS = "USE TEMP B-TREE FOR ORDER BY"


def explain(con: Connection, statement: str) -> list[str]:
    """The steps of SQLite's plan."""
    anything: defaultdict[str, int] = defaultdict(int)
    return [str(row[3]) for row in con.execute(f"explain query plan {statement}", anything)]


def indexes(con: Connection, table: Table, shape: Shape) -> Iterator[Finding]:
    """The index of the poll query, and the one for due times."""
    statements = Statements(table, shape)
    steps = explain(con, statements.pick)
    is_fit = _is_served(con, table, shape, steps)
    yield Finding(
        what="index",
        is_fit=is_fit,
        detail="; ".join(steps) if is_fit else f"every look reads or sorts too much: {'; '.join(steps)}",
        ddl=None if is_fit else index(table, shape),
    )
    if statements.next_due is not None:
        steps = explain(con, statements.next_due)
        is_fit = _is_served(con, table, shape, steps)
        yield Finding(
            what="index of due times",
            is_fit=is_fit,
            is_needed=False,
            detail="; ".join(steps) if is_fit else "every look reads all rows that wait for their time",
            ddl=None if is_fit else due_index(table),
        )


def _is_served(con: Connection, table: Table, shape: Shape, steps: list[str]) -> bool:
    column = shape.column(table.status)
    by_status = f"({column.name if column else table.status}=?"
    partial = [f" INDEX {name}" for (name,) in con.execute(PARTIAL, (table.parts[-1],))]
    is_led = any(by_status in step or step.split(" (")[0].endswith(tuple(partial)) for step in steps)
    return is_led and SORTS not in steps
