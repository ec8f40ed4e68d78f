"""Judgements of a table by its shape: every column, the words in use, the heartbeat.

Pure. The `findings` module of each database judges what only that database shows: query plans, triggers, rights.
"""

from collections.abc import Callable, Collection, Sequence

from everpoll.errors import TableUnfit
from everpoll.policy import human
from everpoll.tables.contract import Finding
from everpoll.tables.ddl import Ddl
from everpoll.tables.mapping import Table
from everpoll.tables.shape import INSTANT, NUMBER, TEXT, Column, Shape

WANTED = {
    **dict.fromkeys(("worker", "error"), TEXT),
    **dict.fromkeys(("started_at", "finished_at", "heartbeat", "due_at", "updated_at"), INSTANT),
    **dict.fromkeys(("retries", "version"), NUMBER),
}
"""What a column must hold, by its role; a role that is not here may have any type."""
READ_ONLY = frozenset({"key", "order_by", "priority"})
"""Roles of columns that everpoll never writes."""
SAMPLE = 1_000
"""Rows whose status is looked at; any of them."""
SHOWN = 8
MISSING = "is missing"


def is_written(table: Table, role: str) -> bool:
    """Tell whether everpoll writes into the column with this role."""
    if role.startswith("column "):
        return table.used[role] in table.results
    return role not in READ_ONLY


def columns(table: Table, shape: Shape[Column], added: Callable[[str, str], str | None]) -> list[Finding]:
    """Judge every column that is mapped. `added`: returns the DDL for a column, by its role and its name."""
    found = []
    for role, name in table.used.items():
        column = shape.column(name)
        if column is None:
            found.append(Finding(what=f"column {name}", is_fit=False, detail=MISSING, ddl=added(role, name)))
            continue
        problem = _problem(table, shape, role, column)
        use = "for the handler" if role.startswith("column ") else role
        detail = problem or f"{use}: {column.declared or 'no type'}{shape.notes.get(role, '')}"
        found.append(Finding(what=f"column {name}", is_fit=problem is None, detail=detail))
    return found


def _problem(table: Table, shape: Shape[Column], role: str, column: Column) -> str | None:
    wanted = {**WANTED, **shape.wanted}.get(role)
    if wanted is not None and column.holds is not None and wanted not in column.holds:
        return f"is {column.declared}, and must be {wanted}"
    if column.is_generated and is_written(table, role):
        return "is generated, and cannot be written"
    return shape.flaws.get(role)


def absent(detail: str, ddl: Ddl) -> Finding:
    """Say that there is no such table. `detail`: where it was looked for."""
    return Finding(what="table", is_fit=False, detail=detail, ddl=ddl.create_table())


def no_table(kind: str) -> Finding:
    """Say that something else has that name: a view, for instance."""
    return Finding(what="table", is_fit=False, detail=f"it is a {kind}, whose rows cannot be claimed")


def unfit(
    table: Table, shape: Shape[Column] | None, found: Sequence[Finding], ddl: list[str], place: str
) -> TableUnfit | None:
    """Return one error for everything that keeps a table from being used. `place`: " in shop.db"."""
    flaws = [one for one in found if one.keeps_from_use]
    if not flaws:
        return None
    if (whole := next((one for one in flaws if one.what == "table"), None)) is not None:
        hint = "; `everpoll tables ddl` prints the statement that creates it" if shape is None else ""
        return TableUnfit(f"table {table.name!r}: {whole.detail}{hint}", ddl)
    assert shape is not None, "what is not there has a finding of its own"
    roles = {name: role for role, name in reversed(table.used.items()) if role not in {name, f"column {name}"}}
    lacks, wrong = [], []
    for one in flaws:
        name = one.what.removeprefix("column ")
        called = f"{name} ({roles[name]})" if name in roles else name
        if one.detail == MISSING:
            lacks.append(called)
        else:
            wrong.append(f"{called} {one.detail}" if one.what != name else f"{name}: {one.detail}")
    has = f"; it has {', '.join(one.name for one in shape.columns.values())}" if shape.columns else ""
    parts = [f"it lacks {', '.join(lacks)}{has}"] if lacks else []
    return TableUnfit(
        f"table {table.name!r}{place} cannot be used as it is mapped: {'; '.join([*parts, *wrong])}. "
        "Say which column is which in Table(…), or add what is missing: `everpoll tables ddl` prints the statements",
        ddl,
    )


def judged(what: str, *, is_fit: bool, good: str, bad: str, ddl: str | None = None, is_needed: bool = False) -> Finding:
    """Make a finding with the one detail or the other, and with DDL only where it would help."""
    detail = good if is_fit else bad
    return Finding(what=what, is_fit=is_fit, is_needed=is_needed, detail=detail, ddl=None if is_fit else ddl)


def heartbeat(table: Table) -> Finding:
    """Tell whether rows of a killed worker come back. No DDL: a column that is not mapped would be of no use."""
    return judged(
        "heartbeat",
        is_fit=table.heartbeat is not None,
        good=f"every {human(table.heartbeat_every_s)}; handed back after {human(table.stale_after_s)} without",
        bad=f"no column is mapped: rows of a killed worker stay {table.running!r} until you reset them; "
        "name one with heartbeat=…",
    )


def due_index(is_fit: bool, ddl: Ddl, found_by: str = "found by an index") -> Finding:
    """Tell whether an index leads to the next due time, which an idle worker asks for."""
    bad = "an idle worker reads all rows that wait to find the next due time"
    return judged("index of due times", is_fit=is_fit, good=found_by, bad=bad, ddl=ddl.due_index())


def words_in_use(table: Table, seen: Collection[str], *, has_waiting: bool) -> Finding:
    """Tell whether the rows use the statuses of the mapping: the likeliest mistake, and one that nothing else shows.

    A worker whose word for `queued` occurs nowhere in the table finds nothing, for ever, and looks healthy.
    `seen`: the statuses of a sample; `has_waiting`: whether some row has the one for waiting.
    """
    known = ", ".join(map(repr, table.words))
    unknown = sorted(set(seen) - set(table.words))
    shown = ", ".join(map(repr, unknown[:SHOWN]))
    return judged(
        "words in use",
        is_fit=not unknown or has_waiting,
        good=f"{known}; workers leave alone: {shown}" if unknown else f"{known}, or none yet",
        bad=f"no row has {table.queued!r} (queued), and some have {shown}, which the mapping does not know: write "
        "queued=… if that is one that waits",
    )


def is_foreign(table: Table, seen: Collection[str]) -> bool:
    """Tell whether there are rows, and none has any status of the mapping: reason for a warning at the start."""
    return bool(seen) and not set(seen) & set(table.words)
