"""Canceling: one task, or many in few statements.

Promises: a batch waits for no lock while it holds one, so it cannot deadlock with a settlement that has the same tasks.
A task that is locked at that moment is canceled in a statement of its own afterwards.
"""

from collections.abc import Sequence
from typing import NamedTuple

from everpoll.drivers.postgres.lane import Lane
from everpoll.stores.contract import TaskState
from everpoll.stores.postgres.functions import versioned
from everpoll.stores.postgres.repeats import repeated

ONE = versioned("select state, is_changed from everpoll.cancel($1, $2)")
MANY = versioned("""with free as materialized (
        select t.id from everpoll.tasks t where t.id = any($1::bigint[]) order by t.id for update skip locked)
    select wanted.id, done.state, done.is_changed from free
    join unnest($1::bigint[], $2::text[]) wanted(id, note) on wanted.id = free.id
    cross join lateral everpoll.cancel(wanted.id, wanted.note) done""")
ENDED = "select h.id, h.state from everpoll.history h where h.id = any($1::bigint[])"


class Canceled(NamedTuple):
    """The states of the known tasks after the cancel, by id, and whether this call asked any running task to end."""

    states: dict[int, TaskState | None]
    is_changed: bool


async def one(lane: Lane, task_id: int, note: str) -> Canceled:
    """Cancel one task."""
    row = await repeated(lambda: lane.row(ONE, task_id, note))
    return Canceled({task_id: row["state"]}, row["is_changed"])


async def many(lane: Lane, requests: Sequence[tuple[int, str]]) -> Canceled:
    """Cancel many tasks; of two requests for one task, the first counts."""
    notes: dict[int, str] = {}
    for task_id, note in requests:
        notes.setdefault(task_id, note)
    rows = await repeated(lambda: lane.rows(MANY, list(notes), list(notes.values())))
    states: dict[int, TaskState | None] = {row["id"]: row["state"] for row in rows}
    is_changed = any(row["is_changed"] for row in rows)
    if left := [task_id for task_id in notes if task_id not in states]:
        states |= {row["id"]: row["state"] for row in await lane.rows(ENDED, left)}
    for task_id in left:
        if task_id not in states:
            alone = await one(lane, task_id, notes[task_id])
            states |= alone.states
            is_changed = is_changed or alone.is_changed
    return Canceled(states, is_changed)
