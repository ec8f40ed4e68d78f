"""DDL for a table in Postgres: see `tables/ddl.py`; and the trigger for push."""

from everpoll.tables.ddl import POSTGRES_TYPES, Ddl, fitted
from everpoll.tables.mapping import Table
from everpoll.tables.postgres.shape import Relation
from everpoll.tables.sql_names import identifier, literal

TRIGGER = FUNCTION = "everpoll_wake"


def ddl_of(table: Table, relation: Relation | None) -> Ddl:
    """Build the DDL for the table as it was found, or, if there is none, as it is mapped."""
    return Ddl(
        table=table,
        target=_target(table, relation),
        types=POSTGRES_TYPES,
        index_prefix="everpoll_",
        priority_order=priority_order(table, relation),
        is_partial=True,
        extras={"push": create_trigger(table, relation)},
    )


def priority_order(table: Table, relation: Relation | None) -> str:
    """Return how an index and a query order by priority.

    Postgres sorts NULL first in descending order. A column without NULL needs no `nulls last`, and an index that was
    created without it serves.
    """
    column = None if relation is None or table.priority is None else relation.column(table.priority)
    return " desc" if column is None or column.is_required else " desc nulls last"


def create_trigger(table: Table, relation: Relation | None) -> list[str]:
    """Return the trigger that wakes workers when rows begin to wait: one notification per transaction."""
    parts = (relation.schema, relation.name) if relation is not None else table.parts
    name = ".".join([*map(identifier, parts[:-1]), FUNCTION])
    events = ", ".join(identifier(name) for name in (table.status, table.due_at) if name is not None)
    function = f"""create or replace function {name}() returns trigger language plpgsql as $$
begin
    perform pg_notify(tg_argv[0], '');
    return null;
end $$"""
    on = _target(table, relation)
    trigger = f"""create or replace trigger {TRIGGER} after insert or update of {events} on {on}
    for each row when (new.{identifier(table.status)} = {literal(table.queued)})
    execute function {name}({literal(channel(table, relation))})"""
    return [function, trigger]


def channel(table: Table, relation: Relation | None) -> str:
    """Return the channel that the trigger notifies. Workers read its name from the trigger."""
    parts = (relation.schema, relation.name) if relation is not None else table.parts
    return fitted("everpoll_table_" + ".".join(parts))


def _target(table: Table, relation: Relation | None) -> str:
    return relation.sql if relation is not None else ".".join(map(identifier, table.parts))
