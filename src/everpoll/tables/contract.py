"""What an inspection of a table finds, and how a key is given: the words of this room that others use."""

from collections.abc import Awaitable, Callable

from msgspec import Struct

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
