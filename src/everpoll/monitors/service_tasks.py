"""Service tasks: publishes definitions as tasks of the store, and finds and changes these tasks.

Promises: a name has one live task, however many processes publish it. Publishing keeps the requests of operators in the
task. A change is written only if no other process has changed the task in between; otherwise it is applied again.
"""

from collections.abc import Callable, Sequence

import msgspec

from everpoll.engine.actors import action
from everpoll.errors import ServiceNotFound
from everpoll.monitors.beat_tokens import with_token
from everpoll.monitors.checks import assignment as assignments
from everpoll.monitors.checks.assignment import CHECK, KIND, QUEUE, Assignment
from everpoll.monitors.control import write as write_control
from everpoll.monitors.decision import register
from everpoll.monitors.definition import Definition
from everpoll.monitors.events import write as write_event
from everpoll.stores.contract import NewEvent, NewTask, Store, TaskFilter, TaskInfo, encode
from everpoll.stores.operations import UNNUMBERED, Revision

CHUNK = 500
"""Services that are published in one statement."""
PAGE = 1_000


async def live_tasks(store: Store) -> list[TaskInfo]:
    """Return the live tasks of all services, by name."""
    tasks: list[TaskInfo] = []
    after: int | None = None
    while True:
        page = await store.tasks(TaskFilter(kind=KIND, indexed=True), limit=PAGE, after=after)
        tasks += [task for task in page.tasks if task.ended_at is None]
        if page.after is None:
            return sorted(tasks, key=lambda task: task.key or "")
        after = page.after


async def live_task(store: Store, name: str) -> TaskInfo:
    """Return the live task of a service; raise `ServiceNotFound` if there is none."""
    found = await store.find(KIND, name)
    if found is None or found.ended_at is not None:
        raise ServiceNotFound(f"no service is called {name!r}: `everpoll services list` shows all services")
    return found


async def publish(
    store: Store, definitions: Sequence[Definition], wall: Callable[[], float], by: str = ""
) -> list[Definition]:
    """Create a task for each definition, or give the existing task the new definition.

    `by` names the operator for the log; an app that starts passes none, and nothing is logged.
    Returns the definitions that were not published, because the old service of that name is being removed.
    """
    held: list[Definition] = []
    for start in range(0, len(definitions), CHUNK):
        waiting = list(definitions[start : start + CHUNK])
        while waiting:
            answers = await store.enqueue([_new_task(with_token(one), wall(), by) for one in waiting])
            existing = {answer.id: one for answer, one in zip(answers, waiting, strict=True) if not answer.is_new}
            waiting = await _revise(store, existing, held, by) if existing else []
    return held


async def change(
    store: Store, name: str, edit: Callable[[Assignment], Assignment], note: str | None = None
) -> Assignment:
    """Change the assignment of a service and return it; the note is written to the log with the change."""
    while True:
        task = await live_task(store, name)
        changed = edit(msgspec.convert(task.args, Assignment))
        revision = Revision(KIND, name, assignments.write(changed), expects=encode(task.args), note=note)
        if (await store.revise([revision]))[0] is not None:
            return changed


async def _revise(store: Store, existing: dict[int, Definition], held: list[Definition], by: str) -> list[Definition]:
    """Give existing tasks their new definitions; add those of tasks that are being removed to `held`.

    Returns the definitions to publish again: their task ended or changed in between.
    """
    tasks = await store.info(list(existing))
    note = action("change", by) if by else None
    again, revisions, revised = [], [], []
    for task_id, definition in existing.items():
        task = tasks.get(task_id)
        if task is None or task.ended_at is not None:
            again.append(definition)
            continue
        if task.cancel_requested:
            held.append(definition)
            continue
        assignment = msgspec.convert(task.args, Assignment)
        wanted = with_token(definition, assignment.definition)
        if assignment.definition != wanted:
            args = assignments.write(msgspec.structs.replace(assignment, definition=wanted))
            revisions.append(Revision(KIND, task.key or "", args, expects=encode(task.args), note=note))
            revised.append(definition)
    done = await store.revise(revisions) if revisions else []
    return again + [one for one, task_id in zip(revised, done, strict=True) if task_id is None]


def _new_task(definition: Definition, now: float, by: str) -> NewTask:
    first = register(definition, now)
    events = [NewEvent(place, write_event(event)) for place, event in enumerate(first.events, 1)]
    if by:
        events.append(NewEvent(UNNUMBERED, action("add", by)))
    return NewTask(
        name=CHECK,
        args=assignments.write(Assignment(definition=definition)),
        kind=KIND,
        queue=QUEUE,
        key=definition.name,
        delay_s=max(0.0, first.next_at - now),
        memory=write_control(first.control),
        cancels_itself=True,
        indexed=True,
        events=tuple(events),
    )
