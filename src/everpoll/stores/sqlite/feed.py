"""Events: written together with the change that they report, read in the order in which they were committed.

Promises: there is one writer at a time, so the numbers of events are in the order of their commits, and a reader that
has read up to a number has missed no event before it. Numbers are never reused, even after all events were dropped.
"""

# ruff: noqa: S608 - only the column lists of this module are put into SQL

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from everpoll.drivers.sqlite.connection import Connection
from everpoll.stores.contract import Event, EventPage, NewEvent, encode
from everpoll.stores.operations import LogEntry
from everpoll.stores.sqlite.reading import instant

# Kind, name and key are copied while the task is live, because the task may be deleted before its events.
ADD = """insert into everpoll_events (task_id, seq, at, kind, name, key, body)
    select t.id, j.value ->> 1, :now, t.kind, t.name, t.key, j.value ->> 2
    from json_each(:rows) j cross join everpoll_tasks t where t.id = j.value ->> 0
    on conflict (task_id, seq) do nothing"""
LOG = """insert into everpoll_events (task_id, seq, at, kind, name, key, body)
    select j.value ->> 0, j.value ->> 1, :now, j.value ->> 2, j.value ->> 3, j.value ->> 4, j.value ->> 5
    from json_each(:rows) j"""
COLUMNS = "task_id, kind, name, key, seq, at, body, id"
OF_TASK = f"select {COLUMNS} from everpoll_events where task_id = ? and seq > ? order by seq limit ?"
# A negative number is minus the number of the event in the feed, or a little less, so these are in order, too.
ACTIONS = f"select {COLUMNS} from everpoll_events where task_id = ? and seq < 0 order by seq desc limit ?"
BEHIND = f"select {COLUMNS} from everpoll_events where id > ? order by id limit ?"
LAST_GIVEN = "select coalesce(max(seq), 0) from sqlite_sequence where name = 'everpoll_events'"
HORIZON = "select coalesce(max(pruned), 0) from everpoll_feed_horizon"
LAST = f"select max(({HORIZON}), (select coalesce(max(id), 0) from everpoll_events))"


def add(con: Connection, now: int, events: Iterable[tuple[int, tuple[NewEvent, ...]]]) -> None:
    """Add events of tasks inside the caller's transaction; events whose number exists already are ignored."""
    rows = [(task_id, one.seq, one.body) for task_id, several in events for one in several]
    if not rows:
        return
    if any(seq < 0 for _, seq, _ in rows):
        # These come first, so that all of them get a number in the feed: the next call begins after their numbers.
        mine = [row for row in rows if row[1] < 0]
        last = _last_given(con)
        numbered = [(task_id, -last - place, body) for place, (task_id, _, body) in enumerate(mine, 1)]
        rows = numbered + [row for row in rows if row[1] >= 0]
    con.execute(ADD, {"now": now, "rows": encode(rows)})


def log(con: Connection, now: int, entries: Sequence[LogEntry]) -> None:
    """Write events under negative numbers of their own."""
    last = _last_given(con)
    rows = [(one.task_id, -last - place, one.kind, one.name, one.key, one.body) for place, one in enumerate(entries, 1)]
    con.execute(LOG, {"now": now, "rows": encode(rows)})


def _last_given(con: Connection) -> int:
    return int(con.execute(LAST_GIVEN).fetchone()[0])


def of_task(con: Connection, task_id: int, after: int, limit: int) -> list[Event]:
    """Return the events of one task, by number."""
    return [_shown(row) for row in con.execute(OF_TASK, (task_id, after, limit))]


def actions_of(con: Connection, task_id: int, limit: int) -> list[Event]:
    """Return the operations on one task, oldest first."""
    return [_shown(row) for row in con.execute(ACTIONS, (task_id, limit))]


def of_tasks(con: Connection, after: Mapping[int, int], limit: int) -> list[Event]:
    """Return the events of several tasks, by task and number. SQLite needs a seek for each."""
    return [event for task_id in sorted(after) for event in of_task(con, task_id, after[task_id], limit)]


def page(con: Connection, after: int | None, limit: int) -> EventPage:
    """Return the events after a position; for None no events, and the current position."""
    if after is None:
        return EventPage((), str(con.execute(LAST).fetchone()[0]))
    found = tuple(_shown(row) for row in con.execute(BEHIND, (after, limit)))
    is_gap = after < con.execute(HORIZON).fetchone()[0]
    return EventPage(found, found[-1].position if found else str(after), is_gap)


def _shown(row: tuple[Any, ...]) -> Event:
    task_id, kind, name, key, seq, at, body, number = row
    return Event(
        task_id=task_id,
        kind=kind,
        name=name,
        key=key,
        seq=seq,
        at=instant(at),
        body=msgspec.json.decode(body),
        position=str(number),
    )
