"""Retention: drops old history in bounded steps, so that the write lock is never held for long.

Each step reads a slice of history in the reading lane, and deletes only the rows of it that are old enough. There is no
index by age, because it would make every end of a task slower.
"""

from collections.abc import Callable
from typing import NamedTuple

from everpoll.drivers.sqlite.connection import Connection
from everpoll.drivers.sqlite.lane import Op
from everpoll.stores.sqlite import figures, limited, reading
from everpoll.stores.sqlite.clock import microseconds
from everpoll.stores.sqlite.lanes import Lanes

SLICE = 5_000
"""How many rows a step reads, and at most deletes: about 5 ms."""

OLD = """select max(id), json_group_array(id) filter (where ended_at < :oldest)
    from (select id, ended_at from everpoll_history where id > :after order by id limit :slice)"""
DROP = "delete from everpoll_history where id in (select value from json_each(:ids)) and ended_at < :oldest"
DROP_LOSSES = """delete from everpoll_losses where task_id in (select value from json_each(:ids))
    and not exists (select 1 from everpoll_history h where h.id = task_id)
    and not exists (select 1 from everpoll_tasks t where t.id = task_id)"""
# Times of events are in the order of their numbers, except after steps of the clock, so only the first slice is read.
OLD_EVENTS = """select max(id), count(*) from everpoll_events where id in
    (select id from everpoll_events order by id limit :slice) and at < :oldest"""
DROP_EVENTS = """delete from everpoll_events where id in
    (select id from everpoll_events order by id limit :slice) and at < :oldest"""
# A reader whose position is before the last dropped event has missed it.
PRUNED = """insert into everpoll_feed_horizon (one, pruned) values (1, ?)
    on conflict (one) do update set pruned = max(pruned, excluded.pruned)"""
# Listings show the label of the worker of a task, so workers of live tasks stay; those in history ended before it.
IDLE_WORKERS = """select json_group_array(incarnation) from
    (select incarnation from everpoll_workers where stopped_at < :oldest limit :slice)
    where incarnation not in (select owner from everpoll_tasks where owner is not null)"""
DROP_WORKERS = "delete from everpoll_workers where incarnation in (select value from json_each(?))"


class OldSlice(NamedTuple):
    """The result of one step."""

    last: int | None
    """The id after which the next slice begins; None if there is none."""
    ids: str
    """The ids of old rows, as a JSON array."""


async def prune(lanes: Lanes, now: Callable[[], int], older_than_s: float) -> int:
    """Drop history older than this; return how many rows were dropped. Other writers may write between the steps."""
    oldest = now() - microseconds(older_than_s)
    gone, after = 0, 0
    while (found := await _old_slice(lanes, oldest, after)).last is not None:
        if found.ids != "[]":
            gone += await _dropped(lanes, oldest, found.ids)
        after = found.last
    while await lanes.write(Op(lambda con: drop_events(con, oldest))):
        pass
    while await lanes.write(Op(lambda con: figures.drop(con, now()))):
        pass
    while await lanes.write(Op(lambda con: limited.forget_starts(con, now()))):
        pass
    idle = await lanes.read(lambda con: idle_workers(con, min(oldest, now() - reading.WORKERS_SHOWN_US)))
    if idle != "[]":
        await lanes.write(Op(lambda con: drop_workers(con, idle)))
    return gone


async def _old_slice(lanes: Lanes, oldest: int, after: int) -> OldSlice:
    return await lanes.read(lambda con: old_slice(con, oldest, after))


async def _dropped(lanes: Lanes, oldest: int, ids: str) -> int:
    return await lanes.write(Op(lambda con: drop(con, oldest, ids)))


def old_slice(con: Connection, oldest: int, after: int) -> OldSlice:
    """Read one slice."""
    last, ids = con.execute(OLD, {"oldest": oldest, "after": after, "slice": SLICE}).fetchone()
    return OldSlice(last, ids)


def drop(con: Connection, oldest: int, ids: str) -> int:
    """Delete these rows, unless they were put back in the queue meanwhile."""
    gone = con.execute(DROP, {"oldest": oldest, "ids": ids}).rowcount
    con.execute(DROP_LOSSES, {"ids": ids})
    return gone


def idle_workers(con: Connection, oldest: int) -> str:
    """Return the workers that ended that long ago and that no live task mentions, as a JSON array."""
    found: str = con.execute(IDLE_WORKERS, {"oldest": oldest, "slice": SLICE}).fetchone()[0]
    return found


def drop_workers(con: Connection, incarnations: str) -> None:
    """Delete these workers."""
    con.execute(DROP_WORKERS, (incarnations,))


def drop_events(con: Connection, oldest: int) -> bool:
    """Delete a slice of the oldest events that are too old; return True if there may be more."""
    bound = {"oldest": oldest, "slice": SLICE}
    last, number = con.execute(OLD_EVENTS, bound).fetchone()
    if number:
        con.execute(DROP_EVENTS, bound)
        con.execute(PRUNED, (last,))
    return bool(number == SLICE)
