"""Shapes that several routes share: pages, limits, cursors, instants."""

from datetime import UTC, datetime, timedelta
from typing import Annotated

from msgspec import Meta, Struct

from everpoll.server.problems import Problem

Limit = Annotated[int, Meta(ge=1, le=1_000)]
TASKS_LIMIT = 500
"""Jobs or runs that a page has at most, also for a higher limit: 1,000 take up to 40 ms of CPU, and a client goes on
with `after` anyway."""
After = Annotated[str, Meta(max_length=2_000)] | None
Reason = Annotated[str, Meta(max_length=500)]
_FIRST = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
LAST_NUMBER = 2**63 - 1


class Page(Struct, frozen=True, kw_only=True):
    """A list: its items, and the cursor that continues it; null at its end."""


def instant(seconds: float | None) -> datetime | None:
    """Return an instant of the records of services, which are seconds since the epoch."""
    try:
        return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        return datetime.max.replace(tzinfo=UTC)


def instant_example(seconds: int) -> str:
    """Return an instant for examples."""
    return (_FIRST + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


def task_number(text: str) -> int:
    """Return the id of a task in a path; 404 if it is not one."""
    if not (text.isascii() and text.isdigit() and len(text) <= 19) or int(text) > LAST_NUMBER:
        raise Problem(404, f"{text[:100]!r} is not the id of a task: ids are whole numbers")
    return int(text)
