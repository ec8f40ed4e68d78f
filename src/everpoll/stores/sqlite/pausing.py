"""Paused queues: one row each; there are nearly always none.

A lease checks for them in a statement that it needs anyway.
"""

from everpoll.drivers.sqlite.connection import Connection
from everpoll.stores.operations import Pause
from everpoll.stores.sqlite import feed
from everpoll.stores.sqlite.reading import instant
from everpoll.stores.task_events import queue_entry

PAUSE = """insert into everpoll_pauses (queue, reason, paused_by, at) values (?, ?, ?, ?)
    on conflict (queue) do update set reason = excluded.reason, paused_by = excluded.paused_by, at = excluded.at"""
RESUME = "delete from everpoll_pauses where queue = ?"
PAUSED = "select queue, reason, paused_by, at from everpoll_pauses order by queue"


def pause(con: Connection, now: int, queue: str, reason: str, by: str) -> None:
    """Store that the queue is paused."""
    con.execute(PAUSE, (queue, reason, by, now))
    feed.log(con, now, [queue_entry("pause", queue, by, reason)])


def resume(con: Connection, now: int, queue: str, by: str) -> bool:
    """End the pause; return False if the queue was not paused."""
    if con.execute(RESUME, (queue,)).rowcount == 0:
        return False
    feed.log(con, now, [queue_entry("resume", queue, by)])
    return True


def paused(con: Connection) -> dict[str, Pause]:
    """Return the queues that are paused."""
    return {queue: Pause(reason=reason, by=by, at=instant(at)) for queue, reason, by, at in con.execute(PAUSED)}
