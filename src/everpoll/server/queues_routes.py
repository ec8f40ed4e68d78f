"""Queues: counts the tasks that wait in each, and pauses and resumes queues."""

from datetime import datetime
from typing import Any

from msgspec import Struct

from everpoll.engine.queues import Queue
from everpoll.server import cursors
from everpoll.server.fleet_routes import FleetQuery
from everpoll.server.problems import Problem
from everpoll.server.route import ApiCall
from everpoll.server.route_kinds import listing, order
from everpoll.server.shapes import Page, Reason, instant_example
from everpoll.stores.contract import QueueInfo
from everpoll.stores.operations import Pause


class QueueItem(Struct, frozen=True, kw_only=True):
    """A queue. Counts are exact up to 10,000."""

    name: str
    ready: int
    waiting: int
    running: int
    limited: int
    """Due jobs that wait for their limit; `ready` does not include them."""
    blocked: int
    """Jobs of chains and groups that wait for others to end."""
    oldest_due_at: datetime | None
    """The due time of the ready task that has waited longest."""
    paused: Pause | None
    """The pause of the queue: the reason, the operator and the time; null: it is not paused."""
    has_more_running: bool = False
    """True: more tasks may run than `running`, because counting is bounded."""


class PauseOrder(Struct, frozen=True, forbid_unknown_fields=True):
    """Why a queue is paused."""

    reason: Reason = ""


class QueuePage(Page, frozen=True, kw_only=True):
    """Queues, by name."""

    items: list[QueueItem]
    after: str | None


async def list_queues(call: ApiCall) -> QueuePage:
    """Answer `GET /api/queues`."""
    query: FleetQuery = call.query
    found = await (await call.serving.store()).queues()
    after = cursors.read_text("queues", query.after)
    items = sorted((one for one in found if after is None or one.queue > after), key=lambda one: one.queue)
    page = [_queue(one) for one in items[: query.limit]]
    return QueuePage(items=page, after=cursors.write("queues", page[-1].name) if len(items) > len(page) else None)


async def pause_queue(call: ApiCall) -> QueueItem:
    """Answer `POST /api/queues/{name}/pause`."""
    order: PauseOrder = call.body or PauseOrder()
    queue = Queue(call.params["name"], call.serving.store)
    await queue.pause(order.reason, by=call.by)
    call.serving.changes.changed("queues")
    return _queue(await queue.info())


async def resume_queue(call: ApiCall) -> QueueItem:
    """Answer `POST /api/queues/{name}/resume`."""
    queue = Queue(call.params["name"], call.serving.store)
    if not await queue.resume(by=call.by):
        raise Problem(409, f"queue {queue.name!r} is not paused")
    call.serving.changes.changed("queues")
    return _queue(await queue.info())


def _queue(one: QueueInfo) -> QueueItem:
    return QueueItem(
        name=one.queue,
        ready=one.ready,
        waiting=one.waiting,
        running=one.running,
        limited=one.limited,
        blocked=one.blocked,
        oldest_due_at=one.oldest_due_at,
        paused=one.paused,
        has_more_running=one.has_more_running,
    )


_QUEUE: dict[str, Any] = {
    "name": "default",
    "ready": 3,
    "waiting": 10,
    "running": 1,
    "limited": 0,
    "blocked": 0,
    "oldest_due_at": instant_example(0),
    "paused": None,
    "has_more_running": False,
}
_PAUSED = {"reason": "the mail server is being moved", "by": "HTTP from 10.1.2.3", "at": instant_example(0)}

QUEUE_ROUTES = [
    listing(
        path="/api/queues",
        noun="fleet",
        summary="List queues, with counts of their tasks.",
        handler=list_queues,
        query=FleetQuery,
        answer=QueuePage,
        item=_QUEUE,
    ),
    order(
        path="/api/queues/{name}/pause",
        noun="fleet",
        summary="Pause a queue: no worker of the fleet leases tasks from it; running tasks go on.",
        handler=pause_queue,
        body=PauseOrder,
        needs_body=False,
        body_example={"reason": "the mail server is being moved"},
        answer=QueueItem,
        example=_QUEUE | {"paused": _PAUSED},
    ),
    order(
        path="/api/queues/{name}/resume",
        noun="fleet",
        summary="Resume a queue: workers lease tasks from it again. 409: it is not paused.",
        handler=resume_queue,
        answer=QueueItem,
        example=_QUEUE,
        problems=(409,),
    ),
]
