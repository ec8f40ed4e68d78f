"""New rows: tasks in the form in which they are inserted."""

from typing import NamedTuple

from everpoll.stores.contract import NewEvent, Unique


class Row(NamedTuple):
    """The columns of a new task."""

    name: str
    args: str
    kind: str
    queue: str
    key: str | None
    rank: int
    delay_us: int
    timeout_s: float | None
    memory: str | None
    version: int
    cancels_itself: bool
    indexed: bool
    limit_key: str | None = None
    limit_running: int | None = None
    limit_starts: int | None = None
    limit_per_s: float | None = None


class Special(NamedTuple):
    """The options that few tasks have."""

    once: bool
    events: tuple[NewEvent, ...]
    unique: Unique | None = None
