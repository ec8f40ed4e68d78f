"""A table as its database describes it, in terms that every database has: the ground for findings and statements.

Each database reads its own catalog and fills this in; whatever else it needs stands in a subclass beside the reader.
"""

from collections.abc import Mapping
from typing import Generic, TypeVar

from msgspec import Struct

TEXT, INSTANT, NUMBER = "a text", "a timestamp", "a whole number"
"""What a column can hold, in the words of a finding."""


class Column(Struct, frozen=True, kw_only=True):
    """One column."""

    name: str
    declared: str
    """Its type as it was declared; empty where it has none, or where it cannot be seen."""
    holds: frozenset[str] | None = None
    """Which of `TEXT`, `INSTANT` and `NUMBER` it can hold; None: unknown, and believed to fit."""
    is_required: bool = False
    """It does not take NULL."""
    is_generated: bool = False


C_co = TypeVar("C_co", bound=Column, covariant=True)


class Shape(Struct, Generic[C_co], frozen=True, kw_only=True):
    """One table."""

    columns: Mapping[str, C_co]
    wanted: Mapping[str, str] = {}
    """By role: what a column must hold in this database, beside what it must hold in every one."""
    flaws: Mapping[str, str] = {}
    """By role: what only this database can find wrong with that column."""
    notes: Mapping[str, str] = {}
    """By role: what people should know of a column that is fit."""

    def column(self, name: str) -> C_co | None:
        """Return the column with that name; None: the table has none."""
        return self.columns.get(name)

    def is_required(self, name: str) -> bool:
        """Return True if the column exists and does not take NULL."""
        column = self.column(name)
        return column is not None and column.is_required
