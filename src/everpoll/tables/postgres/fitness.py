"""Whether a table is as its mapping says: pure, and everything at once."""

from msgspec import Struct

from everpoll.tables.findings import INSTANTS, NUMBERS, READ_ONLY, TEXTS, unfit_text
from everpoll.tables.mapping import Table
from everpoll.tables.postgres import ddl
from everpoll.tables.postgres.shape import Column, Relation

INSTANT_TYPES = ("timestamptz", "timestamp")
INTEGER_TYPES = ("int2", "int4", "int8", "numeric")
WANTED = {
    **dict.fromkeys(TEXTS, "a text"),
    **dict.fromkeys(INSTANTS, "a timestamp"),
    **dict.fromkeys(NUMBERS, "a whole number"),
}
"""By the role of a column; a role that is not here may have any type."""
UNORDERED = ("json", "xml", "point")


class Flaw(Struct, frozen=True):
    """Something about one column that keeps the table from being used."""

    use: str
    column: str
    problem: str
    ddl: str | None = None


def flaws(table: Table, relation: Relation, refused: dict[str, str]) -> list[Flaw]:
    """All of them; `refused` are words that the status column cannot hold."""
    found = [flaw for use, name in table.used.items() if (flaw := _flaw(table, relation, use, name)) is not None]
    for word, why in refused.items():
        found.append(Flaw("status", table.status, f"cannot hold {word!r}: {why}"))
    return found


def _flaw(table: Table, relation: Relation, use: str, name: str) -> Flaw | None:
    column = relation.columns.get(name)
    if column is None:
        return Flaw(use, name, "is missing", ddl.add_column(table, relation, use, name))
    problem = _problem(table, use, column)
    return None if problem is None else Flaw(use, name, problem)


def _problem(table: Table, use: str, column: Column) -> str | None:
    wanted = WANTED.get(use)
    fits = {
        "a text": column.category == "S",
        "a timestamp": column.base in INSTANT_TYPES,
        "a whole number": column.base in INTEGER_TYPES,
    }
    if wanted is not None and not fits[wanted]:
        return f"is {column.declared}, and must be {wanted}"
    if use in READ_ONLY and column.base in UNORDERED:
        return f"is {column.declared}, which has no order"
    is_written = use not in READ_ONLY and (use in WANTED or use == "status" or column.name in table.results)
    return "is generated, and cannot be written" if is_written and column.is_generated else None


def described(table: Table, relation: Relation, found: list[Flaw]) -> str:
    """One message for all of them."""
    lacks = [_named(one) for one in found if one.ddl]
    wrong = [f"{_named(one)} {one.problem}" for one in found if not one.ddl]
    return unfit_text(table, "", lacks, list(relation.columns), wrong)


def _named(flaw: Flaw) -> str:
    return flaw.column if flaw.use.startswith("column ") else f"{flaw.column} (its {flaw.use})"
