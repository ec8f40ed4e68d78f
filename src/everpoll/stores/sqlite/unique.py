"""Taken keys: ended tasks that still have their key, and queued tasks that another enqueue replaces.

All inside the writer's transaction: no other connection can change the holder of a key between the check and the write.
"""

# ruff: noqa: S608 - only the column lists of this package are put into SQL

from typing import NamedTuple

from everpoll.drivers.sqlite.connection import Connection
from everpoll.stores.sqlite.clock import microseconds
from everpoll.stores.sqlite.moves import longer_trail, trail_entry
from everpoll.stores.sqlite.new_rows import Row, Special
from everpoll.stores.task_events import REPLACED

ENDED = """select id from everpoll_history indexed by everpoll_history_key
    where indexed = 1 and kind = ? and key = ? and created_at > ? order by ended_at desc, id desc limit 1"""
# A task that takes the result of other tasks has some of its arguments from them: it goes on, like a running one.
OF_KEY = (
    "select id, is_leased or takes is not null, trail ->> '$[#-1].what' from everpoll_tasks where key = ? and kind = ?"
)
LET_GO = "update everpoll_tasks set key = null where id = ?"
FORGET_LAST = "update everpoll_tasks set trail = json_remove(trail, '$[#-1]') where id = ?"
REPLACE = f"""update everpoll_tasks as t set
        due_at = :now + :delay_us, line = :line, name = :name, args = :args, queue = :queue, rank = :rank,
        timeout_s = :timeout_s, memory = :memory, version = :version, indexed = max(t.indexed, :indexed),
        limit_key = :limit_key, limit_running = :limit_running, limit_starts = :limit_starts,
        limit_per_s = :limit_per_s, attempt = 0, rescues = 0, progress = null, started_at = null, error_type = null,
        trail = {longer_trail(":entry")}
    where t.id = :id"""


class Replaced(NamedTuple):
    """The result for the live task that had the key."""

    task_id: int | None = None
    """The id of the queued task that got the values of the new one."""
    has_lost_key: bool = False
    """True if the task runs, or takes results of other tasks, and goes on without the key."""


def ended(con: Connection, now: int, row: Row, special: Special) -> int | None:
    """Return the ended task that still has the key."""
    if special.once:
        since = -1
    elif special.unique is not None and special.unique.for_s is not None:
        since = now - microseconds(special.unique.for_s)
    else:
        return None
    found = con.execute(ENDED, (row.kind, row.key, since)).fetchone()
    return None if found is None else int(found[0])


def replace(con: Connection, now: int, row: Row, line: int) -> Replaced:
    """Replace the values of the queued task that has the key."""
    found = con.execute(OF_KEY, (row.key, row.kind)).fetchone()
    if found is None:
        return Replaced()
    task_id, goes_on, last = found
    if goes_on:
        con.execute(LET_GO, (task_id,))
        return Replaced(has_lost_key=True)
    if last == "replaced":
        con.execute(FORGET_LAST, (task_id,))
    bound = {**row._asdict(), "id": task_id, "now": now, "line": line, "entry": trail_entry(REPLACED, now, "")}
    con.execute(REPLACE, bound)
    return Replaced(task_id)
