"""Which task the code that runs now works for, kept in a context variable.

Promises: the engine sets it for each run of a job, each look and each row, and a loop for each of its runs. Threads in
which plain functions run, and asyncio tasks that a handler starts, see it as well. Reading it costs nothing while no
record is written: the fields are put together when a record asks for them.
"""

from contextvars import ContextVar
from typing import Any, Protocol

Fields = dict[str, Any]


class Subject(Protocol):
    """What a record can be about."""

    def log_fields(self) -> Fields:
        """Return its fields: `task_id`, `kind`, `name` and so on."""
        ...


class Labels:
    """A subject with fields that are known beforehand."""

    __slots__ = ("_fields",)

    def __init__(self, **fields: Any) -> None:
        self._fields = fields

    def log_fields(self) -> Fields:
        """Return the fields as they were given."""
        return self._fields


SUBJECT: ContextVar[Subject | None] = ContextVar("everpoll.subject", default=None)


def task_fields() -> Fields:
    """Return the fields of the task that the calling code works for; empty outside jobs, looks, rows and loops."""
    subject = SUBJECT.get()
    return {} if subject is None else dict(subject.log_fields())


def about(**fields: Any) -> dict[str, Fields]:
    """Return the `extra=` of a record that is about this task, wherever it is written."""
    return {"task_fields": fields}
