"""Causes of failed jobs, grouped."""

from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from everpoll.http.stored_secrets import without_secrets
from everpoll.jobs.causes import Cause, causes_of
from everpoll.server.answers import Reply
from everpoll.server.route import ApiCall, Route
from everpoll.server.shapes import instant_example

SEARCHED = 1_000
"""How many failed jobs are read at most: 10,000 took 200 ms, which is too long for a page."""
READ_S = 1.0
"""How long failed jobs are read at most."""


class CausesQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """A filter of jobs."""

    name: str | None = None
    queue: str | None = None


class CauseList(Struct, frozen=True):
    """The causes of failed jobs, the most frequent first."""

    items: tuple[Cause, ...]
    is_capped: bool = False
    """True: there are more failed jobs than were read: 1,000, or as many as can be read in a second."""
    searched: int = 0
    """How many failed jobs were read, newest first."""


async def list_causes(call: ApiCall) -> Reply:
    """Answer `GET /api/jobs/causes`."""
    query: CausesQuery = call.query
    found = await causes_of(await call.serving.store(), query.name, query.queue, READ_S, SEARCHED)
    causes = [replace(one, error=without_secrets(one.error)) for one in found.causes]
    return Reply(CauseList(tuple(causes), found.is_capped, found.searched))


_CAUSE: dict[str, Any] = {
    "name": "audit",
    "type": "ConnectionError",
    "error": "connection to port <n> refused",
    "count": 42,
    "first_at": instant_example(0),
    "last_at": instant_example(60),
    "examples": [17, 16, 12],
}

CAUSES_ROUTES = [
    Route(
        method="GET",
        path="/api/jobs/causes",
        noun="jobs",
        summary="Group the newest 1,000 failed jobs by what went wrong, the most frequent cause first.",
        handler=list_causes,
        query=CausesQuery,
        answer=CauseList,
        example={"items": [_CAUSE], "is_capped": False, "searched": 42},
    ),
]
