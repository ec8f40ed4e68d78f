"""Enqueueing: one row alone, or many in one statement: 2 us for each row if they are alike, else 5.

Promises: all or none, ids in the order of the call. Runs inside the writer's transaction, so that no other connection
can take a key between the check and the insert, and the ids are consecutive. A call with more payload than
STATEMENT_BYTES takes several statements.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from everpoll.drivers.sqlite.connection import Connection
from everpoll.stores import limits
from everpoll.stores.contract import Enqueued, NewTask, Unique, encode
from everpoll.stores.limits import ROW_BYTES, checked_bytes, in_portions, size_of
from everpoll.stores.sqlite import feed, unique
from everpoll.stores.sqlite.clock import microseconds
from everpoll.stores.sqlite.new_rows import Row, Special


class Call(NamedTuple):
    """The tasks of one call, ready for the writer."""

    rows: list[Row]
    specials: dict[int, Special]
    """The rare options of each task that has some, by its index in the call."""
    size: int
    """Bytes of payload."""


ONE = """insert into everpoll_tasks
    (name, args, kind, queue, key, rank, timeout_s, memory, version, cancels_itself, indexed, limit_key, limit_running,
     limit_starts, limit_per_s, due_at, line, created_at)
    values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
# For tasks that differ only in their arguments and keys, as those of one call nearly always do.
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


def call_of(tasks: Sequence[NewTask]) -> Call:
    """Make the rows of a call, in the caller's thread; raise `BadInput` for values that cannot be stored."""
    size = checked_bytes(tasks)
    specials = {
        place: Special(task.once, task.events, task.unique)
        for place, task in enumerate(tasks)
        if task.once or task.events or task.unique
    }
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
    """Insert the tasks whose keys are free."""
    rows, specials, size = call
    if not specials:
        return _enqueue(con, now, rows, {}, size)
    if any(special.unique is not None and special.unique.on_conflict == "replace" for special in specials.values()):
        return [_one_of(con, now, call, place) for place in range(len(rows))]
    ended = {}
    for place, special in specials.items():
        if (found := unique.ended(con, now, rows[place], special)) is not None:
            ended[place] = found
    together = {place for place, special in specials.items() if special.unique and special.unique.together}
    if together and (rejected := _rejected(con, rows, ended, together)):
        return rejected
    answers = _enqueue(con, now, rows, ended, size)
    feed.add(con, now, [(answers[place].id, one.events) for place, one in specials.items() if answers[place].is_new])
    return answers


def _one_of(con: Connection, now: int, call: Call, place: int) -> Enqueued:
    """Insert one task of a call, or replace the values of the queued task that has its key."""
    row, special = call.rows[place], call.specials.get(place)
    if special is not None and special.unique is not None and special.unique.on_conflict == "replace":
        replaced = unique.replace(con, now, row, _line(row))
        if replaced.task_id is not None:
            return Enqueued(replaced.task_id, is_new=False)
        special = special._replace(unique=None if replaced.has_lost_key else Unique(for_s=special.unique.for_s))
    return enqueue(con, now, Call([row], {} if special is None else {0: special}, call.size))[0]


def _rejected(con: Connection, rows: Sequence[Row], ended: dict[int, int], together: set[int]) -> list[Enqueued] | None:
    """Return the answers of a call that enqueues nothing, because one of its tasks is rejected; else None."""
    live = live_keys(con, rows)
    taken = {
        place: found
        for place, row in enumerate(rows)
        if place in together and (found := live.get((row.kind, row.key or ""), ended.get(place))) is not None
    }
    return [Enqueued(taken.get(place, 0), is_new=False) for place in range(len(rows))] if taken else None


def _enqueue(con: Connection, now: int, rows: Sequence[Row], ended: dict[int, int], size: int) -> list[Enqueued]:
    """Insert the tasks whose keys are free. `ended`: by index, the ended task that still has the key."""
    if len(rows) == 1 and rows[0].key is None:
        return [Enqueued(_insert_one(con, now, rows[0]))]
    known = live_keys(con, rows)
    fresh: list[Row] = []
    answers: list[tuple[int, bool]] = []
    for place, row in enumerate(rows):
        if row.key is not None and (row.kind, row.key) in known:
            answers.append((known[row.kind, row.key], False))
            continue
        if place in ended:
            answers.append((ended[place], False))
            continue
        # Not an id yet: minus the number of the new row.
        fresh.append(row)
        answers.append((-len(fresh), True))
        if row.key is not None:
            known[row.kind, row.key] = -len(fresh)
    before = insert_all(con, now, fresh, size) - len(fresh)
    return [Enqueued(before - found if found < 0 else found, is_new) for found, is_new in answers]


def live_keys(con: Connection, rows: Sequence[Row]) -> dict[tuple[str, str], int]:
    """Return the ids of live tasks by kind and key."""
    keys = [row.key for row in rows if row.key is not None]
    live = con.execute(LIVE, (encode(keys),)) if keys else ()
    return {(kind, key): found for kind, key, found in live}


def insert_all(con: Connection, now: int, rows: list[Row], size: int) -> int:
    """Insert rows; return the id of the last one. The others have the ids before it."""
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
