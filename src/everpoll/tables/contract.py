"""What each database must offer for an adopted table: a source for the engine, and an inspection for people."""

from collections.abc import Awaitable, Callable
from typing import Protocol

from msgspec import Struct

from everpoll.stores.contract import Source
from everpoll.tables.overview import RowState, StatusCount, TableWorker

Token = str | Callable[[], str | Awaitable[str]]
"""A key, or a function that returns a fresh one: asked again when the last one was refused."""


class Finding(Struct, frozen=True, kw_only=True):
    """One thing that was looked at."""

    what: str
    """`column status`, `index`, `push`, …"""
    is_fit: bool
    is_needed: bool = True
    """False: it works without, but worse; `detail` says how. The index is needed, too: without it every look reads the
    whole table. A worker warns of it and starts all the same; see `keeps_from_use`."""
    detail: str = ""
    ddl: str | None = None
    """What would put it right."""

    @property
    def keeps_from_use(self) -> bool:
        """Whether a worker refuses the table for this."""
        return self.is_needed and not self.is_fit and self.what != "index"


class TableSource(Source, Protocol):
    """An adopted table."""

    async def open(self) -> None:
        """Connect and look at the columns; `TableUnfit` names everything that is missing or wrong, at once."""

    async def close(self) -> None:
        """Let go of every connection. Repeatable."""

    async def inspect(self) -> list[Finding]:
        """Columns and their types, the index and whether the poll query uses it (EXPLAIN), push, the heartbeat."""

    def ddl(self) -> list[str]:
        """Statements that give the table what the mapping names: columns, an index for looks, the trigger for push."""

    async def counts(self) -> list[StatusCount]:
        """How many rows have each of the mapping's statuses, up to a limit. Needs no `open`, like the next two."""

    async def workers(self) -> list[TableWorker]:
        """The workers that hold rows, by label; an idle worker leaves no trace in the table."""

    async def row_state(self, key: str) -> RowState | None:
        """The row with this key, as people write it; None: there is none."""
