"""Flows in a file: tasks that wait for others are enqueued together, and what leads to a task is found.

All inside the writer's transaction: no other connection takes a key between the look for it and the insert.
"""

# ruff: noqa: S608 - only the column lists of this package are put into SQL

from collections.abc import Sequence
from typing import NamedTuple

from everpoll.drivers.sqlite.connection import Connection
from everpoll.stores.contract import Enqueued, TaskInfo, TaskState, encode
from everpoll.stores.flows import BLOCKED_LINE, FlowTask, Takes, blockers_of, check_flow
from everpoll.stores.sqlite.enqueueing import Call, insert_all, live_keys
from everpoll.stores.sqlite.enqueueing import call_of as plain_call_of
from everpoll.stores.sqlite.reading import ENDED, LIVE, shown

# The ids of one insert follow one another, so a place in the call is a distance from the first.
LINK = f"""update everpoll_tasks as t set then_id = :first + (j.value ->> 1), takes = j.value ->> 2,
        blockers = j.value ->> 3, line = iif(j.value ->> 3 > 0, {BLOCKED_LINE}, t.line)
    from json_each(:rows) j where t.id = :first + (j.value ->> 0)"""
MEMBERS = f"""select * from (
        select {LIVE} from everpoll_tasks t indexed by everpoll_tasks_then
         where t.then_id is not null and t.then_id = :id and t.id > :after order by t.id limit :limit)
    union all select * from (
        select {ENDED} from everpoll_history t indexed by everpoll_history_then
         where t.then_id is not null and t.then_id = :id and t.id > :after order by t.id limit :limit)
    order by 1 limit :limit"""
COUNTS = """select iif(is_leased, 'running', 'queued') as state, count(*) from everpoll_tasks
        indexed by everpoll_tasks_then where then_id is not null and then_id = :id group by 1
    union all select state, count(*) from everpoll_history
        indexed by everpoll_history_then where then_id is not null and then_id = :id group by 1"""


class FlowCall(NamedTuple):
    """A flow, ready for the writer."""

    call: Call
    links: list[tuple[int, int | None, Takes | None, int]]
    """By place: the place of the task that waits for it, what it takes, and how many lead to it."""


def call_of(flow: Sequence[FlowTask]) -> FlowCall:
    """Make the call ready, in the caller's thread; refuse what cannot be stored."""
    check_flow(flow)
    call = plain_call_of([one.task for one in flow])
    links = [
        (place, one.then, one.takes, blockers)
        for place, (one, blockers) in enumerate(zip(flow, blockers_of(flow), strict=True))
    ]
    return FlowCall(call, links)


def enqueue(con: Connection, now: int, flow: FlowCall) -> list[Enqueued]:
    """Insert all of them, or nothing where a key is taken."""
    rows = flow.call.rows
    holders = live_keys(con, rows)
    taken = [0 if row.key is None else holders.get((row.kind, row.key), 0) for row in rows]
    if any(taken):
        return [Enqueued(holder, is_new=False) for holder in taken]
    first = insert_all(con, now, rows, flow.call.size) - len(rows) + 1
    con.execute(LINK, {"first": first, "rows": encode(flow.links)})
    return [Enqueued(first + place) for place in range(len(rows))]


def members(con: Connection, task_id: int, after: int, limit: int) -> list[TaskInfo]:
    """Return the tasks that lead to this one, by id."""
    return [shown(row) for row in con.execute(MEMBERS, {"id": task_id, "after": after, "limit": limit})]


def member_counts(con: Connection, task_id: int) -> dict[TaskState, int]:
    """Return how many of the tasks that lead to this one are in which state."""
    return dict(con.execute(COUNTS, {"id": task_id}).fetchall())
