"""Limited tasks: which of them may start now.

        rank by rank ──▶ key by key, from the next in turn on ──▶ how many more may run, how many more may start

Promises: running tasks are counted from the leased rows, in the transaction that leases more. A poll visits at most
VISITS keys, and stops as soon as it has enough; the next one goes on after them. Within a rank, keys take turns.
"""

# ruff: noqa: S608 - only the conditions of this module are put into SQL

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from typing import NamedTuple

from everpoll.drivers.sqlite.connection import Connection
from everpoll.policy.start_window import Span, counting, left, opens_at, started, window_s
from everpoll.stores.contract import COUNT_LIMIT, Limit, LimitInfo, encode
from everpoll.stores.limit_visits import VISITS
from everpoll.stores.sqlite.clock import microseconds

AGED = -(2**31)
"""The rank of aged tasks: better than every priority."""

_LIMITED = "everpoll_tasks indexed by everpoll_tasks_limited where line = 3 and is_leased = 0"
HAS_LIMITED = f"select exists (select 1 from {_LIMITED} and queue = ?)"
NEXT_RANK = f"select rank from {_LIMITED} and queue = ? and rank > ? order by rank limit 1"
NEXT_QUEUE = f"select queue from {_LIMITED} and queue > ? order by queue limit 1"
NEXT_KEY = f"""select limit_key, name, limit_running, limit_starts, limit_per_s from {_LIMITED}
    and queue = ? and rank = ? and limit_key > ? order by limit_key, due_at, id limit 1"""
HEAD_OF_KEY = f"""select limit_key, name, limit_running, limit_starts, limit_per_s from {_LIMITED}
    and queue = ? and rank = ? and limit_key = ? order by due_at, id limit 1"""
# Key by key in all lines in parallel: SQLite processes the rows of a recursion in the order in which they were added.
HEADS = f"""with recursive heads(rank, queue, key) as (
    select value ->> 0, value ->> 1, (select limit_key from {_LIMITED}
        and queue = value ->> 1 and rank = value ->> 0 and limit_key > :after order by limit_key limit 1)
      from json_each(:lines)
    union all
    select h.rank, h.queue, (select limit_key from {_LIMITED}
        and queue = h.queue and rank = h.rank and limit_key > h.key order by limit_key limit 1)
      from heads h where h.key is not null limit :visits)
    select (select due_at from {_LIMITED} and queue = h.queue and rank = h.rank and limit_key = h.key
            order by due_at limit 1), h.rank, h.queue, h.key from heads h"""
OF_KEY = f"""select due_at, id from {_LIMITED} and queue = ? and rank = ? and limit_key = ?
    order by due_at, id limit ?"""
COUNT_OF_KEY = f"""select count(*) from (select 1 from {_LIMITED} and queue = ? and rank = ? and limit_key = ?
    limit {COUNT_LIMIT})"""
_RUNNING = "everpoll_tasks indexed by everpoll_tasks_limited_running where is_leased = 1 and limit_key is not null"
RUNNING = f"select count(*) from (select 1 from {_RUNNING} and limit_key = ? limit ?)"
OLDEST_RUNNING = f"select count(*), min(started_at) from {_RUNNING} and limit_key = ?"
SPANS = "select began_at, at, starts from everpoll_starts where limit_key = ? order by began_at"
FORGET_SPANS = "delete from everpoll_starts where limit_key = ? and at <= ?"
PUT_SPAN = """insert into everpoll_starts (limit_key, began_at, at, until_at, starts) values (?, ?, ?, ?, ?)
    on conflict (limit_key, began_at) do update set at = excluded.at, until_at = excluded.until_at,
        starts = excluded.starts"""
FORGET_OLD = """delete from everpoll_starts where (limit_key, began_at) in
    (select limit_key, began_at from everpoll_starts where until_at < ? limit 10000)"""
LOWEST_RANK = -(2**31) - 1


class Candidate(NamedTuple):
    """A task that may start now."""

    rank: int
    due_at: int
    id: int
    queue: str
    limit: Limit


class Visit(NamedTuple):
    """The parameters of one poll for limited tasks."""

    now: int
    limits: Mapping[str, Limit]
    turns: Mapping[str, str]
    aged_before: int | None
    aged_after: str = ""
    """The last key that the poll for aged tasks before this one has visited."""


@dataclass
class Startable:
    """The result of the visits of one poll."""

    candidates: list[Candidate] = field(default_factory=list)
    """Tasks that may start, in the order in which they should: by rank, then one of each key after the other."""
    visited: int = 0
    took_s: float = 0.0
    opens_at: int | None = None
    """The earliest instant at which a rate that allows no start now allows the next one."""
    is_cut: bool = False
    """True if there were more keys than one poll visits."""
    last: dict[str, str] = field(default_factory=dict)
    """The key that was visited last in each queue."""
    aged_after: str = ""
    """The key after which the next poll for aged tasks goes on; empty: it begins at the first key."""


class _Open(NamedTuple):
    queue: str
    rank: int
    limit: Limit
    room: int


class _Visits:
    """The visits of one poll, and how many more tasks of each visited key may start."""

    def __init__(self, con: Connection, visit: Visit, found: Startable) -> None:
        self.con = con
        self.visit = visit
        self.found = found
        self.rooms: dict[str, int] = {}

    def limit(self, row: tuple[str, str, int | None, int | None, float | None]) -> Limit:
        """Return the limit of a task, with the numbers of the worker's own code."""
        key, name, running, starts, per_s = row
        return Limit(key, running, starts, per_s or 0.0).ruled_by(self.visit.limits.get(name))

    def open_key(self, queue: str, rank: int, limit: Limit) -> _Open | None:
        """Visit a key; return None if none of its tasks may start now."""
        self.found.visited += 1
        if limit.key not in self.rooms:
            self.rooms[limit.key] = _room(self.con, self.visit.now, limit, self.found)
        room = self.rooms[limit.key]
        return _Open(queue, rank, limit, room) if room > 0 else None


def has_limited(con: Connection, queue: str) -> bool:
    """Return True if a limited task is due in this queue."""
    return bool(con.execute(HAS_LIMITED, (queue,)).fetchone()[0])


def startable(con: Connection, visit: Visit, rooms: Mapping[str, int], most: int) -> Startable:
    """Return up to `most` tasks that may start now, of each queue up to its room."""
    found = Startable()
    visits = _Visits(con, visit, found)
    lines = sorted((rank, queue) for queue, room in rooms.items() if room > 0 for rank in ranks_of(con, queue))
    oldest = [one for one in _of_keys(con, visit, _aged(visits, lines, most), most) if one.rank == AGED]
    found.candidates = _in_turns(oldest, visits.rooms, rooms, most)
    if len(found.candidates) < most:
        others = _of_keys(con, visit, _walk(visits, lines, most), most)
        all_of_them = {one.id: one for one in (*oldest, *others)}
        found.candidates = _in_turns(list(all_of_them.values()), visits.rooms, rooms, most)
    return found


def _aged(visits: _Visits, lines: Sequence[tuple[int, str]], most: int) -> list[_Open]:
    """Return keys with aged tasks that may start, the oldest tasks first.

    All lines share the visits: one key of each after the other. So no line delays the tasks of another.
    """
    con, visit = visits.con, visits.visit
    if visit.aged_before is None or not lines:
        return []
    walked = con.execute(HEADS, {"lines": encode(lines), "after": visit.aged_after, "visits": VISITS}).fetchall()
    visits.found.aged_after = _goes_on_at(walked) if len(walked) == VISITS else ""
    opened: list[_Open] = []
    for _, rank, queue, key in sorted(one for one in walked if one[0] is not None and one[0] < visit.aged_before):
        limit = visits.limit(con.execute(HEAD_OF_KEY, (queue, rank, key)).fetchone())
        if (one := visits.open_key(queue, rank, limit)) is not None:
            opened.append(one)
        if len(opened) == most:
            break
    return opened


def _goes_on_at(walked: Sequence[tuple[int | None, int, str, str | None]]) -> str:
    """Return the key up to which every line was visited; empty if all lines were visited to their ends."""
    ended = {(rank, queue) for _, rank, queue, key in walked if key is None}
    last: dict[tuple[int, str], str] = {}
    for _, rank, queue, key in walked:
        if key is not None and (rank, queue) not in ended:
            last[rank, queue] = max(key, last.get((rank, queue), ""))
    return min(last.values(), default="")


def _walk(visits: _Visits, lines: Sequence[tuple[int, str]], most: int) -> list[_Open]:
    """Return keys with tasks that may start: rank by rank, and within a rank from the key that comes next."""
    # With one line, the first keys are the best. With several, all of them are compared.
    enough = most if len(lines) == 1 else VISITS
    opened: list[_Open] = []
    count = 0
    for rank, queue in lines:
        for limit in _keys(visits, queue, rank):
            if count >= VISITS or len(opened) >= enough:
                visits.found.is_cut = True
                break
            count += 1
            visits.found.last[queue] = limit.key
            if (one := visits.open_key(queue, rank, limit)) is not None:
                opened.append(one)
    return opened


def ranks_of(con: Connection, queue: str) -> list[int]:
    """Return the ranks of the limited tasks that are due in a queue."""
    ranks: list[int] = []
    row = con.execute(NEXT_RANK, (queue, LOWEST_RANK)).fetchone()
    while row is not None and len(ranks) < VISITS:
        ranks.append(row[0])
        row = con.execute(NEXT_RANK, (queue, row[0])).fetchone()
    return ranks


def _keys(visits: _Visits, queue: str, rank: int) -> Iterator[Limit]:
    """Yield the limits that have a task of this rank, beginning after the last visited key."""
    turn = visits.visit.turns.get(queue, "")
    for start, end in ((turn, None), ("", turn)):
        row = visits.con.execute(NEXT_KEY, (queue, rank, start)).fetchone()
        while row is not None and (end is None or row[0] <= end):
            yield visits.limit(row)
            row = visits.con.execute(NEXT_KEY, (queue, rank, row[0])).fetchone()


def _room(con: Connection, now: int, limit: Limit, found: Startable) -> int:
    """Return how many more tasks of a key may start now."""
    room = COUNT_LIMIT
    if limit.running is not None:
        room = limit.running - int(con.execute(RUNNING, (limit.key, limit.running)).fetchone()[0])
    if limit.starts is not None and room > 0:
        spans, window = _counting(con, now, limit)
        allowed = left(limit.starts, spans)
        if allowed == 0:
            opens = round(opens_at(spans, window))
            found.opens_at = opens if found.opens_at is None else min(found.opens_at, opens)
        room = min(room, allowed)
    return room


def _counting(con: Connection, now: int, limit: Limit) -> tuple[list[Span], int]:
    window = microseconds(window_s(limit.per_s))
    return counting((Span(*row) for row in con.execute(SPANS, (limit.key,))), now, window), window


def _of_keys(con: Connection, visit: Visit, open_keys: Sequence[_Open], most: int) -> list[Candidate]:
    """Return the first tasks of each key: an even share, or, if that is too few, as many as the key may start."""
    share = -(-most // len(open_keys)) if open_keys else 0
    rows = _first_of_keys(con, visit, open_keys, share)
    return rows if len(rows) >= most or share >= most else _first_of_keys(con, visit, open_keys, most)


def _first_of_keys(con: Connection, visit: Visit, open_keys: Sequence[_Open], share: int) -> list[Candidate]:
    aged_before = LOWEST_RANK if visit.aged_before is None else visit.aged_before
    return [
        Candidate(AGED if due_at < aged_before else one.rank, due_at, task_id, one.queue, one.limit)
        for one in open_keys
        for due_at, task_id in con.execute(OF_KEY, (one.queue, one.rank, one.limit.key, min(one.room, share)))
    ]


def _in_turns(
    found: list[Candidate], rooms_of_keys: Mapping[str, int], rooms: Mapping[str, int], most: int
) -> list[Candidate]:
    """Return as many tasks as each key and each queue may start: by rank, within a rank one of each key in turn.

    Aged tasks have the same rank; among them, the oldest come first.
    """
    taken: dict[str, int] = {}
    rounds: dict[tuple[int, str], int] = {}
    turned: list[tuple[int, int, int, Candidate]] = []
    places = {key: place for place, key in enumerate(dict.fromkeys(one.limit.key for one in found))}
    for one in sorted(found):
        key = one.limit.key
        taken[key] = taken.get(key, 0) + 1
        if taken[key] <= rooms_of_keys[key]:
            rounds[one.rank, key] = rounds.get((one.rank, key), 0) + 1
            place = one.due_at if one.rank == AGED else places[key]
            turned.append((one.rank, rounds[one.rank, key], place, one))
    turned.sort()
    left_in_queue = dict(rooms)
    return list(islice((one for *_, one in turned if _takes(left_in_queue, one.queue)), most))


def _takes(left_in_queue: dict[str, int], queue: str) -> bool:
    left_in_queue[queue] -= 1
    return left_in_queue[queue] >= 0


def note_starts(con: Connection, now: int, limits: Sequence[Limit]) -> None:
    """Record that tasks with these limits were leased just now; `limits` has one entry for each task."""
    counts: dict[str, tuple[Limit, int]] = {}
    for limit in limits:
        if limit.starts is not None:
            counts[limit.key] = (limit, counts.get(limit.key, (limit, 0))[1] + 1)
    for key, (limit, count) in counts.items():
        spans, window = _counting(con, now, limit)
        con.execute(FORGET_SPANS, (key, now - window))
        last = started(spans, now, count, microseconds(limit.per_s))[-1]
        con.execute(PUT_SPAN, (key, last.began, last.ended, last.ended + window, last.starts))


def forget_starts(con: Connection, now: int) -> bool:
    """Delete some starts that no rate counts any more; return True if there may be more."""
    return con.execute(FORGET_OLD, (now,)).rowcount == 10_000


def of_key(con: Connection, key: str) -> LimitInfo:
    """Return the state of the limit with one key."""
    running, oldest = con.execute(OLDEST_RUNNING, (key,)).fetchone()
    lines = [(queue, rank) for queue in _queues(con) for rank in ranks_of(con, queue)]
    waiting = sum(int(con.execute(COUNT_OF_KEY, (*line, key)).fetchone()[0]) for line in lines)
    return LimitInfo(
        key=key,
        waiting=min(COUNT_LIMIT, waiting),
        running=running,
        oldest_started_at=None if oldest is None else _instant(oldest),
        starts=tuple((_instant(at), starts) for _, at, starts in con.execute(SPANS, (key,))),
    )


def _queues(con: Connection) -> list[str]:
    queues: list[str] = []
    row = con.execute(NEXT_QUEUE, ("",)).fetchone()
    while row is not None:
        queues.append(row[0])
        row = con.execute(NEXT_QUEUE, row).fetchone()
    return queues


def _instant(us: int) -> datetime:
    return datetime.fromtimestamp(us / 1e6, UTC)
