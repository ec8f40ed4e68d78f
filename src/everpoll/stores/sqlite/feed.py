"""Events: written with what they tell about, read in the order in which they were committed.

Promises: there is one writer at a time, so the numbers of events are in the order of their commits, and whoever has
read up to one has missed none before it. Numbers are never used again, also when all events are gone.
"""

# ruff: noqa: S608 - only the column lists of this module are put into SQL

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from everpoll.drivers.sqlite.connection import Connection
from everpoll.stores.contract import Event, EventPage, NewEvent, encode
from everpoll.stores.sqlite.reading import instant

# While the task is live: its name and key are copied, since it may be forgotten before its events are.
ADD = """insert into everpoll_events (task_id, seq, at, name, key, body)
    select t.id, j.value ->> 1, :now, t.name, t.key, j.value ->> 2
    from json_each(:rows) j cross join everpoll_tasks t where t.id = j.value ->> 0
    on conflict (task_id, seq) do nothing"""
COLUMNS = "task_id, name, key, seq, at, body, id"
OF_TASK = f"select {COLUMNS} from everpoll_events where task_id = ? and seq > ? order by seq limit ?"
BEHIND = f"select {COLUMNS} from everpoll_events where id > ? order by id limit ?"
LAST = "select coalesce(max(id), 0) from everpoll_events"


def add(con: Connection, now: int, events: Iterable[tuple[int, tuple[NewEvent, ...]]]) -> None:
    """Write what happened to which task, inside the caller's transaction; what is there already stays."""
    rows = [(task_id, one.seq, one.body) for task_id, several in events for one in several]
    if rows:
        con.execute(ADD, {"now": now, "rows": encode(rows)})


def of_task(con: Connection, task_id: int, after: int, limit: int) -> list[Event]:
    """Those of one task, by number."""
    return [_shown(row) for row in con.execute(OF_TASK, (task_id, after, limit))]


def of_tasks(con: Connection, after: Mapping[int, int], limit: int) -> list[Event]:
    """Those of several tasks, by task and number. A seek each: SQLite has no statement that would do it in fewer."""
    return [event for task_id in sorted(after) for event in of_task(con, task_id, after[task_id], limit)]


def page(con: Connection, after: int | None, limit: int) -> EventPage:
    """Those behind a place; None: where that is now."""
    if after is None:
        return EventPage((), str(con.execute(LAST).fetchone()[0]))
    found = tuple(_shown(row) for row in con.execute(BEHIND, (after, limit)))
    return EventPage(found, found[-1].position if found else str(after))


def _shown(row: tuple[Any, ...]) -> Event:
    task_id, name, key, seq, at, body, number = row
    return Event(
        task_id=task_id,
        name=name,
        key=key,
        seq=seq,
        at=instant(at),
        body=msgspec.json.decode(body),
        position=str(number),
    )
