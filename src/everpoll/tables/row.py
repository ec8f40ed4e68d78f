"""A claimed row, as its handler sees it."""

from collections.abc import Iterator, Mapping
from typing import Any

from everpoll.engine.work import Run
from everpoll.stores.contract import Lease


class RowLease(Lease, frozen=True, gc=False):
    """A claimed row. `id` is a number of this process; the table's own key is `row_key`."""

    row_key: Any = None
    values: Mapping[str, Any] = {}
    """The columns that the handler reads."""

    @property
    def label(self) -> str:
        """How logs name the row."""
        return f"{self.name}#{self.row_key}"


class Row(Mapping[str, Any]):
    """One claimed row: `row.id`, `row["recording_id"]`."""

    __slots__ = ("_lease", "_run")

    def __init__(self, run: Run) -> None:
        assert isinstance(run.lease, RowLease)
        self._run = run
        self._lease = run.lease

    @property
    def id(self) -> Any:
        """The key of the row in its table."""
        return self._lease.row_key

    @property
    def attempt(self) -> int:
        """Which attempt this is, from 1; always 1 if the table has no column for retries."""
        return self._lease.attempt

    @property
    def fence(self) -> str:
        """A token that no other run of any row has, for the handler's own writes elsewhere."""
        return self._run.fence

    @property
    def is_stopping(self) -> bool:
        """True if the handler must end. Plain functions check it now and then."""
        return self._run.stop_reason is not None

    def __getitem__(self, column: str) -> Any:
        try:
            return self._lease.values[column]
        except KeyError:
            read = ", ".join(self._lease.values) or "none"
            raise KeyError(
                f"{column!r} is not read: add it to columns=(…) of table {self._lease.name!r}; read are: {read}"
            ) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._lease.values)

    def __len__(self) -> int:
        return len(self._lease.values)

    def __repr__(self) -> str:
        return f"<Row {self._lease.label}>"
