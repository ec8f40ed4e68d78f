"""Report: the status of a service, and of each dependency that it reports.

Promises: every value is bounded, whatever the remote sent, and can be written as JSON.
"""

from enum import StrEnum
from typing import Any

from msgspec import Struct

MAX_DEPENDENCIES = 1_000
"""How many dependencies one service may report; further ones are dropped with a warning."""
MAX_WARNINGS = 100
"""How many warnings one look may have."""
MAX_TEXT = 2_000
"""How many characters of one text of a remote are kept."""


class Status(StrEnum):
    """The status of a service or a dependency, ordered from best to worst."""

    UP = "up"
    UNKNOWN = "unknown"
    DEGRADED = "degraded"
    DOWN = "down"

    @property
    def healthy(self) -> bool | None:
        """True for up and degraded, False for down, None for unknown."""
        return None if self is Status.UNKNOWN else self is not Status.DOWN


_RANK = {status: rank for rank, status in enumerate(Status)}


def worse(one: Status, other: Status) -> Status:
    """Return the worse of two statuses."""
    return one if _RANK[one] >= _RANK[other] else other


class Dependency(Struct, frozen=True, gc=False, kw_only=True):
    """One dependency as a service reports it."""

    name: str
    status: Status
    skipped: bool = False
    """True: the service did not check it, so it counts as up."""
    latency_ms: float | None = None
    type: str = "other"
    impact: str | None = None
    description: str | None = None
    contact: dict[str, Any] | None = None
    check_details: dict[str, Any] | None = None
    error: Any = None
    """The error that the service reports, as JSON; None: no error."""
    error_message: str | None = None

    @property
    def healthy(self) -> bool | None:
        """True for up and degraded, False for down, None for unknown."""
        return self.status.healthy


class Report(Struct, frozen=True, gc=False, kw_only=True):
    """The report of one answer, read by one format."""

    status: Status
    format: str
    dependencies: tuple[Dependency, ...] = ()
    warnings: tuple[str, ...] = ()
    """Descriptions of what could not be read, each once, in the order of their first occurrence."""
    lists_failures_only: bool = False
    """The format lists failures only: a dependency that is missing from the list is up again, not vanished."""
