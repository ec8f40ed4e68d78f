"""DDL for people: what gives a table the columns and the indexes that its mapping names.

Pure; the caller decides what is missing. A default must be a constant in a column that is added.
"""

from everpoll.tables import findings
from everpoll.tables.findings import INSTANTS
from everpoll.tables.mapping import Table
from everpoll.tables.sql_names import identifier
from everpoll.tables.sqlite.shape import Shape, lowered
from everpoll.tables.sqlite.statements import word

NUMBERS = findings.NUMBERS | {"priority"}
TEXTS = findings.TEXTS | {"status"}
NUMBER = "integer not null default 0"


def roles(table: Table) -> list[tuple[str, str]]:
    """Every column that is used, each with its role; `column` for what only the handler reads or writes."""
    guarded = {"version": "version", "timestamp": "updated_at"}.get(table.guard)
    known = {"key", "order_by", "priority", *INSTANTS, *TEXTS, "retries"} - {"updated_at"} | {guarded}
    return [
        (role if role in known and getattr(table, role) is not None else "column", name)
        for role, name in table.used.items()
    ]


def index(table: Table, shape: Shape | None) -> str:
    """The index of the poll query. Where the key is not at the end of every index by itself, it is added."""
    key_is_there = shape is None or shape.row_number == lowered(table.key)
    columns = [
        identifier(table.status),
        *([] if table.priority is None else [f"{identifier(table.priority)} desc"]),
        identifier(table.order_by),
        *([] if key_is_there else [identifier(table.key)]),
    ]
    name = identifier(f"{table.parts[-1]}_queue")
    return f"create index if not exists {name} on {identifier(table.parts[-1])} ({', '.join(dict.fromkeys(columns))})"


def due_index(table: Table) -> str:
    """The index for what waits for its time."""
    assert table.due_at is not None
    name = identifier(f"{table.parts[-1]}_due")
    columns = f"{identifier(table.status)}, {identifier(table.due_at)}"
    return f"create index if not exists {name} on {identifier(table.parts[-1])} ({columns})"


def _type(table: Table, shape: Shape | None, role: str) -> str:
    if role in NUMBERS:
        return NUMBER
    if role == "status":
        return f"text not null default {word(table.queued)}"
    if role in INSTANTS | TEXTS | {"order_by"}:
        return "text"
    # What the handler reads and writes is kept as it comes.
    return "any" if shape is not None and shape.is_strict else ""


def added(table: Table, shape: Shape, role: str, name: str) -> str | None:
    """One more column; None for a key, which cannot be added afterwards."""
    if role == "key":
        return None
    return (
        f"alter table {identifier(table.parts[-1])} add column {identifier(name)} {_type(table, shape, role)}".strip()
    )


def created(table: Table) -> str:
    """The whole table."""
    columns: list[str] = []
    for role, name in roles(table):
        declared = _type(table, None, role)
        if role == "key":
            declared = "integer primary key"
        elif role == "order_by":
            declared = "text not null default current_timestamp"
        columns.append(f"{identifier(name)} {declared}".strip())
    return f"create table {identifier(table.parts[-1])} ({', '.join(dict.fromkeys(columns))})"
