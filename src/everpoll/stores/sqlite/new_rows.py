"""New tasks on their way into the file."""

from typing import NamedTuple

from everpoll.stores.contract import NewEvent, Unique


class Row(NamedTuple):
    """A task as it is handed to SQLite."""

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
    """What few tasks have beside their row."""

    once: bool
    events: tuple[NewEvent, ...]
    unique: Unique | None = None
