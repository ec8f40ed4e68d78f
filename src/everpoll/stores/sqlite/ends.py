"""Ends: tasks move to history, and their ends are reported to the tasks that wait for them, in one transaction.

Promises: every end uses this module, except ordinary ends of tasks for which no other task waits (`settling`). An end
is reported once. A chain is canceled to its last task, however long it is.
"""

from collections.abc import Sequence

from everpoll.drivers.sqlite.connection import Connection
from everpoll.stores.contract import NewEvent, encode
from everpoll.stores.flows import BLOCKED_LINE, Blocked, Link, apply_ends, cause_of
from everpoll.stores.operations import UNNUMBERED
from everpoll.stores.sqlite import feed
from everpoll.stores.sqlite.moves import End, put_away, trail_entry

LINKED = """select t.id, t.then_id, t.name from json_each(?) j cross join everpoll_tasks t
    where t.id = j.value and t.then_id is not null and t.has_told = 0"""
BLOCKED = f"""select t.id, t.takes, t.blockers, t.sequence from json_each(?) j cross join everpoll_tasks t
    where t.id = j.value and t.line = {BLOCKED_LINE}"""  # noqa: S608 - a number of this package
FEWER = "update everpoll_tasks set blockers = ? where id = ?"
# Its delay, the time from its enqueue to its due time, begins now.
UNBLOCK = """update everpoll_tasks set blockers = 0, due_at = :now + max(0, due_at - created_at),
        line = iif(due_at > created_at, 1, iif(limit_key is null, 0, 3)),
        args = iif(:result is null, args, '{"input":' || :result || ',' || substr(args, 2))
    where id = :id returning due_at - :now"""


def end(con: Connection, now: int, ends: Sequence[End], others: Sequence[Link] = ()) -> int | None:
    """End these tasks; return in how many microseconds the first task that waited for them falls due, or None.

    `others`: links of tasks that are in history already, to be reported with these.
    """
    links = list(others)
    if ends:
        links += _links(con, ends)
        put_away(con, now, ends)
    due_us: list[int] = []
    while links:
        links = _report(con, now, links, due_us)
    return min(due_us, default=None)


def _links(con: Connection, ends: Sequence[End]) -> list[Link]:
    linked = con.execute(LINKED, (encode([one.id for one in ends]),)).fetchall()
    by_id = {one.id: one for one in ends} if linked else {}
    return [
        Link(then_id, by_id[task_id].state, by_id[task_id].result, task_id, name, by_id[task_id].state)
        for task_id, then_id, name in linked
    ]


def _report(con: Connection, now: int, links: Sequence[Link], due_us: list[int]) -> list[Link]:
    """Report these ends to the tasks that wait for them; return the ends of tasks that are canceled for that."""
    rows = con.execute(BLOCKED, (encode(sorted({link.then_id for link in links})),)).fetchall()
    reports = apply_ends(links, [Blocked(*row[:3]) for row in rows])
    for task_id, blockers in reports.fewer:
        con.execute(FEWER, (blockers, task_id))
    for task_id, result in reports.unblocked:
        due_us += con.execute(UNBLOCK, {"now": now, "id": task_id, "result": result}).fetchone()
    if not reports.canceled:
        return []
    sequences = {row[0]: row[3] for row in rows}
    causes = dict(reports.canceled)
    notes = {task_id: encode(cause_of(link)) for task_id, link in causes.items()}
    ends = [
        End(task_id, sequences[task_id], "canceled", entry=trail_entry(note, now, ""))
        for task_id, note in notes.items()
    ]
    feed.add(con, now, [(task_id, (NewEvent(UNNUMBERED, note),)) for task_id, note in notes.items()])
    further = _links(con, ends)
    put_away(con, now, ends)
    return [causes[one.cause_id]._replace(then_id=one.then_id, state="canceled", result=None) for one in further]
