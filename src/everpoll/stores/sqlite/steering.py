"""What people and handlers do to one task: cancel it, put it back, say how far it is, note a loss.

All inside the writer's transaction. `by` is empty unless the note itself says who it was.
"""

# ruff: noqa: S608 - only the column lists of this package are put into SQL

from collections.abc import Sequence

from everpoll.drivers.sqlite.connection import Connection
from everpoll.stores.contract import TaskState
from everpoll.stores.sqlite.moves import COPIED, End, end, longer_trail, trail_entry

LIVE = "select sequence, is_leased, cancels_itself from everpoll_tasks where id = ?"
ENDED = "select state from everpoll_history where id = ?"
MARK = "update everpoll_tasks set cancel_requested = 1 where id = ?"
REQUEST = f"""update everpoll_tasks as t set cancel_requested = 1, trail = {longer_trail(":entry")} where t.id = :id"""
# A task that cancels itself learns of it as soon as can be: it is due now. One that runs was due before it began, and
# now is after that, so that its settlement can tell that it did not know.
ASK = f"""update everpoll_tasks as t set cancel_requested = 1, trail = {longer_trail(":entry")},
        due_at = iif(t.is_leased, max(:now, t.started_at + 1), min(:now, t.due_at)), line = 0
    where t.id = :id"""
_FRESH = {"due_at": ":now", "owner": "null", "started_at": "null", "cancel_requested": "0", "progress": "null"}
_KEPT = ", ".join(_FRESH.get(column.strip(), f"h.{column.strip()}") for column in COPIED.split(","))
REVIVE = f"""insert into everpoll_tasks (id, line, memory, trail, {COPIED})
    select h.id, 0, h.memory, {longer_trail(":entry", "h")}, {_KEPT} from everpoll_history h
    where h.id = :id and (h.key is null or not exists
        (select 1 from everpoll_tasks t where t.key = h.key and t.kind = h.kind))"""
FORGET = "delete from everpoll_history where id = ?"
PROGRESS = """update everpoll_tasks set progress = ?
    where id = ? and owner = ? and sequence = ? and is_leased = 1"""
NOTE_LOSS = "insert into everpoll_losses (task_id, at, note) values (?, ?, ?)"


def cancel(con: Connection, now: int, task_id: int, note: str) -> TaskState | None:
    """End a queued task, ask for the end of a running one, or of one that cancels itself; its state after that."""
    live = con.execute(LIVE, (task_id,)).fetchone()
    if live is None:
        ended: tuple[TaskState] | None = con.execute(ENDED, (task_id,)).fetchone()
        return None if ended is None else ended[0]
    sequence, is_leased, cancels_itself = live
    entry = trail_entry(note, now, "")
    if cancels_itself:
        con.execute(ASK, {"id": task_id, "now": now, "entry": entry})
        return "running" if is_leased else "queued"
    if is_leased:
        con.execute(REQUEST, {"id": task_id, "entry": entry})
        return "running"
    con.execute(MARK, (task_id,))
    end(con, now, [End(task_id, sequence, "canceled", None, entry)])
    return "canceled"


def cancel_many(con: Connection, now: int, requests: Sequence[tuple[int, str]]) -> dict[int, TaskState | None]:
    """The same for many tasks; their states after that."""
    return {task_id: cancel(con, now, task_id, note) for task_id, note in requests}


def retry(con: Connection, now: int, task_id: int, note: str) -> bool:
    """Put an ended task back with fresh attempts; its sequence goes on, so that old leases stay lost."""
    bound = {"id": task_id, "now": now, "entry": trail_entry(note, now, "")}
    if con.execute(REVIVE, bound).rowcount == 0:
        return False
    con.execute(FORGET, (task_id,))
    return True


def progress(con: Connection, incarnation: int, task_id: int, sequence: int, text: str) -> bool:
    """Store it, if the task still is held."""
    return con.execute(PROGRESS, (text, task_id, incarnation, sequence)).rowcount == 1


def note_loss(con: Connection, now: int, task_id: int, note: str) -> None:
    """Record that a result was dropped."""
    con.execute(NOTE_LOSS, (task_id, now, note))
