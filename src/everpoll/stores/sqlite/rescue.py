"""Sign-on, heartbeat and sign-off of workers, and the rescue of tasks that dead workers held.

Promises: no clock decides that a worker is dead; another worker does, once it has seen that its beat number does not
change (`policy/liveness.py`). A rescue reads leased rows only, as many as there are busy slots, by an index. The index
costs about 0.3 us for each task, less than the error of the measurement; without it each rescue would read all live
rows under the write lock (prototype: 60 ms for 500,000).
"""

# ruff: noqa: S608 - only the conditions of this module are put into SQL

import logging
import sqlite3
from collections.abc import Sequence
from typing import Any

from everpoll.drivers.sqlite.connection import Connection
from everpoll.policy.liveness import OtherWorker
from everpoll.stores.contract import RESCUE_LIMIT, Beat, EndState, NewEvent, Rescued, WorkerCard, encode
from everpoll.stores.sqlite import feed
from everpoll.stores.sqlite.ends import end
from everpoll.stores.sqlite.moves import End, Requeue, requeue
from everpoll.stores.task_events import LOST_WORKER, OVERDUE, rescued_event

logger = logging.getLogger("everpoll.stores")

SIGN_ON = """insert or replace into everpoll_workers
    (incarnation, label, host, pid, queues, slots, version, lease_s, started_at, beat_at, names)
    values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
SIGN_OFF = "update everpoll_workers set stopped_at = ? where incarnation = ? and stopped_at is null"
BEAT = """update everpoll_workers set beat_at = ?, beats = beats + 1, lease_s = ?
    where incarnation = ? and stopped_at is null"""
OTHERS = "select incarnation, beats, lease_s from everpoll_workers where stopped_at is null and incarnation <> ?"
DECLARE_DEAD = """update everpoll_workers set stopped_at = :now where stopped_at is null and exists
    (select 1 from json_each(:dead) j where j.value ->> 0 = incarnation and j.value ->> 1 = beats)"""
STOPPED = """from everpoll_tasks t indexed by everpoll_tasks_leased
    left join everpoll_workers w on w.incarnation = t.owner
    where t.is_leased = 1 and (w.incarnation is null or w.stopped_at is not null"""
HAS_LEFTOVERS = f"select exists (select 1 {STOPPED}))"
LOST = f"""select t.id, t.sequence, w.label, w.stopped_at is null and w.incarnation is not null,
        t.started_at, t.rescues + 1, t.cancel_requested and not t.cancels_itself
    {STOPPED} or (t.owner = :owner and exists
        (select 1 from json_each(:overdue) j where j.value ->> 0 = t.id and j.value ->> 1 = t.sequence)))
    order by t.id"""
CANCELS = "select id from everpoll_tasks where cancel_requested = 1"


def sign_on(con: Connection, now: int, card: WorkerCard, lease_s: float) -> None:
    """Add a worker."""
    about = (card.incarnation, card.label, card.host, card.pid, encode(card.queues), card.slots, card.version)
    con.execute(SIGN_ON, (*about, lease_s, now, now, encode(card.names)))


def sign_off(con: Connection, now: int, incarnation: int) -> None:
    """Record that the worker has ended."""
    con.execute(SIGN_OFF, (now, incarnation))


def beat(con: Connection, now: int, incarnation: int, lease_s: float, running: Sequence[int]) -> Beat:
    """Count a beat of this worker; see the contract."""
    if con.execute(BEAT, (now, lease_s, incarnation)).rowcount == 0:
        return Beat(is_alive=False)
    wanted = cancels(con)
    return Beat(
        is_alive=True,
        canceled=tuple(one for one in running if one in wanted),
        others=tuple(OtherWorker(*row) for row in con.execute(OTHERS, (incarnation,))),
        has_leftovers=bool(con.execute(HAS_LEFTOVERS).fetchone()[0]),
    )


Fences = Sequence[tuple[int, int]]


def rescue(con: Connection, now: int, incarnation: int, dead: Fences, overdue: Fences) -> Rescued:
    """Declare workers dead, and take back their tasks, those of stopped workers, and overdue ones."""
    if dead:
        con.execute(DECLARE_DEAD, {"now": now, "dead": encode(dead)})
    lost = con.execute(LOST, {"owner": incarnation, "overdue": encode(overdue)}).fetchall()
    try:
        return _taken_back(con, now, lost)
    except sqlite3.IntegrityError:
        # A user's trigger or constraint refuses one of them: rescue each alone, so that the others are not delayed.
        alone = [_taken_back_alone(con, now, one) for one in lost]
        return Rescued(sum(one.tasks for one in alone), tuple(task_id for one in alone for task_id in one.ended))


def _taken_back_alone(con: Connection, now: int, lost: tuple[Any, ...]) -> Rescued:
    try:
        return _taken_back(con, now, [lost])
    except sqlite3.IntegrityError as error:
        logger.warning("task %d cannot be taken back: %s", lost[0], error)
        return Rescued()


def _taken_back(con: Connection, now: int, lost: Sequence[tuple[Any, ...]]) -> Rescued:
    """Rescue these tasks, all or none: each is queued again, or ends."""
    ends: list[End] = []
    rows: list[Requeue] = []
    events: list[tuple[int, tuple[NewEvent, ...]]] = []
    for task_id, sequence, label, is_alive, started_at, rescues, is_canceled in lost:
        poison = rescues >= RESCUE_LIMIT
        why = OVERDUE if is_alive else LOST_WORKER
        entry = _entry(
            now,
            what="failed" if poison else "rescue",
            why=why,
            worker=label,
            started_at=started_at / 1e6,
            rescues=rescues,
        )
        if is_canceled or poison:
            state: EndState = "canceled" if is_canceled else "failed"
            ends.append(End(task_id, sequence, state, entry=entry, refund=1, rescued=1))
            events.append((task_id, (rescued_event(state, why, rescues),)))
        else:
            rows.append(Requeue(task_id, sequence, None, entry, refund=1, rescued=1))
    con.execute("savepoint take_back")
    try:
        feed.add(con, now, events)
        end(con, now, ends)
        requeue(con, now, rows)
    except sqlite3.Error:
        con.execute("rollback to take_back")
        raise
    finally:
        con.execute("release take_back")
    return Rescued(len(lost), tuple(one.id for one in ends))


def _entry(now: int, **fields: Any) -> str:
    return encode({"at": now / 1e6, "by": "rescue", **fields})


def cancels(con: Connection) -> frozenset[int]:
    """Return the live tasks whose cancel was requested."""
    return frozenset(task_id for (task_id,) in con.execute(CANCELS))
