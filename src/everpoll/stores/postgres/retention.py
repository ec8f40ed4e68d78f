"""Retention: history goes by whole days, which costs the same however much is in them.

What an exact cut would leave of a day goes with that day, at most a day later; only where less than a day is to be
kept, and in the default partition, rows are deleted one by one, in bounded steps.
"""

from everpoll.drivers.postgres.lane import Lane
from everpoll.stores.postgres import figures
from everpoll.stores.postgres.functions import versioned

DAY_S = 86_400.0
STEP = 10_000
"""Rows per statement: well under a second, so that no other statement waits long behind it."""

DROP = versioned("select everpoll.drop_partitions(now() - $1::float8 * interval '1 second')")
DELETE = versioned("select everpoll.delete_history(now() - $1::float8 * interval '1 second', $2, $3)")
DELETE_LOSSES = """with old as (select id from everpoll.losses
        where at < now() - $1::float8 * interval '1 second' order by id limit $2),
    gone as (delete from everpoll.losses where id in (select id from old) returning 1)
    select count(*) from gone"""
# Events have their times in the order of their ids, or nearly so: the first ones tell whether there are any.
DELETE_EVENTS = """with old as (select id, at from everpoll.events order by id limit $2),
    gone as (delete from everpoll.events where id in (
        select id from old where at < now() - $1::float8 * interval '1 second') returning id),
    horizon as (
        insert into everpoll.feed_horizon (pruned) select max(id) from gone having count(*) > 0
        on conflict (one) do update set pruned = greatest(feed_horizon.pruned, excluded.pruned))
    select count(*) from gone"""
DELETE_STARTS = """with old as (select ctid from everpoll.starts where until_at < now() limit $1),
    gone as (delete from everpoll.starts s where s.ctid = any(array(select ctid from old)) returning 1)
    select count(*) from gone"""
# Their labels are in the rows that they held.
DELETE_WORKERS = "delete from everpoll.workers where is_clear and stopped_at < now() - interval '1 day'"


async def prune(lane: Lane, older_than_s: float) -> int:
    """Delete the rows that are older; return how many partitions or rows were deleted."""
    gone = int(await lane.value(DROP, older_than_s))
    while deleted := await lane.value(DELETE, older_than_s, older_than_s < DAY_S, STEP):
        gone += int(deleted)
    while await lane.value(DELETE_LOSSES, older_than_s, STEP) == STEP:
        pass
    while await lane.value(DELETE_EVENTS, older_than_s, STEP) == STEP:
        pass
    await figures.drop(lane)
    while await lane.value(DELETE_STARTS, STEP) == STEP:
        pass
    await lane.row(DELETE_WORKERS)
    return gone
