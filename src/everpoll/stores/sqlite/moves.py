"""Moves: tasks that end with more than an ordinary end go to history, or tasks are due again.

Settling, canceling and the rescue decide in Python about each task, and pass the rows to this module as one batch; ends
come by `ends`, which reports them to waiting tasks. All run inside the caller's transaction.

json_each has columns called `key` and `id`, so every column of a table is qualified.
"""

# ruff: noqa: S608 - only the column lists of this package are put into SQL

from collections.abc import Sequence
from typing import NamedTuple

from everpoll.drivers.sqlite.bulk import ROWS, write_rows
from everpoll.drivers.sqlite.connection import Connection
from everpoll.stores.contract import TRAIL_LIMIT, EndState, encode

COPIED = (
    "due_at, created_at, owner, started_at, timeout_s, sequence, rank, version, cancel_requested, cancels_itself, "
    "indexed, kind, queue, name, key, args, progress, limit_key, limit_running, limit_starts, limit_per_s, "
    "then_id, takes"
)
T_COPIED = ", ".join(f"t.{column.strip()}" for column in COPIED.split(","))


def longer_trail(entry: str, table: str = "t") -> str:
    """Return the SQL for a trail with one more entry; if there are too many, the oldest is dropped."""
    return f"""case when {entry} is null then {table}.trail else json_insert(
        case when json_array_length({table}.trail) >= {TRAIL_LIMIT} then json_remove({table}.trail, '$[0]')
             else coalesce({table}.trail, '[]') end, '$[#]', json({entry})) end"""


class End(NamedTuple):
    """A task that ends."""

    id: int
    sequence: int
    state: EndState
    result: str | None = None
    entry: str | None = None
    refund: int = 0
    memory: str | None = None
    rescued: int = 0
    error_type: str | None = None


class Requeue(NamedTuple):
    """A task that is due again."""

    id: int
    sequence: int
    delay_us: int | None
    """None keeps its due time, and so its place in line."""
    entry: str | None = None
    refund: int = 0
    memory: str | None = None
    rescued: int = 0
    error_type: str | None = None


END = f"""insert into everpoll_history
    (id, ended_at, state, result, trail, attempt, memory, rescues, was_leased, error_type, {COPIED})
    select t.id, :now, j.value ->> 2, j.value ->> 3, {longer_trail("(j.value ->> 4)")}, t.attempt - (j.value ->> 5),
           coalesce(j.value ->> 6, t.memory), t.rescues + (j.value ->> 7), t.is_leased,
           coalesce(j.value ->> 8, t.error_type), {T_COPIED}
    from json_each(:rows) j cross join everpoll_tasks t where t.id = j.value ->> 0 and t.sequence = j.value ->> 1"""
DROP = "delete from everpoll_tasks where id in (select value from json_each(?))"
# Rows are parameters, not JSON: SQLite would parse the JSON once for each column, which takes a third of the time.
REQUEUE = f"""update everpoll_tasks as t
    set is_leased = 0, is_revised = 0,
        due_at = coalesce(v.column3, t.due_at),
        line = iif(v.column4 = 0 and t.limit_key is not null, 3, v.column4),
        trail = {longer_trail("v.column5")}, attempt = t.attempt - v.column6,
        memory = coalesce(v.column7, t.memory), error_type = coalesce(v.column9, t.error_type),
        rescues = case when v.column7 is null then t.rescues + v.column8 else 0 end
    from (values {ROWS}) v where t.id = v.column1 and t.sequence = v.column2"""


def put_away(con: Connection, now: int, ends: Sequence[End]) -> None:
    """Move these to history. The caller has checked in this transaction that each is live and leased."""
    con.execute(END, {"now": now, "rows": encode(ends)})
    con.execute(DROP, (encode([one.id for one in ends]),))


def requeue(con: Connection, now: int, rows: Sequence[Requeue]) -> None:
    """Put these back in the queue. The caller has checked in this transaction that each is live and leased."""
    write_rows(con, REQUEUE, [_requeued(now, one) for one in rows], fills=True)


def _requeued(now: int, one: Requeue) -> tuple[int | str | None, ...]:
    due_at = None if one.delay_us is None else now + one.delay_us
    line = int((one.delay_us or 0) > 0)
    return (one.id, one.sequence, due_at, line, one.entry, one.refund, one.memory, one.rescued, one.error_type)


def trail_entry(note: str | None, now: int, by: str) -> str | None:
    """Return a note in its form in the trail, with `at` and `by` inserted. The text is not decoded.

    Of two equal names in an object the last one counts, so `at` and `by` of the note itself win.
    """
    if note is None:
        return None
    fields = note.strip()[1:].lstrip()
    return f'{{"at":{now / 1e6},"by":{encode(by)}{"," if fields != "}" else ""}{fields}'
