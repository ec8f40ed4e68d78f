"""DDL for people: what gives a table the columns and the indexes that its mapping names.

Pure; whoever prints it decides what is missing. A default must be a constant in a column that is added.
"""

from everpoll.tables.mapping import Table
from everpoll.tables.sqlite.shape import Shape, lowered
from everpoll.tables.sqlite.statements import word

INSTANTS = frozenset({"started_at", "finished_at", "heartbeat", "due_at", "updated_at"})
NUMBERS = frozenset({"retries", "priority", "version"})
TEXTS = frozenset({"status", "worker", "error"})
NUMBER = "integer not null default 0"


def roles(table: Table) -> list[tuple[str, str]]:
    """Every column that is used, each with its role; `column` for what only the handler reads or writes."""
    guarded = {"version": "version", "timestamp": "updated_at"}.get(table.guard)
    known = {"key", "order_by", "priority", *INSTANTS, *TEXTS, "retries"} - {"updated_at"} | {guarded}
    return [
        (role if role in known and getattr(table, role) is not None else "column", name)
        for role, name in table.used.items()
    ]


def quoted(name: str) -> str:
    """A name in the standard's quotes, for people."""
    return '"' + name.replace('"', '""') + '"'


def index(table: Table, shape: Shape | None) -> str:
    """The index of the poll query. Where the key is not at the end of every index by itself, it is added."""
    key_is_there = shape is None or shape.row_number == lowered(table.key)
    columns = [
        quoted(table.status),
        *([] if table.priority is None else [f"{quoted(table.priority)} desc"]),
        quoted(table.order_by),
        *([] if key_is_there else [quoted(table.key)]),
    ]
    name = quoted(f"{table.parts[-1]}_queue")
    return f"create index if not exists {name} on {quoted(table.parts[-1])} ({', '.join(dict.fromkeys(columns))})"


def due_index(table: Table) -> str:
    """The index for what waits for its time."""
    assert table.due_at is not None
    name = quoted(f"{table.parts[-1]}_due")
    columns = f"{quoted(table.status)}, {quoted(table.due_at)}"
    return f"create index if not exists {name} on {quoted(table.parts[-1])} ({columns})"


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
    return f"alter table {quoted(table.parts[-1])} add column {quoted(name)} {_type(table, shape, role)}".strip()


def created(table: Table) -> str:
    """The whole table."""
    columns: list[str] = []
    for role, name in roles(table):
        declared = _type(table, None, role)
        if role == "key":
            declared = "integer primary key"
        elif role == "order_by":
            declared = "text not null default current_timestamp"
        columns.append(f"{quoted(name)} {declared}".strip())
    return f"create table {quoted(table.parts[-1])} ({', '.join(dict.fromkeys(columns))})"
