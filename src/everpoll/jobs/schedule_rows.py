"""Schedule rows: a schedule is stored as one task that is always due again, with its plan as arguments."""

import msgspec
from msgspec import UNSET, Struct, UnsetType

from everpoll.jobs.timetable import Missed, Timetable
from everpoll.stores.contract import Limit, NewTask, Unique, WorkerInfo, encode

KIND = "schedule"
TASK = "everpoll.schedule"
"""The name of these tasks; their key is the name of the schedule."""
QUEUE = "everpoll.schedules"
PREFIX = "schedule:"
"""The prefix of a schedule's name among the names that a worker registers."""


class Plan(Struct, frozen=True, omit_defaults=True):
    """The timetable of a schedule and the job that it enqueues: the arguments of its task."""

    timetable: Timetable
    missed: Missed
    job: str
    args: str
    """The arguments of the job, as they are stored."""
    queue: str
    priority: int = 0
    timeout_s: float | None = None
    limit: Limit | None = None
    version: int = 1
    key: str | None = None
    unique: Unique | None = None


class Memory(Struct, omit_defaults=True):
    """The memory of a schedule from one run to the next."""

    last: float | UnsetType = UNSET
    """Scheduled times up to this instant are done; unset: the schedule has not begun."""
    ran: float | None = None
    """The last scheduled time that enqueued its job."""
    unregistered_since: float | None = None


read_memory = msgspec.json.Decoder(Memory).decode
read_plan = msgspec.json.Decoder(Plan).decode


def task_of_schedule(name: str, timetable: Timetable, missed: Missed, job: NewTask, memory: str) -> NewTask:
    """Return the task of a schedule; `job` is the task that it enqueues each time."""
    plan = Plan(
        timetable,
        missed,
        job.name,
        job.args,
        job.queue,
        job.priority,
        job.timeout_s,
        job.limit,
        job.version,
        job.key,
        job.unique,
    )
    return NewTask(name=TASK, kind=KIND, key=name, queue=QUEUE, args=encode(plan), memory=memory, indexed=True)


def task_of_time(plan: Plan, time: float) -> NewTask:
    """Return the task of the job for a scheduled time."""
    call = msgspec.json.decode(plan.args)
    call["scheduled_for"] = time
    return NewTask(
        name=plan.job,
        args=encode(call),
        queue=plan.queue,
        priority=plan.priority,
        timeout_s=plan.timeout_s,
        limit=plan.limit,
        version=plan.version,
        key=plan.key,
        waits_briefly=plan.key is not None,
        unique=plan.unique,
        indexed=plan.unique is not None and plan.unique.for_s is not None,
    )


def is_registered(workers: list[WorkerInfo], name: str) -> bool:
    """Return whether a live worker registers the schedule."""
    return any(one.is_alive and PREFIX + name in (one.names or ()) for one in workers)
