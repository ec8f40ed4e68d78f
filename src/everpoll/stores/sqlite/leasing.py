"""Leasing: promotes tasks that have fallen due, picks the best, and leases them.

A poll is one transaction of two to four statements.

Promises: a row that waits for its time is not in the ready index, so a lease costs the same beside a million of them. A
poll that finds nothing writes nothing and takes no lock, so it does not delay other processes. One poll returns at most
LEASE_BYTES of payloads, and at least one task; if there is more, it leases the best tasks only. If more than
PROMOTE_LIMIT tasks fall due between two polls, the first poll promotes the earliest of them, whatever their priority,
so that it does not hold the write lock for long; the following polls promote the rest.
"""

import heapq
import sqlite3
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from typing import NamedTuple

import msgspec

from everpoll.drivers.sqlite.connection import Connection
from everpoll.errors import LeaseLost
from everpoll.stores import limits
from everpoll.stores.contract import ALIKE_SHARE, LEASE_LIMIT, Lease, Leased, Limit, encode
from everpoll.stores.sqlite.limited import (
    AGED,
    HAS_LIMITED,
    LOWEST_RANK,
    Candidate,
    Startable,
    Visit,
    has_limited,
    note_starts,
    ranks_of,
    startable,
)

PROMOTE_LIMIT = 5_000
"""How many tasks one poll promotes; this takes 7 to 20 ms."""

IS_CURRENT = "select 1 from everpoll_workers where incarnation = ? and stopped_at is null"
# INDEXED BY: the plan must not depend on statistics, if ANALYZE was ever run; without that index it is an error.
NEXT_DUE = """select due_at from everpoll_tasks indexed by everpoll_tasks_waiting
    where line = 1 and queue = ? order by due_at limit 1"""
PROMOTE = """update everpoll_tasks set line = iif(limit_key is null, 0, 3) where id in
    (select id from everpoll_tasks indexed by everpoll_tasks_waiting
     where line = 1 and queue = ? and due_at <= ? order by due_at limit ?)"""
IS_READY = """select exists (select 1 from everpoll_tasks indexed by everpoll_tasks_ready
    where line = 0 and is_leased = 0 and queue = ?)"""
BEST = """select id from everpoll_tasks indexed by everpoll_tasks_ready
    where line = 0 and is_leased = 0 and queue = :queue order by rank, due_at, id limit :limit"""
LINE = """select rank, due_at, id, queue from everpoll_tasks indexed by everpoll_tasks_ready
    where line = 0 and is_leased = 0 and queue = ? order by rank, due_at, id limit ?"""
NEXT_RANK = """select rank from everpoll_tasks indexed by everpoll_tasks_ready
    where line = 0 and is_leased = 0 and queue = ? and rank > ? order by rank limit 1"""
AGED_OF_RANK = """select due_at, id from everpoll_tasks indexed by everpoll_tasks_ready
    where line = 0 and is_leased = 0 and queue = ? and rank = ? and due_at < ? order by due_at, id limit ?"""
RANKS_LIMIT = 100
"""How many priorities of one queue a poll searches for aged tasks."""
# All rows as one text, decoded at once: 0.97 us for each row, and 1.03 if rows are fetched one by one.
_ROWS = """json_array(json_group_array(json_array(t.id, t.sequence + 1, t.attempt + 1, t.name, t.queue, t.args,
    t.memory, t.key, t.rescues, t.version)), {waited})"""
ROWS = _ROWS.format(waited="json_group_array(:now - t.due_at)")
ROWS_ALIKE = _ROWS.format(waited="json_array(:now - (coalesce(best.first, :now) + coalesce(best.last, :now)) / 2)")
# The newer function does not read payloads that are on pages of their own.
_BYTES = "octet_length({})" if sqlite3.sqlite_version_info >= (3, 43) else "length(cast({} as blob))"
SIZE = f"{_BYTES.format('t.args')} + coalesce({_BYTES.format('t.memory')}, 0)"
THESE = "from json_each(:ids) j cross join everpoll_tasks t where t.id = j.value"
TOTAL = f"select total({SIZE}) {THESE}"
SIZES = f"select t.id, {SIZE} {THESE}"
PICK = f"select {ROWS} {THESE}"
HOLD = """update everpoll_tasks
    set is_leased = 1, owner = :owner, sequence = sequence + 1, attempt = attempt + 1, started_at = :now
    where id in ({ids})"""
HOLD_THESE = HOLD.format(ids="select value from json_each(:ids)")
# One queue, the ordinary case, takes two statements. Each waits for the interpreter's lock when it returns, and beside
# a busy event loop that is most of its time. Of the tasks that a caller canceled, only those with `cancels_itself` are
# leased. They are marked, which takes a query, only if there are any.
IS_ASKED = "select exists (select 1 from everpoll_tasks indexed by everpoll_tasks_cancels where cancel_requested = 1)"
ASKED = """select t.id from json_each(?) j cross join everpoll_tasks t
    where t.id = j.value and t.cancel_requested = 1"""
# Returns no rows if their payloads are too large for one poll. This check costs 0.2 us for each row; a running sum
# costs 0.6. The same query decides whether one waiting time stands for all (ALIKE_SHARE).
_BEST_ROWS = f"from ({BEST}) j cross join everpoll_tasks t where t.id = j.id"
IS_PAUSED = "select exists (select 1 from everpoll_pauses where queue = ?)"
POLL = f"""select exists ({IS_CURRENT.replace("?", ":owner")}), ({NEXT_DUE.replace("?", ":queue")}), ({IS_ASKED}),
    ({IS_PAUSED.replace("?", ":queue")}),
    case when ({NEXT_DUE.replace("?", ":queue")}) <= :until then null
        when :asks_limits and ({HAS_LIMITED.replace("?", ":queue")}) then null else (
        select case when best.bytes > :bytes then null
            when best.last - best.first > (:now - best.last) * {ALIKE_SHARE} then (select {ROWS} {_BEST_ROWS})
            else (select {ROWS_ALIKE} {_BEST_ROWS}) end
        from (select total({SIZE}) as bytes, min(t.due_at) as first, max(t.due_at) as last {_BEST_ROWS}) best) end"""  # noqa: S608 - only texts of this module are put into SQL
HOLD_BEST = HOLD.format(ids=BEST)


class _Picked(Lease, array_like=True, frozen=True, gc=False):
    """A lease as SQLite writes it."""


_Found = tuple[list[Lease], list[int]]
"""Leases, and how many microseconds each task had been due."""
_decode: Callable[[str], _Found] = msgspec.json.Decoder(tuple[list[_Picked], list[int]]).decode  # type: ignore[assignment]


class Poll(NamedTuple):
    """The parameters of one poll."""

    incarnation: int
    rooms: dict[str, int]
    most: int
    is_heavy: bool = False
    """True if the poll before found more payload than one poll returns: this one adds up the sizes task by task."""
    limits: Mapping[str, Limit] = {}
    """The limits in the worker's own code."""
    asks_limits: bool = True
    """True if the poll asks for limited tasks."""
    turns: Mapping[str, str] = {}
    """The key of a limit that was served last in each queue."""
    aging_us: int | None = None
    """Tasks that have been due for longer than this come first; None: this poll does not ask for them."""
    aged_after: str = ""
    """The last key of a limit that a poll for aged tasks has visited."""

    def limit(self, room: int) -> int:
        """Return how many tasks of one queue this poll may lease."""
        return min(room, self.most, LEASE_LIMIT)


class Polled(NamedTuple):
    """The result of a poll, and what the next poll must know."""

    leased: Leased
    visited: int | None = None
    """How many keys of limits were visited; None: the poll did not ask for limited tasks."""
    started: int = 0
    took_s: float = 0.0
    turns: Mapping[str, str] = {}
    has_aged: bool = False
    aged_after: str = ""


def peek(con: Connection, now: int, poll: Poll) -> Polled | None:
    """Return the answer if no task may be leased or promoted; None if the poll has to write."""
    _check_current(con, poll.incarnation)
    open_rooms = _open(con, poll.rooms)
    next_due = _next_due(con, open_rooms)
    if next_due is not None and next_due <= now:
        return None
    rooms = {queue: poll.limit(room) for queue, room in open_rooms.items()}
    poll = _aging(con, poll, rooms)
    if any(room > 0 and con.execute(IS_READY, (queue,)).fetchone()[0] for queue, room in rooms.items()):
        return None
    limited = _startable(con, now, poll, rooms)
    if limited is None:
        return Polled(_leased(([], []), next_due, now, poll))
    if limited.candidates:
        return None
    return _polled(([], []), _sooner(next_due, limited.opens_at), now, poll, limited)


def lease(con: Connection, now: int, poll: Poll) -> Polled:
    """Lease the best tasks."""
    if len(poll.rooms) == 1 and not poll.is_heavy and poll.aging_us is None:
        [(queue, room)] = poll.rooms.items()
        leased = _lease_of_one(con, now, poll, queue, poll.limit(room))
        if leased is not None:
            return Polled(leased)
    _check_current(con, poll.incarnation)
    rooms = _open(con, {queue: poll.limit(room) for queue, room in poll.rooms.items()})
    for queue in rooms:
        _promote(con, now, queue, _next_due(con, [queue]))
    next_due = _next_due(con, rooms)
    poll = _aging(con, poll, rooms)
    limited = _startable(con, now, poll, rooms)
    aged = _aged(con, now, poll, rooms)
    lines = [con.execute(LINE, bound).fetchall() for bound in rooms.items() if bound[1] > 0]
    of_limits = {} if limited is None else {one.id: one for one in limited.candidates}
    best = _best(aged, lines, limited, rooms, poll.limit(LEASE_LIMIT), of_limits)
    found = _lease_these(con, now, poll, best)
    if of_limits:
        found = (_with_limits(con, now, found[0], of_limits), found[1])
    if limited is not None:
        next_due = _sooner(next_due, limited.opens_at)
    return _polled(found, next_due, now, poll, limited, has_aged=bool(aged), is_cut=len(found[0]) < len(best))


def _startable(con: Connection, now: int, poll: Poll, rooms: Mapping[str, int]) -> Startable | None:
    """Return the limited tasks that may start; None if none is due, or this poll does not ask."""
    if not poll.asks_limits or not any(room > 0 and has_limited(con, queue) for queue, room in rooms.items()):
        return None
    aged_before = None if poll.aging_us is None else now - poll.aging_us
    visit = Visit(now, poll.limits, poll.turns, aged_before, poll.aged_after)
    began = time.perf_counter()
    found = startable(con, visit, rooms, poll.limit(LEASE_LIMIT))
    found.took_s = time.perf_counter() - began
    return found


def _aging(con: Connection, poll: Poll, rooms: Mapping[str, int]) -> Poll:
    """Return the same poll, without aging if all due tasks have one priority: keys then go on taking turns."""
    if poll.aging_us is None:
        return poll
    queues = [queue for queue, room in rooms.items() if room > 0]
    ranks = {rank for queue in queues for rank in (*_ranks(con, queue), *ranks_of(con, queue))}
    return poll if len(ranks) > 1 else poll._replace(aging_us=None)


def _aged(con: Connection, now: int, poll: Poll, rooms: Mapping[str, int]) -> list[tuple[int, int, int, str]]:
    """Return aged tasks without a limit."""
    if poll.aging_us is None:
        return []
    return [
        (AGED, due_at, task_id, queue)
        for queue, room in rooms.items()
        if room > 0
        for rank in _ranks(con, queue)
        for due_at, task_id in con.execute(AGED_OF_RANK, (queue, rank, now - poll.aging_us, room))
    ]


def _ranks(con: Connection, queue: str) -> list[int]:
    ranks: list[int] = []
    row = con.execute(NEXT_RANK, (queue, LOWEST_RANK)).fetchone()
    while row is not None and len(ranks) < RANKS_LIMIT:
        ranks.append(row[0])
        row = con.execute(NEXT_RANK, (queue, row[0])).fetchone()
    return ranks


def _best(
    aged: list[tuple[int, int, int, str]],
    lines: list[list[tuple[int, int, int, str]]],
    limited: Startable | None,
    rooms: Mapping[str, int],
    most: int,
    of_limits: dict[int, Candidate],
) -> list[int]:
    """Return the ids of the best tasks of all lines, of each queue up to its room; remove others from `of_limits`."""
    others = [] if limited is None else sorted(one[:4] for one in limited.candidates)
    left, best = dict(rooms), dict[int, None]()
    for _, _, task_id, queue in heapq.merge(sorted(aged), *lines, others):
        if len(best) == most:
            break
        if task_id not in best and left[queue] > 0:
            left[queue] -= 1
            best[task_id] = None
    for task_id in [one for one in of_limits if one not in best]:
        del of_limits[task_id]
    return list(best)


def _with_limits(con: Connection, now: int, leases: list[Lease], of_limits: Mapping[int, Candidate]) -> list[Lease]:
    """Return the same leases with the keys of their limits, and count these starts."""
    limits = {one.id: of_limits[one.id].limit for one in leases if one.id in of_limits}
    note_starts(con, now, list(limits.values()))
    return [msgspec.structs.replace(one, limit_key=limits[one.id].key) if one.id in limits else one for one in leases]


def _polled(
    found: "_Found",
    next_due: int | None,
    now: int,
    poll: Poll,
    limited: Startable | None,
    *,
    has_aged: bool = False,
    is_cut: bool = False,
) -> Polled:
    leased = _leased(found, next_due, now, poll, is_cut=is_cut)
    if limited is None:
        return Polled(leased, has_aged=has_aged)
    taken = {one.id for one in found[0] if one.limit_key is not None}
    served = {one.queue: one.limit.key for one in limited.candidates if one.id in taken}
    if limited.is_cut and not taken:
        # No visited key may start a task: the next poll follows at once, and goes on after these keys.
        leased = msgspec.structs.replace(leased, next_due_s=0.0, is_all=False)
        served = limited.last
    has_aged = has_aged or any(one.rank == AGED for one in limited.candidates)
    return Polled(leased, limited.visited, len(taken), limited.took_s, served, has_aged, limited.aged_after)


def _sooner(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else min(one, other)


def _lease_of_one(con: Connection, now: int, poll: Poll, queue: str, limit: int) -> Leased | None:
    """Lease the best tasks of one queue; return None if limited tasks are due in it, too, and must be compared."""
    bound = {"owner": poll.incarnation, "queue": queue, "limit": max(0, limit), "bytes": limits.LEASE_BYTES, "now": now}
    bound["asks_limits"] = poll.asks_limits
    # Tasks that have fallen due must be promoted first: until then, no rows are read.
    is_current, next_due, is_asked, is_paused, rows = con.execute(POLL, {**bound, "until": now}).fetchone()
    if not is_current:
        raise _lost(poll.incarnation)
    if is_paused:
        return _leased(([], []), None, now, poll)
    if _promote(con, now, queue, next_due):
        _, next_due, is_asked, _, rows = con.execute(POLL, {**bound, "until": None}).fetchone()
    if rows is None:
        if poll.asks_limits and has_limited(con, queue):
            return None
        best = [task_id for (task_id,) in con.execute(BEST, bound)]
        found = _lease_these(con, now, poll, best)
        return _leased(found, next_due, now, poll, is_cut=len(found[0]) < len(best))
    leases, waited = _decode(rows)
    if leases:
        con.execute(HOLD_BEST, bound)
        if is_asked:
            leases = _asked(con, leases)
    return _leased((leases, waited), next_due, now, poll)


def _lease_these(con: Connection, now: int, poll: Poll, best: list[int]) -> _Found:
    """Lease as many of these tasks as one poll may return."""
    if not best:
        return [], []
    ids = encode(_fitting(con, best) if poll.is_heavy or _is_too_much(con, best) else best)
    leases, waited = _decode(con.execute(PICK, {"ids": ids, "now": now}).fetchone()[0])
    con.execute(HOLD_THESE, {"owner": poll.incarnation, "now": now, "ids": ids})
    return (_asked(con, leases) if con.execute(IS_ASKED).fetchone()[0] else leases), waited


def _is_too_much(con: Connection, ids: list[int]) -> bool:
    return bool(con.execute(TOTAL, {"ids": encode(ids)}).fetchone()[0] > limits.LEASE_BYTES)


def _fitting(con: Connection, ids: list[int]) -> list[int]:
    """Return as many of the first tasks as fit, at least one; the payloads of the others are not read."""
    taken = count = 0
    with closing(con.execute(SIZES, {"ids": encode(ids)})) as sizes:
        for _, size in sizes:
            taken += size
            if count and taken > limits.LEASE_BYTES:
                break
            count += 1
    return ids[:count]


def _asked(con: Connection, leases: list[Lease]) -> list[Lease]:
    """Return the same leases, with `cancel_requested` where a caller canceled the task."""
    ids = {task_id for (task_id,) in con.execute(ASKED, (encode([one.id for one in leases]),))}
    return [msgspec.structs.replace(one, cancel_requested=True) if one.id in ids else one for one in leases]


def _promote(con: Connection, now: int, queue: str, next_due: int | None) -> bool:
    if next_due is None or next_due > now:
        return False
    con.execute(PROMOTE, (queue, now, PROMOTE_LIMIT))
    return True


def _open(con: Connection, rooms: dict[str, int]) -> dict[str, int]:
    """Return the queues that are not paused; a poll ignores the others."""
    return {queue: room for queue, room in rooms.items() if not con.execute(IS_PAUSED, (queue,)).fetchone()[0]}


def _check_current(con: Connection, incarnation: int) -> None:
    if con.execute(IS_CURRENT, (incarnation,)).fetchone() is None:
        raise _lost(incarnation)


def _lost(incarnation: int) -> LeaseLost:
    return LeaseLost(f"worker {incarnation} was declared dead: sign on anew")


def _next_due(con: Connection, queues: Iterable[str]) -> int | None:
    rows = (con.execute(NEXT_DUE, (queue,)).fetchone() for queue in queues)
    return min((row[0] for row in rows if row is not None), default=None)


def _leased(found: _Found, next_due: int | None, now: int, poll: Poll, *, is_cut: bool = False) -> Leased:
    leases, waited_us = found
    is_full = is_cut or len(leases) == poll.limit(LEASE_LIMIT)
    next_due_s = None if is_full or next_due is None else (next_due - now) / 1e6
    return Leased(leases, next_due_s, at=now / 1e6, is_all=not is_full, waited_us=waited_us if leases else ())
