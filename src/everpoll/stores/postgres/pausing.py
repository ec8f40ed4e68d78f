"""Paused queues: one row each, nearly always none. Each lease asks for them (functions/lease.sql)."""

from everpoll.drivers.postgres.lane import Lane
from everpoll.stores.operations import Pause
from everpoll.stores.postgres.functions import versioned
from everpoll.stores.postgres.repeats import repeated
from everpoll.stores.task_events import queue_entry

PAUSE = versioned("select everpoll.pause($1, $2, $3, $4)")
RESUME = versioned("select everpoll.resume($1, $2)")
PAUSED = "select queue, reason, paused_by, at from everpoll.pauses order by queue"


async def pause(lane: Lane, queue: str, reason: str, by: str) -> None:
    """Record that the queue is paused."""
    body = queue_entry("pause", queue, by, reason).body
    await repeated(lambda: lane.row(PAUSE, queue, reason, by, body))


async def resume(lane: Lane, queue: str, by: str) -> bool:
    """Resume the queue; return False if it was not paused."""
    body = queue_entry("resume", queue, by).body
    return bool(await repeated(lambda: lane.value(RESUME, queue, body)))


async def paused(lane: Lane) -> dict[str, Pause]:
    """Return the queues that are paused."""
    return {queue: Pause(reason=reason, by=by, at=at) for queue, reason, by, at in await lane.rows(PAUSED)}
