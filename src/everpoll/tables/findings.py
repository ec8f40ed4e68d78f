"""Findings that are the same whatever database a table is in."""

from everpoll.policy import human
from everpoll.tables.contract import Finding
from everpoll.tables.mapping import Table

INSTANTS = frozenset({"started_at", "finished_at", "heartbeat", "due_at", "updated_at"})
NUMBERS = frozenset({"retries", "version"})
TEXTS = frozenset({"worker", "error"})
"""What a column must hold, by its role; a role that is in none of these may have any type."""
READ_ONLY = frozenset({"key", "order_by", "priority"})
"""Roles of columns that everpoll never writes."""


def heartbeat_finding(table: Table) -> Finding:
    """Whether rows of a killed worker come back. Without DDL: a column that the mapping does not name is of no use."""
    if table.heartbeat is None:
        detail = f"no column is mapped: rows of a killed worker stay {table.running!r} until you reset them"
        return Finding(what="heartbeat", is_fit=False, is_needed=False, detail=f"{detail}; name one with heartbeat=…")
    detail = f"every {human(table.heartbeat_every_s)}; handed back after {human(table.stale_after_s)} without"
    return Finding(what="heartbeat", is_fit=True, detail=detail)


def unfit_text(table: Table, where: str, lacks: list[str], has: list[str], wrong: list[str]) -> str:
    """One message for everything that keeps a table from being used. `where`: " in shop.db", or empty."""
    listed = f"; it has {', '.join(has)}" if has else ""
    parts = [f"it lacks {', '.join(lacks)}{listed}"] if lacks else []
    return (
        f"table {table.name!r}{where} cannot be used as it is mapped: {'; '.join([*parts, *wrong])}. "
        "Say which column is which in Table(…), or add what is missing: `everpoll tables ddl` prints the statements"
    )
