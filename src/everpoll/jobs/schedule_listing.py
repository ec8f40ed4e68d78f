"""Schedule listing: the schedules of the whole fleet, read from the database, also while no worker runs."""

from datetime import UTC, datetime

import msgspec
from msgspec import UNSET, Struct

from everpoll.jobs.schedule_rows import KIND, Memory, Plan, is_registered
from everpoll.jobs.timetable import Missed
from everpoll.stores.contract import Store, TaskFilter, TaskInfo, WorkerInfo

PAGE = 1_000


class ScheduleInfo(Struct, frozen=True, kw_only=True):
    """A schedule, for callers and operators."""

    name: str
    job: str
    timetable: str
    missed: Missed
    next_at: datetime | None
    """Its next scheduled time; None if it has not begun."""
    last_at: datetime | None
    """The last scheduled time at which it enqueued its job."""
    is_registered: bool
    """True if a live worker registers it; otherwise it enqueues nothing."""
    task_id: int


async def list_schedules(store: Store) -> list[ScheduleInfo]:
    """Return the schedules that the database knows, by name."""
    workers = await store.workers()
    rows: list[TaskInfo] = []
    after: int | None = None
    while True:
        page = await store.tasks(TaskFilter(kind=KIND, indexed=True), limit=PAGE, after=after)
        rows += [one for one in page.tasks if one.ended_at is None]
        if (after := page.after) is None:
            return sorted((_info(one, workers) for one in rows), key=lambda info: info.name)


def _info(row: TaskInfo, workers: list[WorkerInfo]) -> ScheduleInfo:
    plan, memory = msgspec.convert(row.args, Plan), msgspec.convert(row.memory or {}, Memory)
    return ScheduleInfo(
        name=row.key or "",
        job=plan.job,
        timetable=str(plan.timetable),
        missed=plan.missed,
        next_at=None if memory.last is UNSET else _at(plan.timetable.after(memory.last)),
        last_at=None if memory.ran is None else _at(memory.ran),
        is_registered=is_registered(workers, row.key or ""),
        task_id=row.id,
    )


def _at(instant: float) -> datetime:
    return datetime.fromtimestamp(instant, UTC)
