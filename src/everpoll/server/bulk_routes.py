"""Bulk actions on jobs: redrive, cancel or delete by filter, with a dry run."""

import asyncio
from datetime import UTC, datetime
from typing import Annotated, Any

from msgspec import Meta, Struct, field

from everpoll.engine.bulk import Action, BulkAnswer, BulkOrder
from everpoll.server.answers import Reply
from everpoll.server.job_filter import JobFilter
from everpoll.server.problems import bad_argument
from everpoll.server.route import ApiCall
from everpoll.server.route_kinds import order
from everpoll.server.shapes import instant_example
from everpoll.stores.contract import TaskFilter
from everpoll.stores.task_search import checked

WAIT_S = 10.0
"""How long a request waits for its action to end."""
DRY_S = 30.0


class BulkFilter(JobFilter, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The jobs to change: by their ids, or by the filters of the list."""

    ids: Annotated[list[int], Meta(max_length=10_000)] = field(default_factory=list)


class BulkBody(Struct, frozen=True, forbid_unknown_fields=True):
    """An action, and the jobs to change."""

    action: Action
    filter: BulkFilter
    dry_run: bool = False
    as_of: datetime | None = None
    """The `as_of` of a dry run: only jobs that it counted are changed."""


async def change_many_jobs(call: ApiCall) -> Reply:
    """Answer `POST /api/jobs/bulk`."""
    body: BulkBody = call.body
    wanted, task_filter = body.filter, body.filter.wanted
    is_filtered = task_filter != TaskFilter(kind="job")
    if not wanted.ids and not is_filtered:
        raise bad_argument("filter", "must name ids, or at least one filter: without any it would be all jobs")
    if wanted.ids and is_filtered:
        raise bad_argument("filter", "must be ids, or other filters, not both")
    if any(not 0 < one < 2**63 for one in wanted.ids):
        raise bad_argument("filter.ids", "must be ids of tasks")
    if body.as_of is not None and body.as_of.tzinfo is None:
        raise bad_argument("as_of", "must be an instant with a time zone")
    checked(task_filter)
    store = await call.serving.store()
    order = BulkOrder(body.action, task_filter, wanted.ids, as_of=body.as_of or datetime.now(UTC), by=call.by)
    if body.dry_run:
        await order.count(store)
        return Reply(order.answer(dry_run=True))
    going = call.serving.background(order.carry_out(store))
    await asyncio.wait({going}, timeout=WAIT_S)
    call.serving.changes.changed("jobs", "queues")
    if going.done():
        going.result()
        return Reply(order.answer())
    return Reply(order.answer(), 202)


_ANSWER: dict[str, Any] = {
    "id": "0f3a5b7c9d1e2f40",
    "action": "redrive",
    "dry_run": False,
    "as_of": instant_example(0),
    "matched": 2431,
    "eligible": 2430,
    "moved": 2430,
    "skipped": 1,
    "reasons": {"another task has its key": 1},
    "is_capped": False,
    "is_done": True,
}

BULK_ROUTES = [
    order(
        path="/api/jobs/bulk",
        noun="jobs",
        summary="Redrive, cancel or delete jobs by filter, in batches. 202: it goes on; its events have the progress.",
        handler=change_many_jobs,
        body=BulkBody,
        body_example={"action": "redrive", "filter": {"state": "failed", "name": "audit"}, "dry_run": True},
        answer=BulkAnswer,
        also=(202,),
        example=_ANSWER,
        limit_s=DRY_S,
    ),
]
