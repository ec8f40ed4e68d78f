"""DDL for a table in an SQLite file: see `tables/ddl.py`."""

from everpoll.tables.ddl import READ, WRITTEN, Ddl
from everpoll.tables.mapping import Table
from everpoll.tables.sql_names import identifier
from everpoll.tables.sqlite.shape import FileShape, lowered
from everpoll.tables.sqlite.statements import word

TYPES = {
    "status": "text not null default {queued}",
    **dict.fromkeys(("worker", "error", "order_by"), "text"),
    **dict.fromkeys(("started_at", "finished_at", "heartbeat", "due_at", "updated_at"), "text"),
    **dict.fromkeys(("retries", "priority", "version"), "integer not null default 0"),
}
TYPES_OF_NEW_TABLE = {"key": "integer primary key", "order_by": "text not null default current_timestamp"}
"""A default must be a constant in a column that is added, and a key cannot be added at all."""


def ddl_of(table: Table, shape: FileShape | None) -> Ddl:
    """Build the DDL for the table as it was found. Columns that only the handler uses have no type of their own."""
    any_type = "any" if shape is not None and shape.is_strict else ""
    return Ddl(
        table=table,
        target=identifier(table.parts[-1]),
        types={**TYPES, READ: any_type, WRITTEN: any_type},
        types_of_new_table=TYPES_OF_NEW_TABLE,
        quoted_text=word,
        has_key_in_index=shape is not None and shape.row_number != lowered(table.key),
    )
