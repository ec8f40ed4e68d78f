"""The types of this package that others use: the finding of an inspection, a count of rows."""

from msgspec import Struct


class Finding(Struct, frozen=True, kw_only=True):
    """The judgement of one part of a table."""

    what: str
    """`column status`, `index`, `push`, …"""
    is_fit: bool
    is_needed: bool = True
    """False: the table works without it, but worse; `detail` says how. The index is needed, too: without it every look
    reads the whole table. A worker warns of it and starts all the same; see `keeps_from_use`."""
    detail: str = ""
    ddl: str | None = None
    """The statement that would repair it."""

    @property
    def keeps_from_use(self) -> bool:
        """True if a worker refuses the table because of this finding."""
        return self.is_needed and not self.is_fit and self.what != "index"


class StatusCount(Struct, frozen=True, kw_only=True):
    """How many rows have one of the mapping's statuses."""

    status: str
    rows: int | None
    """None: not counted, because no index leads to rows with this status and the table is large."""
    is_capped: bool = False
    """True: there are more than `rows`."""
