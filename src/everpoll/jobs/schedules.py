"""All schedules of one app: tasks that are always due again, and enqueue a job for each slot of their timetable.

    registered ──app starts──▶ published: one task for each name ──slot──▶ enqueues its job, due again at the next slot

Promises: each slot enqueues its job exactly once over the fleet: the job is enqueued in the transaction that moves the
schedule behind the slot. The database's clock decides. Every worker that has schedules runs those of all others, so no
worker leads; a schedule that no live worker registers enqueues nothing, and is removed after `FORGOTTEN_S`. The slots
in between are treated as `missed=` says once a worker registers it again.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

from everpoll.engine.work import Run, Work, Works
from everpoll.errors import BadInput
from everpoll.jobs.job import Job
from everpoll.jobs.options import NAME_LIMIT
from everpoll.jobs.timetable import POLICIES, Missed, Timetable, due, timetable_of
from everpoll.policy import Duration, flaw_of, human, shown
from everpoll.stores.contract import (
    Again,
    Ended,
    Limit,
    NewTask,
    Settlement,
    Store,
    TaskFilter,
    TaskInfo,
    WorkerInfo,
    encode,
)
from everpoll.stores.operations import Revision

logger = logging.getLogger("everpoll.jobs")

KIND = "schedule"
TASK = "everpoll.schedule"
"""The name of their tasks; the key is that of the schedule."""
QUEUE = "everpoll.schedules"
PREFIX = "schedule:"
"""Before the name of a schedule, among the names that a worker registers."""
FORGOTTEN_S = 3600.0
UNREGISTERED_S = 30.0
"""How often a schedule that no live worker registers asks again."""
PAGE = 1_000


class Plan(Struct, frozen=True, omit_defaults=True):
    """What a schedule is: the arguments of its task."""

    timetable: Timetable
    missed: Missed
    job: str
    args: str
    """Of the job, as they are stored."""
    queue: str
    priority: int = 0
    timeout_s: float | None = None
    limit: Limit | None = None
    version: int = 1


class Memory(Struct, omit_defaults=True):
    """What a schedule remembers."""

    last: float | UnsetType = UNSET
    """Slots up to here are dealt with; unset: it has not begun."""
    ran: float | None = None
    """The last slot that enqueued its job."""
    unregistered_since: float | None = None


class ScheduleInfo(Struct, frozen=True, kw_only=True):
    """A schedule as people see it."""

    name: str
    job: str
    timetable: str
    missed: Missed
    next_at: datetime | None
    """Its next slot; None: it has not begun."""
    last_at: datetime | None
    """The last slot that enqueued its job."""
    is_registered: bool
    """Whether a live worker registers it; if not, it enqueues nothing."""
    task_id: int


_memory = msgspec.json.Decoder(Memory).decode
_plan = msgspec.json.Decoder(Plan).decode


class Schedule:
    """One schedule that this app registers."""

    def __init__(self, name: str, task: NewTask, timetable: Timetable, missed: Missed) -> None:
        self.name = name
        self.task = task
        """What each slot enqueues."""
        self.timetable = timetable
        self.missed = missed

    def __repr__(self) -> str:
        return f"<Schedule {self.name}: {self.timetable}>"

    def new_task(self, memory: str = "{}") -> NewTask:
        """Return the task that stands for it."""
        task = self.task
        plan = Plan(
            self.timetable,
            self.missed,
            task.name,
            task.args,
            task.queue,
            task.priority,
            task.timeout_s,
            task.limit,
            task.version,
        )
        return NewTask(name=TASK, kind=KIND, key=self.name, queue=QUEUE, args=encode(plan), memory=memory, indexed=True)


class Schedules(Mapping[str, Schedule]):
    """Registered schedules, by name."""

    def __init__(self, works: Works, store: Callable[[], Awaitable[Store]]) -> None:
        self._works = works
        self._store = store
        self._schedules: dict[str, Schedule] = {}

    def __getitem__(self, name: str) -> Schedule:
        return self._schedules[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._schedules)

    def __len__(self) -> int:
        return len(self._schedules)

    def add(  # noqa: PLR0913 - what a user may say about a schedule
        self,
        job: object,
        cron: str | None = None,
        *,
        every: Duration | None = None,
        tz: str = "UTC",
        missed: Missed = "once",
        name: str | None = None,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Schedule:
        """Register a schedule of a job; before the app runs."""
        if not isinstance(job, Job):
            raise BadInput(f"schedule: {shown(job)} is not a job: write @app.schedule(…) above @app.job()")
        named = job.name if name is None else name
        if (flaw := flaw_of(named, NAME_LIMIT)) is not None:
            raise BadInput(f"schedule name {shown(named)} {flaw}: write a text of 1 to {NAME_LIMIT} characters")
        where = f"schedule {named!r}"
        if named in self._schedules:
            raise BadInput(f"{where} is registered already; give one of the two another name=")
        if missed not in POLICIES:
            raise BadInput(f"{where}: missed={shown(missed)}: must be one of {', '.join(POLICIES)}")
        timetable = timetable_of(where, cron, every, tz)
        task = job.new_task(tuple(args), dict(kwargs or {}))
        schedule = self._schedules[named] = Schedule(named, task, timetable, missed)
        if self._works.get(TASK) is None:
            self._works.add(Work(TASK, QUEUE, self.run, kind=KIND, is_internal=True))
        self._works.declared.add(PREFIX + named)
        return schedule

    async def publish(self) -> None:
        """Make a task of each schedule; a task that is there already gets a changed timetable, and is due at once."""
        if not self._schedules:
            return
        store = await self._store()
        tasks = [one.new_task(await _left_memory(store, one.name)) for one in self._schedules.values()]
        answers = await store.enqueue(tasks)
        known = [task for task, answer in zip(tasks, answers, strict=True) if not answer.is_new]
        if known:
            await store.revise([Revision(kind=KIND, key=task.key or "", args=task.args) for task in known])

    async def list(self) -> list[ScheduleInfo]:
        """Return the schedules of the whole fleet, by name."""
        return await list_schedules(await self._store())

    async def run(self, run: Run) -> Settlement:
        """Enqueue what is due, and settle the schedule behind it: what the engine calls."""
        lease = run.lease
        now = run.now(asyncio.get_running_loop().time())
        memory = _memory(lease.memory or "{}")
        if not await self._is_registered(lease.key or ""):
            return _unregistered(run, memory, now)
        memory.unregistered_since = None
        plan = _plan(lease.args)
        if memory.last is UNSET:
            memory.last = now
        decided = due(plan.timetable, plan.missed, memory.last, now)
        memory.last = decided.last
        if decided.slots:
            memory.ran = decided.slots[-1]
            logger.debug("schedule %r: enqueueing %s for %d slots", lease.key, plan.job, len(decided.slots))
        return Again(
            lease.id,
            lease.sequence,
            max(0.0, decided.next_at - now),
            refund=True,
            memory=encode(memory),
            follow_ups=tuple(_task_of(plan, slot) for slot in decided.slots),
        )

    async def _is_registered(self, name: str) -> bool:
        if name in self._schedules:
            return True
        return _registers(await (await self._store()).workers(), name)


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


async def _left_memory(store: Store, name: str) -> str:
    """Return what a schedule remembered that a rescue ended because its workers died; its slots are made up for."""
    found = await store.find(KIND, name)
    return encode(found.memory or {}) if found is not None and found.state == "failed" else "{}"


def _task_of(plan: Plan, slot: float) -> NewTask:
    call = msgspec.json.decode(plan.args)
    call["slot"] = slot
    return NewTask(
        name=plan.job,
        args=encode(call),
        queue=plan.queue,
        priority=plan.priority,
        timeout_s=plan.timeout_s,
        limit=plan.limit,
        version=plan.version,
    )


def _unregistered(run: Run, memory: Memory, now: float) -> Settlement:
    lease = run.lease
    since = memory.unregistered_since = now if memory.unregistered_since is None else memory.unregistered_since
    if now - since >= FORGOTTEN_S:
        why = f"no live worker has registered it for {human(FORGOTTEN_S)}"
        logger.warning("schedule %r is removed: %s", lease.key, why)
        return Ended(lease.id, lease.sequence, "canceled", None, encode({"what": "canceled", "why": why}))
    return Again(lease.id, lease.sequence, UNREGISTERED_S, refund=True, memory=encode(memory))


def _registers(workers: list[WorkerInfo], name: str) -> bool:
    return any(one.is_alive and PREFIX + name in (one.names or ()) for one in workers)


def _info(row: TaskInfo, workers: list[WorkerInfo]) -> ScheduleInfo:
    plan, memory = msgspec.convert(row.args, Plan), msgspec.convert(row.memory or {}, Memory)
    begun = memory.last is not UNSET
    return ScheduleInfo(
        name=row.key or "",
        job=plan.job,
        timetable=str(plan.timetable),
        missed=plan.missed,
        next_at=_at(plan.timetable.after(memory.last)) if begun else None,  # type: ignore[arg-type]
        last_at=None if memory.ran is None else _at(memory.ran),
        is_registered=_registers(workers, row.key or ""),
        task_id=row.id,
    )


def _at(instant: float) -> datetime:
    return datetime.fromtimestamp(instant, UTC)
