"""Settling: a mixed batch, in one transaction, each row fenced by its incarnation and its sequence.

Promises: tasks that are no longer leased are not changed, and are reported as lost. An ordinary end (done, without a
note) takes 1.4 us for each row, and 2 to 3 with a result: these are written in bulk, by sequence. Settlements with a
note or a new due time are written by `moves`, in 6 to 10 us.
"""

# ruff: noqa: S608 - only the column lists of this package are put into SQL

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from everpoll.drivers.sqlite.connection import Connection
from everpoll.stores.contract import Again, Ended, Lease, Settlement, encode
from everpoll.stores.flows import Link
from everpoll.stores.sqlite import feed
from everpoll.stores.sqlite.clock import microseconds
from everpoll.stores.sqlite.ends import end
from everpoll.stores.sqlite.enqueueing import Call, call_of, enqueue
from everpoll.stores.sqlite.moves import COPIED, DROP, T_COPIED, End, Requeue, requeue, trail_entry
from everpoll.stores.task_events import canceled_event
from everpoll.stores.task_search import error_class

HOLDS = "t.owner = :owner and t.sequence = :sequence and t.is_leased = 1"
# A task that another task waits for takes a longer path: its end is reported to the waiting task.
ALONE, LINKED = "t.then_id is null", "t.then_id is not null"
DONE = f"""insert into everpoll_history
    (id, ended_at, state, trail, attempt, memory, rescues, was_leased, error_type, {COPIED})
    select t.id, :now, 'done', t.trail, t.attempt, t.memory, t.rescues, 1, t.error_type,
           {T_COPIED}
    from json_each(:rows) j cross join everpoll_tasks t where t.id = j.value and {HOLDS} and {ALONE}"""
DONE_WITH_RESULT = f"""insert into everpoll_history
    (id, ended_at, state, result, trail, attempt, memory, rescues, was_leased, error_type, {COPIED})
    select t.id, :now, 'done', j.value ->> 1, t.trail, t.attempt, t.memory, t.rescues, 1, t.error_type,
           {T_COPIED}
    from json_each(:rows) j cross join everpoll_tasks t where t.id = j.value ->> 0 and {HOLDS} and {ALONE}"""
HELD_LINKS = f"""select t.id, t.then_id, t.name, t.has_told from json_each(:rows) j cross join everpoll_tasks t
    where t.id = j.value and {HOLDS}"""
# Requests that came while the task ran: 1, a cancel ends it. 2, its lease did not carry the request, so it is due at
# once: a task that cancels itself (its due time tells; see `steering`), or one that was revised. 0: none came.
HELD = """select json_group_array(json_array(t.id, case when t.cancel_requested = 1 and t.cancels_itself = 0 then 1
        when t.is_revised = 1 or (t.cancel_requested = 1 and t.due_at > t.started_at) then 2 else 0 end))
    from json_each(:rows) j cross join everpoll_tasks t
    where t.id = j.value ->> 0 and t.sequence = j.value ->> 1 and t.owner = :owner and t.is_leased = 1"""
FREE, CANCELED, HURRIED = 0, 1, 2
CANCELED_EVENTS = (canceled_event(),)
IS_DONE = """select 1 from everpoll_history
    where id = ? and sequence = ? and owner = ? and state = 'done' and was_leased = 1"""
LABEL = "select label from everpoll_workers where incarnation = ?"

_decode_held = msgspec.json.Decoder(list[tuple[int, int]]).decode


class Batch:
    """Settlements, sorted by how they are written.

    Of two for the same task only the one of the later lease can count; of the same lease the first does.
    """

    def __init__(self, incarnation: int, settlements: Sequence[Settlement]) -> None:
        self.incarnation = incarnation
        self.done: defaultdict[int, list[int]] = defaultdict(list)
        self.results: defaultdict[int, list[tuple[int, str]]] = defaultdict(list)
        self.ended: list[Ended] = []
        self.again: list[Again] = []
        self.with_events: list[Settlement] = []
        """The settlements with events, in the order of the call, which is their order in the feed."""
        self.followed: list[tuple[int, Call]] = []
        """The follow-ups of each task that has some."""
        self.lost: set[int] = set()
        self.is_hurried = False
        """Once written: True if a task is due at once, in place of its settlement's delay."""
        self.unblocked_us: int | None = None
        """Once written: in how many microseconds the first task that waited for one of these falls due."""
        newest: dict[int, Settlement] = {}
        for one in settlements:
            rival = newest.setdefault(one.id, one)
            if rival is not one:
                self.lost.add(one.id)
                if one.sequence > rival.sequence:
                    newest[one.id] = one
        for one in newest.values():
            if one.events:
                self.with_events.append(one)
            if one.follow_ups:
                self.followed.append((one.id, call_of(one.follow_ups)))
            if isinstance(one, Again):
                self.again.append(one)
            elif one.note is not None or one.state != "done" or one.events or one.follow_ups:
                self.ended.append(one)
            elif one.result is None:
                self.done[one.sequence].append(one.id)
            else:
                self.results[one.sequence].append((one.id, one.result))

    @property
    def due_s(self) -> float:
        """Seconds until the first task this puts back or adds is due; 0 if one is set aside, to wake other workers."""
        if any(one.set_aside for one in self.again):
            return 0.0
        delays_s = [one.delay_s or 0.0 for one in self.again]
        delays_s += [row.delay_us / 1e6 for _, call in self.followed for row in call.rows]
        return min(delays_s, default=0.0)


def settle(con: Connection, now: int, batch: Batch) -> set[int]:
    """Write the batch; return the ids that were lost."""
    lost = set(batch.lost)
    bound = {"now": now, "owner": batch.incarnation}
    links: list[Link] = []
    for sequence, ids in batch.done.items():
        plain = _Plain(dict.fromkeys(ids), encode(ids), DONE)
        lost |= _ended(con, {**bound, "sequence": sequence}, plain, links)
    for sequence, rows in batch.results.items():
        plain = _Plain(dict(rows), encode(rows), DONE_WITH_RESULT)
        lost |= _ended(con, {**bound, "sequence": sequence}, plain, links)
    if batch.ended or batch.again:
        return lost | _move(con, now, batch, links)
    if links:
        batch.unblocked_us = end(con, now, (), links)
    return lost


class _Plain(NamedTuple):
    """Ordinary ends under one sequence."""

    results: Mapping[int, str | None]
    rows: str
    """The rows in the form of the statements' parameters."""
    statement: str
    """The statement that copies tasks to history for which no other task waits."""


def _ended(con: Connection, bound: dict[str, int], plain: _Plain, links: list[Link]) -> set[int]:
    """Move tasks to history; return the ids that were lost. Add the ends to be reported to `links`."""
    ids = list(plain.results)
    if con.execute(plain.statement, {**bound, "rows": plain.rows}).rowcount == len(ids):
        con.execute(DROP, (encode(ids),))
        return set()
    held = con.execute(HELD_LINKS, {**bound, "rows": encode(ids)}).fetchall()
    if any(then_id is not None for _, then_id, _, _ in held):
        con.execute(plain.statement.replace(ALONE, LINKED), {**bound, "rows": plain.rows})
    con.execute(DROP, (encode([row[0] for row in held]),))
    links += [
        Link(then_id, "done", plain.results[task_id], task_id, name, "done")
        for task_id, then_id, name, has_told in held
        if then_id is not None and not has_told
    ]
    return set(ids).difference(row[0] for row in held)


def _move(con: Connection, now: int, batch: Batch, links: Sequence[Link]) -> set[int]:
    moving: list[Ended | Again] = [*batch.ended, *batch.again]
    by = _label(con, batch.incarnation) if any(one.note is not None for one in moving) else ""
    # Read before writing: afterwards, tasks that have just ended cannot be told from tasks that were lost.
    held = _held(con, batch.incarnation, [(one.id, one.sequence) for one in moving])
    events = [(one.id, one.events) for one in batch.with_events if one.id in held]
    events += [(one.id, CANCELED_EVENTS) for one in batch.again if held.get(one.id) == CANCELED]
    feed.add(con, now, events)
    ends = [
        End(one.id, one.sequence, one.state, one.result, trail_entry(one.note, now, by), 0, None, 0, _class(one))
        for one in batch.ended
        if one.id in held
    ]
    rows: list[Requeue] = []
    for one in batch.again:
        entry = trail_entry(one.note, now, by)
        if held.get(one.id) == CANCELED:
            # A cancel that was requested meanwhile wins.
            ends.append(End(one.id, one.sequence, "canceled", None, entry, int(one.refund), one.memory, 0, _class(one)))
        elif one.id in held:
            delay_us = None if one.delay_s is None else microseconds(one.delay_s)
            if held[one.id] == HURRIED:
                delay_us, batch.is_hurried = 0, True
            rows.append(Requeue(one.id, one.sequence, delay_us, entry, int(one.refund), one.memory, 0, _class(one)))
    batch.unblocked_us = end(con, now, ends, links)
    requeue(con, now, rows)
    # After the task has released its key, because a follow-up may have the same key.
    for task_id, call in batch.followed:
        if task_id in held:
            enqueue(con, now, call)
    return {one.id for one in moving if one.id not in held}


def _class(settlement: Settlement) -> str | None:
    return error_class(settlement.note)


def _held(con: Connection, incarnation: int, fences: list[tuple[int, int]]) -> dict[int, int]:
    """Return the tasks that are still leased, each with the request that came meanwhile: FREE, CANCELED or HURRIED."""
    found = con.execute(HELD, {"rows": encode(fences), "owner": incarnation}).fetchone()[0]
    return dict(_decode_held(found))


def is_done(con: Connection, incarnation: int, lease: Lease) -> bool:
    """Return True if the task has ended as done under this lease."""
    return con.execute(IS_DONE, (lease.id, lease.sequence, incarnation)).fetchone() is not None


def _label(con: Connection, incarnation: int) -> str:
    found = con.execute(LABEL, (incarnation,)).fetchone()
    return "" if found is None else str(found[0])
