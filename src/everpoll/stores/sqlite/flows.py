"""Flows in a file: enqueues tasks that wait for one another, and finds the tasks that a task waits for.

All inside the writer's transaction: no other connection can take a key between the check and the insert.
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

# The ids of one insert are consecutive, so an index in the call is the distance from the first id.
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
    """The rows of a flow, for the writer."""

    call: Call
    links: list[tuple[int, int | None, Takes | None, int]]
    """For each task: its index, the index of the task that waits for it, what it takes, and its number of blockers."""


def call_of(flow: Sequence[FlowTask]) -> FlowCall:
    """Make the rows of a flow, in the caller's thread; raise `BadInput` for values that cannot be stored."""
    check_flow(flow)
    call = plain_call_of([one.task for one in flow])
    links = [
        (place, one.then, one.takes, blockers)
        for place, (one, blockers) in enumerate(zip(flow, blockers_of(flow), strict=True))
    ]
    return FlowCall(call, links)


def enqueue(con: Connection, now: int, flow: FlowCall) -> list[Enqueued]:
    """Insert all of them, or none if a key is taken."""
    rows = flow.call.rows
    holders = live_keys(con, rows)
    taken = [0 if row.key is None else holders.get((row.kind, row.key), 0) for row in rows]
    if any(taken):
        return [Enqueued(holder, is_new=False) for holder in taken]
    first = insert_all(con, now, rows, flow.call.size) - len(rows) + 1
    con.execute(LINK, {"first": first, "rows": encode(flow.links)})
    return [Enqueued(first + place) for place in range(len(rows))]


def members(con: Connection, task_id: int, after: int, limit: int) -> list[TaskInfo]:
    """Return the tasks that this one waits for, or waited for, by id."""
    return [shown(row) for row in con.execute(MEMBERS, {"id": task_id, "after": after, "limit": limit})]


def member_counts(con: Connection, task_id: int) -> dict[TaskState, int]:
    """Return how many of the tasks that this one waits for, or waited for, are in each state."""
    return dict(con.execute(COUNTS, {"id": task_id}).fetchall())
