"""Reads the events of one task, and the feed of all events.

Promises: nothing ever appears before a position that was returned, whatever order transactions commit in. The feed
ends before the first event that a transaction may still commit, so a transaction that has appended events and stays
open holds it up. No other transaction does (decision 19).
"""

# ruff: noqa: S608 - only the column lists of this module are put into SQL

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from everpoll.drivers.postgres.lane import Lane
from everpoll.stores.contract import Event, EventPage
from everpoll.stores.feed_positions import place_in_feed
from everpoll.stores.operations import LogEntry
from everpoll.stores.postgres.functions import versioned

COLUMNS = "task_id, kind, name, key, seq, at, body, id"
OF_TASK = f"select {COLUMNS} from everpoll.events where task_id = $1 and seq > $2 order by seq limit $3"
OF_TASKS = f"""select {COLUMNS} from unnest($1::bigint[], $2::bigint[]) wanted(id_of_task, after) cross join lateral (
        select * from everpoll.events e where e.task_id = wanted.id_of_task and e.seq > wanted.after
        order by e.seq limit $3) found order by task_id, seq"""
# A negative number is minus the event's id.
ACTIONS = f"select {COLUMNS} from everpoll.events where task_id = $1 and seq < 0 order by seq desc limit $2"
BEHIND = versioned(f"select {COLUMNS}, is_gap from everpoll.feed($1, $2)")
LOG = versioned("select everpoll.log_events($1, $2, $3, $4, $5)")
NOW = versioned("select everpoll.feed_now()")


async def of_task(lane: Lane, task_id: int, after: int, limit: int) -> list[Event]:
    """Return the events of one task, by number."""
    return [_shown(row) for row in await lane.rows(OF_TASK, task_id, after, limit)]


async def of_tasks(lane: Lane, after: Mapping[int, int], limit: int) -> list[Event]:
    """Return the events of several tasks, by task and number."""
    task_ids = sorted(after)
    rows = await lane.rows(OF_TASKS, task_ids, [after[task_id] for task_id in task_ids], limit)
    return [_shown(row) for row in rows]


async def page(lane: Lane, after: str | None, limit: int) -> EventPage:
    """Return the events after a position."""
    if after is None:
        return EventPage((), str(await lane.value(NOW)))
    rows = await lane.rows(BEHIND, place_in_feed(after), limit)
    found = tuple(_shown(row[:-1]) for row in rows if row["id"] is not None)
    return EventPage(found, found[-1].position if found else after, rows[0]["is_gap"])


async def actions_of(lane: Lane, task_id: int, limit: int) -> list[Event]:
    """Return the actions of users and programs on one task, oldest first."""
    return [_shown(row) for row in await lane.rows(ACTIONS, task_id, limit)]


async def log(lane: Lane, entries: Sequence[LogEntry]) -> None:
    """Write events under negative numbers of their own."""
    columns = zip(*((one.task_id, one.kind, one.name, one.key, one.body) for one in entries), strict=True)
    await lane.row(LOG, *map(list, columns))


def _shown(row: Any) -> Event:
    task_id, kind, name, key, seq, at, body, number = row
    return Event(
        task_id=task_id,
        kind=kind,
        name=name,
        key=key,
        seq=seq,
        at=at,
        body=msgspec.json.decode(body),
        position=str(number),
    )
