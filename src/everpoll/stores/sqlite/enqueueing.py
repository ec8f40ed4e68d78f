"""Enqueueing: one row by itself, or many in one statement: 2 us a row where they are alike, 5 where not.

Promises: all or none, ids in the order of the call. Runs inside the writer's transaction, so that no other connection
can take a key between the look for it and the insert, and the ids are consecutive. A call with more payload than
STATEMENT_BYTES takes several statements.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from everpoll.drivers.sqlite.connection import Connection
from everpoll.stores import limits
from everpoll.stores.contract import Enqueued, NewEvent, NewTask, encode
from everpoll.stores.limits import ROW_BYTES, checked_bytes, in_portions, size_of
from everpoll.stores.sqlite import feed
from everpoll.stores.sqlite.clock import microseconds


class Row(NamedTuple):
    """A task as it is handed to SQLite."""

    name: str
    args: str
    kind: str
    queue: str
    key: str | None
    rank: int
    delay_us: int
    timeout_s: float | None
    memory: str | None
    version: int
    cancels_itself: bool
    indexed: bool
    limit_key: str | None = None
    limit_running: int | None = None
    limit_starts: int | None = None
    limit_per_s: float | None = None


class Special(NamedTuple):
    """What few tasks have beside their row."""

    once: bool
    events: tuple[NewEvent, ...]


class Call(NamedTuple):
    """The tasks of one call, ready for the writer."""

    rows: list[Row]
    specials: dict[int, Special]
    """By place in the call; those of jobs are none."""
    size: int
    """Bytes of payload."""


ONE = """insert into everpoll_tasks
    (name, args, kind, queue, key, rank, timeout_s, memory, version, cancels_itself, indexed, limit_key, limit_running,
     limit_starts, limit_per_s, due_at, line, created_at)
    values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
# Tasks that differ in their arguments and keys only, as those of one call nearly always do.
ALIKE = """insert into everpoll_tasks
    (name, args, kind, queue, key, rank, timeout_s, memory, version, cancels_itself, indexed, limit_key, limit_running,
     limit_starts, limit_per_s, due_at, line, created_at)
    select :name, j.value ->> 0, :kind, :queue, j.value ->> 1, :rank,
           :timeout_s, :memory, :version, :cancels_itself, :indexed, :limit_key, :limit_running, :limit_starts,
           :limit_per_s, :now + :delay_us, :line, :now
    from json_each(:rows) j"""
MANY = """insert into everpoll_tasks
    (name, args, kind, queue, key, rank, timeout_s, memory, version, cancels_itself, indexed, limit_key, limit_running,
     limit_starts, limit_per_s, due_at, line, created_at)
    select j.value ->> 0, j.value ->> 1, j.value ->> 2, j.value ->> 3, j.value ->> 4, j.value ->> 5,
           j.value ->> 7, j.value ->> 8, j.value ->> 9, j.value ->> 10, j.value ->> 11, j.value ->> 12,
           j.value ->> 13, j.value ->> 14, j.value ->> 15, :now + (j.value ->> 6),
           iif(j.value ->> 6 > 0, 1, iif(j.value ->> 12 is null, 0, 3)), :now
    from json_each(:rows) j"""
LIVE = "select kind, key, id from everpoll_tasks where key in (select value from json_each(?))"
ONE_ENDED = """select id from everpoll_history indexed by everpoll_history_key
    where indexed = 1 and kind = ? and key = ? order by ended_at desc, id desc limit 1"""


def call_of(tasks: Sequence[NewTask]) -> Call:
    """Made in the caller's thread, where what cannot be stored is refused."""
    size = checked_bytes(tasks)
    specials = {place: Special(task.once, task.events) for place, task in enumerate(tasks) if task.once or task.events}
    return Call([_row_of(task) for task in tasks], specials, size)


def _row_of(task: NewTask) -> Row:
    return Row(
        task.name,
        task.args,
        task.kind,
        task.queue,
        task.key,
        -task.priority,
        microseconds(task.delay_s) if task.delay_s > 0 else 0,
        task.timeout_s,
        task.memory,
        task.version,
        task.cancels_itself,
        task.indexed,
        *(() if task.limit is None else msgspec.structs.astuple(task.limit)),
    )


def enqueue(con: Connection, now: int, call: Call) -> list[Enqueued]:
    """Insert what is not there yet."""
    rows, specials, size = call
    if not specials:
        return _enqueue(con, now, rows, {}, size)
    ended = {}
    for place, special in specials.items():
        if special.once and (found := con.execute(ONE_ENDED, (rows[place].kind, rows[place].key)).fetchone()):
            ended[place] = found[0]
    answers = _enqueue(con, now, rows, ended, size)
    feed.add(con, now, [(answers[place].id, one.events) for place, one in specials.items() if answers[place].is_new])
    return answers


def _enqueue(con: Connection, now: int, rows: Sequence[Row], ended: dict[int, int], size: int) -> list[Enqueued]:
    """`ended`: which task, that has ended, answers in which place, unless a live one does."""
    if len(rows) == 1 and rows[0].key is None:
        return [Enqueued(_insert_one(con, now, rows[0]))]
    known = _live(con, rows)
    fresh: list[Row] = []
    answers: list[tuple[int, bool]] = []
    for place, row in enumerate(rows):
        if row.key is not None and (row.kind, row.key) in known:
            answers.append((known[row.kind, row.key], False))
            continue
        if place in ended:
            answers.append((ended[place], False))
            continue
        # Not an id yet: minus the place among the fresh ones.
        fresh.append(row)
        answers.append((-len(fresh), True))
        if row.key is not None:
            known[row.kind, row.key] = -len(fresh)
    before = _insert_all(con, now, fresh, size) - len(fresh)
    return [Enqueued(before - found if found < 0 else found, is_new) for found, is_new in answers]


def _live(con: Connection, rows: Sequence[Row]) -> dict[tuple[str, str], int]:
    """By kind and key."""
    keys = [row.key for row in rows if row.key is not None]
    live = con.execute(LIVE, (encode(keys),)) if keys else ()
    return {(kind, key): found for kind, key, found in live}


def _insert_all(con: Connection, now: int, rows: list[Row], size: int) -> int:
    """The id of the last one; the others have those before it."""
    if not rows:
        return 0
    if size <= limits.STATEMENT_BYTES:
        return _insert(con, now, rows)
    sizes = [ROW_BYTES + size_of(row.args) + size_of(row.memory) for row in rows]
    return [_insert(con, now, portion) for portion in in_portions(rows, sizes, len(rows))][-1]


def _insert(con: Connection, now: int, rows: Sequence[Row]) -> int:
    first = rows[0]
    alike = all(row[2:4] == first[2:4] and row[5:] == first[5:] and row.name == first.name for row in rows)
    if alike:
        text = encode([(row.args, row.key) for row in rows])
        con.execute(ALIKE, {**first._asdict(), "line": _line(first), "now": now, "rows": text})
    else:
        con.execute(MANY, {"now": now, "rows": encode(rows)})
    (last,) = con.execute("select last_insert_rowid()").fetchone()
    return int(last)


def _line(row: Row) -> int:
    return 1 if row.delay_us > 0 else 0 if row.limit_key is None else 3


def _insert_one(con: Connection, now: int, row: Row) -> int:
    name, args, kind, queue, key, rank, delay_us, *rest = row
    cursor = con.execute(ONE, (name, args, kind, queue, key, rank, *rest, now + delay_us, _line(row), now))
    assert cursor.lastrowid is not None
    return cursor.lastrowid
