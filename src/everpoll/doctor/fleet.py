"""Judgements about the fleet: workers, leases, queues, names of tasks. Pure.

`Fleet` has the known workers; `gone` has the incarnations of processes that ran on this host and do not exist any more.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from everpoll.doctor.diagnosis import Verdict, counted, fine, listed, problem, warning, worst_of
from everpoll.engine.work import is_known, name_and_version
from everpoll.policy import human
from everpoll.stores.contract import QueueInfo, WorkerInfo
from everpoll.stores.examination import DueTasks, LeaseFacts
from everpoll.stores.flows import GROUP_KIND

LATE_S = 30.0
"""A task that has been due for a shorter time may be about to be leased."""
STUCK_S = 300.0
"""By then other workers have declared a silent worker dead, with any usual lease."""
START = "start one: `everpoll run module:app`"


@dataclass(frozen=True, slots=True)
class Fleet:
    """The workers, as far as the store and this host know them."""

    workers: Sequence[WorkerInfo]
    gone: Collection[int] = ()

    @property
    def alive(self) -> list[WorkerInfo]:
        """The workers that send heartbeats."""
        return [one for one in self.workers if one.is_alive and one.incarnation not in self.gone]

    @property
    def silent(self) -> list[WorkerInfo]:
        """The workers that are not alive, and have not ended."""
        return [one for one in self.workers if one.stopped_at is None and one not in self.alive]


def workers(fleet: Fleet, due: Sequence[DueTasks]) -> Verdict:
    """Judge whether workers send heartbeats."""
    found = [
        warning(
            f"worker {one.label} on {one.host} (process {one.pid}) was last heard {human(round(one.beat_age_s))} ago",
            f"see whether process {one.pid} still runs on {one.host}, and read its log",
        )
        for one in fleet.silent
    ]
    alive = fleet.alive
    waiting = sum(one.tasks for one in due if one.oldest_s >= LATE_S)
    if not alive and waiting:
        found.append(problem(f"no worker is alive, and {_waiting(waiting)}", START))
    if not alive:
        return worst_of(found, fine(f"no worker is alive, and no task has been due for {human(LATE_S)}"))
    slots, running = sum(one.slots for one in alive), sum(one.running for one in alive)
    names = listed(one.label for one in alive)
    return worst_of(found, fine(f"{len(alive)} alive ({names}), {running:,} of {slots:,} slots are busy"))


def leases(facts: LeaseFacts, fleet: Fleet) -> Verdict:
    """Judge whether a live worker holds each leased task."""
    known = {one.incarnation: one for one in fleet.workers}
    alive = {one.incarnation for one in fleet.alive}
    found = [
        _stuck(one.tasks, known.get(one.incarnation), has_rescuer=bool(alive))
        for one in facts.held
        if one.incarnation not in alive
    ]
    if facts.overdue:
        found.append(
            warning(
                f"{counted(facts.overdue, 'task')} past the deadline, by up to {human(round(facts.most_overdue_s))}",
                "`everpoll jobs list --state running` shows them; a plain function has to look at task.is_stopping",
            )
        )
    total = sum(one.tasks for one in facts.held)
    return worst_of(found, fine(f"{counted(total, 'task')} leased, by live workers" if total else "no task is leased"))


def _stuck(tasks: int, worker: WorkerInfo | None, *, has_rescuer: bool) -> Verdict:
    holder = (
        "a worker that is not known any more"
        if worker is None
        else f"worker {worker.label}, which has ended"
        if worker.stopped_at is not None
        else f"worker {worker.label}, which was last heard {human(round(worker.beat_age_s))} ago"
    )
    says = f"{counted(tasks, 'task')} leased by {holder}"
    if not has_rescuer:
        return problem(f"{says}; no worker is alive to take them back", START)
    if worker is not None and worker.stopped_at is None and worker.beat_age_s < STUCK_S:
        return warning(f"{says}; a live worker takes them back when its lease is over", "wait for one lease (30s)")
    return problem(
        f"{says}; a live worker should have taken them back", "restart the workers, and report it with their logs"
    )


def queues(due: Sequence[DueTasks], found: Sequence[QueueInfo], fleet: Fleet) -> Verdict:
    """Judge whether each queue with due tasks has a live worker."""
    paused = {one.queue for one in found if one.paused is not None}
    served = {queue for one in fleet.alive for queue in one.queues}
    late: dict[str, list[DueTasks]] = {}
    for one in due:
        if one.oldest_s >= LATE_S and one.queue not in served | paused:
            late.setdefault(one.queue, []).append(one)
    verdicts = [
        problem(
            f"no live worker serves queue {queue!r}: {counted(sum(one.tasks for one in some), 'due task')}, the oldest "
            f"for {human(round(max(one.oldest_s for one in some)))} ({listed(sorted({one.name for one in some}))})",
            "start a worker with an app that has this queue: `everpoll run module:app`",
        )
        for queue, some in sorted(late.items())
    ]
    fair = (
        f"{counted(len(found), 'queue')}, and none has waited {human(LATE_S)} for a worker"
        if found
        else "no queue has tasks"
    )
    return worst_of(verdicts, fine(fair))


def _waiting(tasks: int) -> str:
    return f"{counted(tasks, 'task')} {'waits' if tasks == 1 else 'wait'}"


def paused(found: Sequence[QueueInfo]) -> Verdict:
    """Judge whether tasks wait in a paused queue."""
    verdicts = [
        warning(
            f"queue {one.queue!r} is paused{f' by {one.paused.by}' if one.paused.by else ''}"
            f"{f' ({one.paused.reason})' if one.paused.reason else ''}, and {_waiting(one.ready)} in it",
            f"to go on: `everpoll queues resume {one.queue}`",
        )
        for one in found
        if one.paused is not None and one.ready
    ]
    number = sum(one.paused is not None for one in found)
    return worst_of(
        verdicts, fine(f"{counted(number, 'queue')} paused, without tasks" if number else "no queue is paused")
    )


def names(due: Sequence[DueTasks], fleet: Fleet, registered: Collection[str] = ()) -> Verdict:
    """Judge whether a live worker of its queue can run each due task, by its name and version. `registered`: the
    names of the app, as its worker publishes them."""
    verdicts = []
    for one in due:
        serving = [worker for worker in fleet.alive if one.queue in worker.queues]
        # A worker that did not say what it registers may well know the name.
        if one.kind == GROUP_KIND or not serving:
            continue
        if any(not worker.names or is_known(one.name, one.version, worker.names) for worker in serving):
            continue
        hint = (
            "its own app has it: restart the workers with this release"
            if is_known(one.name, one.version, registered)
            else ("start a worker with an app that registers it, or cancel these tasks with `everpoll jobs cancel`")
        )
        says = (
            f"no live worker of queue {one.queue!r} registers {name_and_version(one.name, one.version)}: "
            f"{counted(one.tasks, 'due task')}, the oldest for {human(round(one.oldest_s))}"
        )
        verdicts.append(problem(says, hint) if one.oldest_s >= LATE_S else warning(says, hint))
    return worst_of(verdicts, fine("a live worker registers the name of each due task"))
