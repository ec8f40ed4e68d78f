"""Leasing: promote what has fallen due, pick the best, mark it as held. Two to four statements, one transaction.

Promises: a row that waits for its time is not in the ready index, so a lease costs the same beside a million of them.
A look that finds nothing writes nothing and takes no lock: other processes do not hear it, nor wait for it.
Of more than PROMOTE_LIMIT tasks that fall due between two looks the earliest come first whatever their priority, so
that no look holds the write lock long; the following looks promote the rest.
"""

# ruff: noqa: S608 - only the statements of this file are put together

import heapq
from collections.abc import Callable, Iterable
from typing import NamedTuple

import msgspec

from everpoll.drivers.sqlite.connection import Connection
from everpoll.errors import LeaseLost
from everpoll.stores.contract import LEASE_LIMIT, Lease, Leased, encode

PROMOTE_LIMIT = 5_000
"""7 to 20 ms."""

IS_CURRENT = "select 1 from everpoll_workers where incarnation = ? and stopped_at is null"
# INDEXED BY: the plan must not depend on statistics, should somebody run ANALYZE; if it cannot be had, it is an error.
NEXT_DUE = """select due_at from everpoll_tasks indexed by everpoll_tasks_waiting
    where is_due = 0 and queue = ? order by due_at limit 1"""
PROMOTE = """update everpoll_tasks set is_due = 1 where id in
    (select id from everpoll_tasks indexed by everpoll_tasks_waiting
     where is_due = 0 and queue = ? and due_at <= ? order by due_at limit ?)"""
IS_READY = """select exists (select 1 from everpoll_tasks indexed by everpoll_tasks_ready
    where is_due = 1 and is_leased = 0 and queue = ?)"""
BEST = """select id from everpoll_tasks indexed by everpoll_tasks_ready
    where is_due = 1 and is_leased = 0 and queue = :queue order by rank, due_at, id limit :limit"""
LINE = """select rank, due_at, id from everpoll_tasks indexed by everpoll_tasks_ready
    where is_due = 1 and is_leased = 0 and queue = ? order by rank, due_at, id limit ?"""
# All rows as one text, decoded in one go: 0.97 us a row, against 1.03 for rows that cross over one by one.
ROWS = """json_group_array(json_array(t.id, t.sequence + 1, t.attempt + 1, t.name, t.queue, t.args, t.memory,
    t.key, t.rescues, t.version))"""
PICK = f"select {ROWS} from json_each(?) j cross join everpoll_tasks t where t.id = j.value"
HOLD = """update everpoll_tasks
    set is_leased = 1, owner = :owner, sequence = sequence + 1, attempt = attempt + 1, started_at = :now,
        deadline_ms = :steady + timeout_us / 1000
    where id in ({ids})"""
HOLD_THESE = HOLD.format(ids="select value from json_each(:ids)")
# One queue, the ordinary case, in two statements. Each of them waits for the interpreter's lock when it returns, and
# under a busy event loop that is most of its time.
# Only watches are leased although somebody wants them canceled: which ones is asked only if there is anything canceled.
IS_ASKED = "select exists (select 1 from everpoll_tasks indexed by everpoll_tasks_cancels where cancel_requested = 1)"
ASKED = """select t.id from json_each(?) j cross join everpoll_tasks t
    where t.id = j.value and t.cancel_requested = 1"""
LOOK = f"""select exists ({IS_CURRENT.replace("?", ":owner")}), ({NEXT_DUE.replace("?", ":queue")}), ({IS_ASKED}),
    (select {ROWS} from ({BEST}) j cross join everpoll_tasks t where t.id = j.id)"""
HOLD_BEST = HOLD.format(ids=BEST)


class _Picked(Lease, array_like=True, frozen=True, gc=False):
    """A lease as SQLite writes it."""


_decode: Callable[[str], list[Lease]] = msgspec.json.Decoder(list[_Picked]).decode  # type: ignore[assignment]


class Look(NamedTuple):
    """What one look asks for."""

    incarnation: int
    rooms: dict[str, int]
    most: int

    def limit(self, room: int) -> int:
        """How many one queue may give."""
        return min(room, self.most, LEASE_LIMIT)


def peek(con: Connection, now: int, look: Look) -> Leased | None:
    """The answer, where nothing is ready and nothing has fallen due; None: there is something to write."""
    _check_current(con, look.incarnation)
    next_due = _next_due(con, look.rooms)
    if next_due is not None and next_due <= now:
        return None
    if any(
        look.limit(room) > 0 and con.execute(IS_READY, (queue,)).fetchone()[0] for queue, room in look.rooms.items()
    ):
        return None
    return _leased([], next_due, now, look)


def lease(con: Connection, now: int, steady: int, look: Look) -> Leased:
    """Lease the best."""
    limits = {queue: look.limit(room) for queue, room in look.rooms.items()}
    if len(limits) == 1:
        [(queue, limit)] = limits.items()
        return _lease_of_one(con, now, steady, look, queue, limit)
    _check_current(con, look.incarnation)
    for queue in limits:
        _promote(con, now, queue, _next_due(con, [queue]))
    next_due = _next_due(con, look.rooms)
    lines = [con.execute(LINE, bound).fetchall() for bound in limits.items() if bound[1] > 0]
    ids = encode([row[2] for row in list(heapq.merge(*lines))[: look.limit(LEASE_LIMIT)]])
    leases = _decode(con.execute(PICK, (ids,)).fetchone()[0])
    if leases:
        con.execute(HOLD_THESE, {"owner": look.incarnation, "now": now, "steady": steady, "ids": ids})
        if con.execute(IS_ASKED).fetchone()[0]:
            leases = _asked(con, leases)
    return _leased(leases, next_due, now, look)


def _lease_of_one(con: Connection, now: int, steady: int, look: Look, queue: str, limit: int) -> Leased:
    bound = {"owner": look.incarnation, "queue": queue, "limit": max(0, limit)}
    is_current, next_due, is_asked, rows = con.execute(LOOK, bound).fetchone()
    if not is_current:
        raise _lost(look.incarnation)
    if _promote(con, now, queue, next_due):
        _, next_due, is_asked, rows = con.execute(LOOK, bound).fetchone()
    leases = _decode(rows)
    if leases:
        con.execute(HOLD_BEST, {**bound, "now": now, "steady": steady})
        if is_asked:
            leases = _asked(con, leases)
    return _leased(leases, next_due, now, look)


def _asked(con: Connection, leases: list[Lease]) -> list[Lease]:
    """The same, with what somebody wants canceled."""
    ids = {task_id for (task_id,) in con.execute(ASKED, (encode([one.id for one in leases]),))}
    return [msgspec.structs.replace(one, cancel_requested=True) if one.id in ids else one for one in leases]


def _promote(con: Connection, now: int, queue: str, next_due: int | None) -> bool:
    if next_due is None or next_due > now:
        return False
    con.execute(PROMOTE, (queue, now, PROMOTE_LIMIT))
    return True


def _check_current(con: Connection, incarnation: int) -> None:
    if con.execute(IS_CURRENT, (incarnation,)).fetchone() is None:
        raise _lost(incarnation)


def _lost(incarnation: int) -> LeaseLost:
    return LeaseLost(f"worker {incarnation} was given up for dead: sign on anew")


def _next_due(con: Connection, queues: Iterable[str]) -> int | None:
    rows = (con.execute(NEXT_DUE, (queue,)).fetchone() for queue in queues)
    return min((row[0] for row in rows if row is not None), default=None)


def _leased(leases: list[Lease], next_due: int | None, now: int, look: Look) -> Leased:
    is_full = len(leases) == look.limit(LEASE_LIMIT)
    next_due_s = None if is_full or next_due is None else (next_due - now) / 1e6
    return Leased(leases, next_due_s, at=now / 1e6, is_all=not is_full)
