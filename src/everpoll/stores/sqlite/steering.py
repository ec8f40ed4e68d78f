"""Steering: operations on one task by operators and handlers: cancel, retry, delete, revise, progress, loss.

All run inside the writer's transaction. `by` is empty unless the note names the actor.
"""

# ruff: noqa: S608 - only the column lists of this package are put into SQL

from collections.abc import Mapping, Sequence

from everpoll.drivers.sqlite.connection import Connection
from everpoll.stores.contract import NewEvent, TaskState, encode
from everpoll.stores.flows import BLOCKED_LINE, INPUT
from everpoll.stores.limits import NUMBER_LIMIT
from everpoll.stores.operations import UNNUMBERED, Deleted, LogEntry, Retried, Revision
from everpoll.stores.set_aside import SET_ASIDE, UNKNOWN_JOB
from everpoll.stores.sqlite import feed
from everpoll.stores.sqlite.ends import end
from everpoll.stores.sqlite.moves import COPIED, End, longer_trail, trail_entry
from everpoll.stores.task_events import with_state

DUE_LINE = "iif(limit_key is null, 0, 3)"
LIVE = "select sequence, is_leased, cancels_itself from everpoll_tasks where id = ?"
ENDED = "select state from everpoll_history where id = ?"
MARK = "update everpoll_tasks set cancel_requested = 1 where id = ?"
REQUEST = f"""update everpoll_tasks as t set cancel_requested = 1, trail = {longer_trail(":entry")} where t.id = :id"""
# A task that cancels itself is due now, so that its next lease carries the request. If it runs, its due time is now
# later than its start, which tells its settlement that the run did not know of the request.
ASK = f"""update everpoll_tasks as t set cancel_requested = 1, trail = {longer_trail(":entry")},
        due_at = iif(t.is_leased, max(:now, t.started_at + 1), min(:now, t.due_at)), line = {DUE_LINE}
    where t.id = :id"""
OF_KEY = "select id, is_leased, args from everpoll_tasks where key = ? and kind = ?"
OF_ID = "select id, is_leased, args from everpoll_tasks where id = ?"
# A task that waits for other tasks goes on waiting, but without its delay after that.
REVISE = f"""update everpoll_tasks set args = coalesce(:args, args), is_revised = is_leased,
        line = iif(line = {BLOCKED_LINE}, line, {DUE_LINE}),
        due_at = iif(line = {BLOCKED_LINE}, created_at, iif(is_leased, due_at, min(:now, due_at)))
    where id = :id"""
REVISE_ARGS = "update everpoll_tasks set args = coalesce(:args, args) where id = :id"
REMEMBER = f"update everpoll_tasks as t set trail = {longer_trail(':entry')} where t.id = :id"
_FRESH = {"due_at": ":now", "owner": "null", "started_at": "null", "cancel_requested": "0", "progress": "null"}
# If the task was canceled before it got the result of the task before, it gets that result now, if there is one.
_INPUT = f"""iif(h.takes = 'result' and substr(h.args, 1, {len(INPUT)}) <> '{INPUT}',
    coalesce((select '{INPUT}' || coalesce(b.result, 'null') || ',' || substr(h.args, 2) from everpoll_history b
              where b.then_id = h.id and b.state = 'done'), h.args), h.args)"""
_FRESH["args"] = _INPUT
_KEPT = ", ".join(_FRESH.get(column.strip(), f"h.{column.strip()}") for column in COPIED.split(","))
REVIVE = f"""insert into everpoll_tasks (id, line, memory, trail, has_told, {COPIED})
    select h.id, {DUE_LINE}, h.memory, {longer_trail(":entry", "h")}, h.then_id is not null, {_KEPT}
    from everpoll_history h where h.id = :id"""
# A task that takes "end" waits again for those of its tasks that are live, and their ends are reported again.
WAIT_AGAIN = """update everpoll_tasks as m set has_told = 0 where m.then_id is not null and m.then_id = :id
    and exists (select 1 from everpoll_tasks t where t.id = :id and t.takes = 'end')"""
BLOCK = f"""update everpoll_tasks set blockers = :members, line = {BLOCKED_LINE}, due_at = created_at
    where id = :id"""
OF_ENDED = "select kind, name, key from everpoll_history where id = ?"
FORGET_LOSSES = "delete from everpoll_losses where task_id = ?"
FORGET = "delete from everpoll_history where id = ?"
PROGRESS = """update everpoll_tasks set progress = ?
    where id = ? and owner = ? and sequence = ? and is_leased = 1"""
NOTE_LOSS = "insert into everpoll_losses (task_id, at, note) values (?, ?, ?)"

IS_SET_ASIDE = f"""line = 1 and is_leased = 0 and error_type = '{UNKNOWN_JOB}'
    and json_extract(trail, '$[#-1].what') = '{SET_ASIDE}'"""
HAS_SET_ASIDE = f"""select exists (select 1 from everpoll_tasks indexed by everpoll_tasks_error
    where error_type = '{UNKNOWN_JOB}')"""
RELEASE_SET_ASIDE = f"""update everpoll_tasks set due_at = min(due_at, created_at), line = {DUE_LINE} where id in (
    select t.id from everpoll_tasks t indexed by everpoll_tasks_error
    join json_each(:versions) v on v.key = t.name and t.version <= v.value
    where {IS_SET_ASIDE} and t.queue in (select value from json_each(:queues)) order by t.id limit :limit)"""


def cancel(con: Connection, now: int, task_id: int, note: str) -> TaskState | None:
    """End a queued task; request the end of one that runs or cancels itself. Return its state after that."""
    live = con.execute(LIVE, (task_id,)).fetchone()
    if live is None:
        ended: tuple[TaskState] | None = con.execute(ENDED, (task_id,)).fetchone()
        return None if ended is None else ended[0]
    sequence, is_leased, cancels_itself = live
    entry = trail_entry(note, now, "")
    state: TaskState = "running" if is_leased else "queued" if cancels_itself else "canceled"
    _add_event(con, now, task_id, with_state(note, state))
    if cancels_itself:
        con.execute(ASK, {"id": task_id, "now": now, "entry": entry})
    elif is_leased:
        con.execute(REQUEST, {"id": task_id, "entry": entry})
    else:
        con.execute(MARK, (task_id,))
        end(con, now, [End(task_id, sequence, "canceled", None, entry)])
    return state


def _add_event(con: Connection, now: int, task_id: int, body: str) -> None:
    """Write an operation on a live task to the feed."""
    feed.add(con, now, [(task_id, (NewEvent(UNNUMBERED, body),))])


def cancel_many(con: Connection, now: int, requests: Sequence[tuple[int, str]]) -> dict[int, TaskState | None]:
    """Cancel many tasks; return their states after that."""
    return {task_id: cancel(con, now, task_id, note) for task_id, note in requests}


def revise(con: Connection, now: int, revisions: Sequence[Revision]) -> list[int | None]:
    """Change live tasks; return their ids."""
    return [_revised(con, now, one) for one in revisions]


def _revised(con: Connection, now: int, revision: Revision) -> int | None:
    by_id = revision.task_id is not None
    if by_id and not 0 < (revision.task_id or 0) <= NUMBER_LIMIT:
        return None
    row = con.execute(OF_ID if by_id else OF_KEY, (revision.task_id,) if by_id else (revision.key, revision.kind))
    found: tuple[int, int, str] | None = row.fetchone()
    if found is None or revision.expects not in {None, found[2]} or (revision.only_queued and found[1]):
        return None
    task_id = found[0]
    if revision.hurry or revision.args not in {None, found[2]}:
        bound = {"id": task_id, "args": revision.args, "now": now}
        con.execute(REVISE_ARGS if revision.keeps_due else REVISE, bound)
        if revision.note is not None:
            con.execute(REMEMBER, {"id": task_id, "entry": trail_entry(revision.note, now, "")})
            _add_event(con, now, task_id, revision.note)
    return task_id


def has_set_aside(con: Connection) -> bool:
    """Return True if some task may be set aside."""
    return bool(con.execute(HAS_SET_ASIDE).fetchone()[0])


def release_set_aside(con: Connection, versions: Mapping[str, int], queues: Sequence[str], limit: int) -> int:
    """Make tasks due that were set aside; return how many."""
    bound = {"versions": encode(dict(versions)), "queues": encode(list(queues)), "limit": limit}
    return con.execute(RELEASE_SET_ASIDE, bound).rowcount


def retry(con: Connection, now: int, task_id: int, note: str) -> Retried:
    """Put an ended task back with fresh attempts; its sequence goes on, so that old leases stay lost."""
    ended = con.execute(OF_ENDED, (task_id,)).fetchone()
    if ended is None:
        return Retried("live" if con.execute(LIVE, (task_id,)).fetchone() else "unknown")
    kind, _, key = ended
    if key is not None and (holder := con.execute(OF_KEY, (key, kind)).fetchone()) is not None:
        return Retried("key_taken", holder[0])
    con.execute(REVIVE, {"id": task_id, "now": now, "entry": trail_entry(note, now, "")})
    con.execute(FORGET, (task_id,))
    if members := con.execute(WAIT_AGAIN, {"id": task_id}).rowcount:
        con.execute(BLOCK, {"id": task_id, "members": members})
    _add_event(con, now, task_id, note)
    return Retried("queued")


def delete(con: Connection, now: int, task_id: int, note: str) -> Deleted:
    """Delete an ended task; its events stay."""
    ended = con.execute(OF_ENDED, (task_id,)).fetchone()
    if ended is None:
        return "live" if con.execute(LIVE, (task_id,)).fetchone() else "unknown"
    kind, name, key = ended
    con.execute(FORGET, (task_id,))
    con.execute(FORGET_LOSSES, (task_id,))
    feed.log(con, now, [LogEntry(kind, name, note, key, task_id)])
    return "deleted"


def progress(con: Connection, incarnation: int, task_id: int, sequence: int, text: str) -> bool:
    """Store the progress if the task is still leased."""
    return con.execute(PROGRESS, (text, task_id, incarnation, sequence)).rowcount == 1


def note_loss(con: Connection, now: int, task_id: int, note: str) -> None:
    """Record that a result was dropped."""
    con.execute(NOTE_LOSS, (task_id, now, note))
