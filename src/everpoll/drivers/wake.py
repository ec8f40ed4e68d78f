"""Wakes: the reason why a worker should poll, and when."""

from collections.abc import Callable
from typing import NamedTuple


class Wake(NamedTuple):
    """The reason why a worker should poll, and when."""

    cancel: bool = False
    """A cancel of a running task may have been requested."""
    due_s: float = 0.0
    """The task falls due this many seconds from now: a worker that polls by then in any case may sleep on."""


OnWake = Callable[[Wake], None]
"""Called when a worker should poll."""

NOW = Wake()
