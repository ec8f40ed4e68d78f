"""Context: the task for which the current code runs, in a context variable.

Promises: the engine sets it for each run of a job, each look and each row, and a loop sets it for each of its runs.
Threads in which plain functions run, and asyncio tasks that a handler starts, can read it. The fields are made only
when a record is written.
"""

from contextvars import ContextVar
from typing import Any, Protocol

Fields = dict[str, Any]


class Subject(Protocol):
    """A task, or a loop, that a record can be about."""

    def log_fields(self) -> Fields:
        """Return its fields: `task_id`, `kind`, `name` and so on."""
        ...


class Labels:
    """A subject with fixed fields."""

    __slots__ = ("_fields",)

    def __init__(self, **fields: Any) -> None:
        self._fields = fields

    def log_fields(self) -> Fields:
        """Return the fixed fields."""
        return self._fields


SUBJECT: ContextVar[Subject | None] = ContextVar("everpoll.subject", default=None)


def task_fields() -> Fields:
    """Return the fields of the task that the calling code works for; empty outside jobs, looks, rows and loops."""
    subject = SUBJECT.get()
    return {} if subject is None else dict(subject.log_fields())


def about(**fields: Any) -> dict[str, Fields]:
    """Return the `extra=` of a record that is about this task, for code that runs outside the task."""
    return {"task_fields": fields}
