"""Waking: what whoever waits for work gives to whoever hears of it."""

from collections.abc import Callable
from typing import NamedTuple


class Wake(NamedTuple):
    """There is a reason to look."""

    cancel: bool = False
    """Somebody may want a running task canceled."""
    due_s: float = 0.0
    """What it is about falls due that many seconds from now: whoever looks until then anyhow may sleep on."""


OnWake = Callable[[Wake], None]
"""Told when to look."""

NOW = Wake()
