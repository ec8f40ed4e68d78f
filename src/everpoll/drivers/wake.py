"""Wakes: why and when a worker should poll."""

from collections.abc import Callable
from typing import NamedTuple


class Wake(NamedTuple):
    """Why a worker should look for tasks, and when."""

    cancel: bool = False
    """A cancel of a running task may have been requested."""
    due_s: float = 0.0
    """The task falls due that many seconds from now: a worker that looks by then anyhow may sleep on."""


OnWake = Callable[[Wake], None]
"""Called when it is time to look."""

NOW = Wake()
