"""What everpoll writes into a row by a claim, a heartbeat, an end, a hand-back or a rescue, in any database.

Pure, and the only place of these rules. A change maps roles to values; each database turns a value into its SQL. Roles
without a mapped column are left out.
"""

from collections.abc import Callable
from enum import Enum

from msgspec import Struct

from everpoll.tables.mapping import Table
from everpoll.tables.outcome import RowWrite


class Plus(Struct, frozen=True):
    """Add a number to the column; NULL counts as 0."""

    number: int


class RuntimeValue(Enum):
    """A value that is known only when the statement runs, or only to the database."""

    NOW = "now"
    START = "start"
    """The start of the claim: now, and the same for every row and every column of it."""
    WORKER = "worker"
    ERROR = "error"
    DUE = "due"
    RESULT = "result"
    LOST = "lost"
    """The error of a row whose worker was lost: it names the worker and the attempt."""


Value = str | Plus | RuntimeValue | None
"""A str is a status or a text; None empties the column."""
Change = dict[str, Value]
"""By role; `column NAME` for what the handler has returned."""
HELD_BY = ("worker", "started_at", "heartbeat")
"""What a row that waits does not have."""


class Changes:
    """The changes of one table. `is_required`: whether a column does not take NULL; then it keeps what it has."""

    def __init__(self, table: Table, is_required: Callable[[str], bool]) -> None:
        self._table = table
        self._used = table.used
        self._is_required = is_required

    def _mapped(self, change: Change) -> Change:
        """Leave out what is not mapped, and add what every change sets for programs that guard their own with it."""
        whole: Change = {**change, "version": Plus(1), "updated_at": RuntimeValue.NOW}
        return {role: value for role, value in whole.items() if role in self._used}

    @property
    def claimed(self) -> Change:
        """The change that gives a waiting row to the worker."""
        start = RuntimeValue.START
        return self._mapped(
            {"status": self._table.running, "worker": RuntimeValue.WORKER, "started_at": start, "heartbeat": start}
        )

    @property
    def emptied(self) -> Change:
        """The columns that a row loses when it waits again, where the column takes NULL."""
        roles = [role for role in HELD_BY if role in self._used]
        return {role: None for role in roles if not self._is_required(self._used[role])}

    @property
    def waiting(self) -> Change:
        """The change that hands a row back."""
        return self._mapped({"status": self._table.queued, **self.emptied})

    def settled(self, write: RowWrite) -> Change:
        """Return the change that ends a row, or lets it wait again; the same for all writes of one pattern."""
        change: Change = {"status": write.status}
        change |= {"finished_at": RuntimeValue.NOW} if write.is_end else self.emptied
        if write.retries:
            change["retries"] = Plus(write.retries)
        if not write.keeps_error:
            change["error"] = self._no_error if write.error is None else RuntimeValue.ERROR
        if write.delay_s is not None:
            change["due_at"] = RuntimeValue.DUE
        return self._mapped(change | {f"column {name}": RuntimeValue.RESULT for name in sorted(write.results)})

    @property
    def settled_roles(self) -> list[str]:
        """Every role that some settlement writes."""
        results = dict.fromkeys(self._table.results)
        most = [
            RowWrite(status="", is_end=is_end, error="", retries=1, delay_s=0, results=results)
            for is_end in (True, False)
        ]
        return list(dict.fromkeys(role for write in most for role in self.settled(write)))

    @property
    def _no_error(self) -> str | None:
        return "" if self._table.error is not None and self._is_required(self._table.error) else None

    def lost(self, *, is_last: bool) -> Change:
        """Return the change for a row of a dead worker: it waits again, or has failed with its last attempt."""
        change: Change = {"retries": Plus(1), "error": RuntimeValue.LOST}
        if is_last:
            return self._mapped({"status": self._table.failed, "finished_at": RuntimeValue.NOW, **change})
        return self._mapped({"status": self._table.queued, **self.emptied, **change})


def queue_order(table: Table) -> dict[str, bool]:
    """Return the columns that order the queue, and whether downwards: higher priority, then older, then by key."""
    first = {} if table.priority is None else {table.priority: True}
    return {**first, **{name: False for name in (table.order_by, table.key) if name not in first}}
