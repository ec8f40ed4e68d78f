"""What would give a table what its mapping names: columns, indexes, the trigger for push. For people to read and run.

The index holds the rows that wait or run and no others: `(status, order) where status in (queued, running)`. One index
serves the poll and the search for stale rows. A row that has ended is in it no more: a table with a million of those
has an index as small as its queue, and ending a row writes no entry. The key comes last, so that equal times (rows
inserted by one statement) need no sort.
"""

import hashlib

from everpoll.tables.mapping import NAME_LIMIT, Table
from everpoll.tables.postgres.shape import Relation
from everpoll.tables.postgres_columns import all_declared, declared
from everpoll.tables.sql_names import identifier, literal

TRIGGER = FUNCTION = "everpoll_wake"


def target(table: Table, relation: Relation | None) -> str:
    """The table's name in DDL: as it was found, or as it was said."""
    return relation.sql if relation is not None else ".".join(map(identifier, table.parts))


def add_column(table: Table, relation: Relation | None, use: str, name: str) -> str:
    """One that is missing."""
    return f"alter table {target(table, relation)} add column {declared(table, use, name)}"


def create_table(table: Table) -> str:
    """All of it."""
    return f"create table {target(table, None)} (\n    {all_declared(table)}\n)"


def ordering(table: Table, relation: Relation | None) -> list[tuple[str, str]]:
    """What the poll orders by, and which way: higher priority, then older, then by key."""
    ways = dict.fromkeys((table.order_by, table.key), "")
    if table.priority is None:
        return list(ways.items())
    found = None if relation is None else relation.columns.get(table.priority)
    # Postgres puts what is empty first when it counts down. A column that is never empty needs no such word, and an
    # index that was made without it serves.
    way = " desc nulls last" if found is not None and found.is_nullable else " desc"
    return list({table.priority: way, **ways}.items())


def create_index(table: Table, relation: Relation | None) -> str:
    """The index of the poll query."""
    columns = [identifier(table.status), *(identifier(name) + way for name, way in ordering(table, relation))]
    name, on = identifier(index_name(table, "queue")), target(table, relation)
    words = ", ".join(map(literal, (table.queued, table.running)))
    return (
        f"create index if not exists {name} on {on} ({', '.join(columns)})\n"
        f"    where {identifier(table.status)} in ({words})"
    )


def create_due_index(table: Table, relation: Relation | None) -> str:
    """For the next due time, which an idle worker asks for.

    Only rows that have one: it must be of no use to the poll, whose rows it does not have in order. While statistics
    know nothing of a queue that has just been filled, the planner would take the smaller index and sort.
    """
    assert table.due_at is not None, "asked for where there is one"
    name, due_at, status = identifier(index_name(table, "due")), identifier(table.due_at), identifier(table.status)
    return (
        f"create index if not exists {name} on {target(table, relation)} ({due_at})\n"
        f"    where {status} = {literal(table.queued)} and {due_at} is not null"
    )


def create_trigger(table: Table, relation: Relation | None) -> list[str]:
    """Rows that begin to wait wake the workers; those of one transaction together, once."""
    schema = relation.schema if relation is not None else table.parts[0] if len(table.parts) > 1 else None
    name = f"{identifier(schema)}.{FUNCTION}" if schema else FUNCTION
    events = ", ".join(identifier(name) for name in (table.status, table.due_at) if name is not None)
    function = f"""create or replace function {name}() returns trigger language plpgsql as $$
begin
    perform pg_notify(tg_argv[0], '');
    return null;
end $$"""
    trigger = f"""create or replace trigger {TRIGGER} after insert or update of {events} on {target(table, relation)}
    for each row when (new.{identifier(table.status)} = {literal(table.queued)})
    execute function {name}({literal(channel(table, relation))})"""
    return [function, trigger]


def channel(table: Table, relation: Relation | None) -> str:
    """Where the trigger tells; workers read it from the trigger."""
    parts = (relation.schema, relation.name) if relation is not None else table.parts
    return _fitted("everpoll_table_" + ".".join(parts))


def index_name(table: Table, what: str) -> str:
    """Of an index of ours."""
    return _fitted(f"{table.parts[-1]}_everpoll_{what}")


def _fitted(name: str) -> str:
    """Within what Postgres keeps of a name; the whole of it still counts."""
    if len(name.encode()) <= NAME_LIMIT:
        return name
    tail = "_" + hashlib.sha256(name.encode()).hexdigest()[:16]
    return name.encode()[: NAME_LIMIT - len(tail)].decode(errors="ignore") + tail
