"""Service rows: decodes the tasks of many services, each once, directly from the stored bytes.

Promises: one row takes a few microseconds, so that a screen of thousands of services costs milliseconds. Only live
services are read, newest first.
"""

from collections.abc import AsyncIterator, Callable, Collection

from msgspec import Struct

from everpoll.monitors.checks import assignment as assignments
from everpoll.monitors.checks.assignment import KIND, Assignment
from everpoll.monitors.control import Control
from everpoll.monitors.control import read as read_control
from everpoll.monitors.definition import Definition
from everpoll.stores.contract import LiveTask, Store

PAGE = 1_000


class ServiceRow(Struct, frozen=True, gc=False):
    """The task of one service."""

    id: int
    assignment: Assignment
    control: Control
    is_removed: bool
    """True: the service is being removed."""

    @property
    def definition(self) -> Definition:
        """The definition of the service."""
        return self.assignment.definition


def read_row(task: LiveTask) -> ServiceRow:
    """Decode the task of a service."""
    control = Control() if task.memory is None else read_control(task.memory)
    return ServiceRow(task.id, assignments.read(task.args), control, task.cancel_requested)


class KnownRows:
    """Decodes the tasks of services; a task that has not changed since it was last read is not decoded again."""

    def __init__(self) -> None:
        self._rows: dict[int, tuple[LiveTask, ServiceRow]] = {}

    def read(self, task: LiveTask) -> ServiceRow:
        """Return the service of a task."""
        known = self._rows.get(task.id)
        if known is not None and known[0] == task:
            return known[1]
        row = read_row(task)
        self._rows[task.id] = task, row
        return row

    def keep(self, rows: Collection[ServiceRow]) -> None:
        """Forget all tasks but these."""
        if len(self._rows) > len(rows):
            self._rows = {row.id: self._rows[row.id] for row in rows if row.id in self._rows}


Read = Callable[[LiveTask], ServiceRow]


async def service_pages(
    store: Store, page: int = PAGE, after: int | None = None, read: Read = read_row
) -> AsyncIterator[list[ServiceRow]]:
    """Yield the services page by page, newest first, those with an id below `after`."""
    while True:
        tasks = await store.live(KIND, page, after)
        if tasks:
            yield [read(task) for task in tasks]
        if len(tasks) < page:
            return
        after = tasks[-1].id


async def service_rows(store: Store, read: Read = read_row) -> list[ServiceRow]:
    """Return all services, by name."""
    found = [row async for rows in service_pages(store, read=read) for row in rows]
    return sorted(found, key=lambda row: row.definition.name)
