"""The schedules that one app registers.

    registered ──app starts──▶ published: one task for each name ──▶ enqueues its job, and is due at the next time

Promises: each scheduled time enqueues its job exactly once over the fleet (`schedule_runs`). The database's clock
decides. Every worker that has schedules also runs those of the other workers, so there is no leader. A schedule that no
live worker registers enqueues nothing, and is removed after an hour. If a worker registers it again before that,
`missed=` decides about the times in between.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any

from everpoll.engine.work import Run, Work, WorkRegistry
from everpoll.errors import BadInput
from everpoll.jobs.job import Job
from everpoll.jobs.options import NAME_LIMIT
from everpoll.jobs.schedule_listing import ScheduleInfo, list_schedules
from everpoll.jobs.schedule_rows import KIND, PREFIX, QUEUE, TASK, is_registered, task_of_schedule
from everpoll.jobs.schedule_runs import run_schedule
from everpoll.jobs.timetable import POLICIES, Missed, Timetable, timetable_of
from everpoll.policy import Duration, flaw_of, shown
from everpoll.stores.contract import NewTask, Settlement, Store, encode
from everpoll.stores.operations import Revision


class Schedule:
    """One schedule that this app registers."""

    def __init__(self, name: str, task: NewTask, timetable: Timetable, missed: Missed) -> None:
        self.name = name
        self.task = task
        """The task that it enqueues each time."""
        self.timetable = timetable
        self.missed = missed

    def __repr__(self) -> str:
        return f"<Schedule {self.name}: {self.timetable}>"

    def new_task(self, memory: str = "{}") -> NewTask:
        """Return the task of this schedule."""
        return task_of_schedule(self.name, self.timetable, self.missed, self.task, memory)


class Schedules(Mapping[str, Schedule]):
    """Registered schedules, by name."""

    def __init__(self, works: WorkRegistry, store: Callable[[], Awaitable[Store]]) -> None:
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
        """Register a schedule of a job. Call this before the app runs."""
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
        """Enqueue a task for each schedule; a task that exists already gets the new plan, and is due at once."""
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
        """Enqueue the due jobs and settle the schedule; called by the engine."""
        return await run_schedule(run, self._is_registered)

    async def _is_registered(self, name: str) -> bool:
        return name in self._schedules or is_registered(await (await self._store()).workers(), name)


async def _left_memory(store: Store, name: str) -> str:
    """Return the memory of a schedule that a rescue ended because its workers died, so that it goes on from there."""
    found = await store.find(KIND, name)
    return encode(found.memory or {}) if found is not None and found.state == "failed" else "{}"
