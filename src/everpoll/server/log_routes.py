"""The durable log as a list, newest first, for a screen that then follows `/api/events`.

Promises: a page reads at most SCAN events, whatever the filter: a page that is short because of that says how far back
it looked, and has a cursor that goes on from there.
"""

from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta, Struct

from everpoll.errors import BadInput
from everpoll.http.stored_secrets import without_secrets
from everpoll.monitors.kinds import CHECK_KIND, INCIDENT_KIND
from everpoll.server import cursors
from everpoll.server.problems import bad_argument
from everpoll.server.route import ApiCall
from everpoll.server.route_kinds import detail
from everpoll.server.shapes import After, Limit, Page, instant_example, task_number
from everpoll.stores.contract import Event, Store
from everpoll.stores.feed_positions import place_in_feed

LIST = "log"
WINDOW = 500
SCAN = 5_000
"""How many events one page reads."""
Word = Annotated[str, Meta(max_length=500)] | None


class LogQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Which events to list."""

    kind: Word = None
    """"job", "watch", "service" (also for its looks), "incident", "queue", "loop", "bulk" …"""
    name: Word = None
    """The name of the job, watch, queue, loop or service."""
    key: Word = None
    task: Annotated[str, Meta(max_length=30)] | None = None
    """Only events about this task."""
    at: Annotated[str, Meta(max_length=30)] | None = None
    """The position of an event: the list begins with it and goes back from there."""
    limit: Limit = 50
    after: After = None


class LogItem(Struct, frozen=True, kw_only=True):
    """One event."""

    position: str
    """The place in the log: with it as `Last-Event-ID`, `/api/events` begins after this event."""
    at: datetime
    kind: str
    name: str
    key: str | None
    task_id: int
    seq: int
    body: Any


class LogPage(Page, frozen=True, kw_only=True, omit_defaults=True):
    """Events, newest first."""

    items: list[LogItem]
    after: str | None
    searched_back_to: datetime | None = None
    """Set if the page is short because the search is bounded: the oldest event that was read is from this time."""


async def list_log(call: ApiCall) -> LogPage:
    """Answer `GET /api/log`."""
    query: LogQuery = call.query
    store = await call.serving.store()
    given = cursors.read_number(LIST, query.after)
    if given is None and query.at is not None:
        given = _place(query.at)
    if query.task is not None:
        return await _of_task(store, query, task_number(query.task), given)
    end = place_in_feed((await store.events(None, 1)).after) if given is None else given
    found: list[Event] = []
    seen, oldest = 0, None
    while end > 0 and len(found) < query.limit and seen < SCAN:
        start = max(0, end - WINDOW)
        try:
            page = await store.events(str(start), WINDOW)
        except BadInput:
            raise bad_argument("after", "is not a cursor of this list") from None
        events = [one for one in page.events if place_in_feed(one.position) <= end]
        seen += WINDOW
        for one in reversed(events):
            oldest = one
            if _fits(one, query):
                found.append(one)
            if len(found) == query.limit:
                break
        end = start
        if page.is_gap and not events:
            end = 0
    is_short = len(found) < query.limit
    place = end if is_short else place_in_feed(found[-1].position) - 1
    back_to = oldest.at if is_short and place > 0 and oldest is not None else None
    return LogPage(items=[_item(one) for one in found], after=_cursor(place), searched_back_to=back_to)


async def _of_task(store: Store, query: LogQuery, task_id: int, end: int | None) -> LogPage:
    events = [*await store.task_events(task_id), *await store.actions_of(task_id)]
    placed = sorted(((place_in_feed(one.position), one) for one in events), key=lambda pair: -pair[0])
    wanted = [pair for pair in placed if (end is None or pair[0] <= end) and _fits(pair[1], query)]
    shown = wanted[: query.limit]
    after = _cursor(shown[-1][0] - 1) if len(wanted) > len(shown) else None
    return LogPage(items=[_item(one) for _, one in shown], after=after)


def _place(position: str) -> int:
    try:
        return place_in_feed(position)
    except BadInput:
        raise bad_argument("at", "must be the position of an event") from None


def _cursor(place: int) -> str | None:
    return cursors.write(LIST, place) if place > 0 else None


def _fits(event: Event, query: LogQuery) -> bool:
    if query.key is not None and query.key != event.key:
        return False
    kinds, names = _subject(event)
    return (query.kind is None or query.kind in kinds) and (query.name is None or query.name in names)


def _subject(event: Event) -> tuple[tuple[str, ...], tuple[str | None, ...]]:
    """Return the kinds and names by which an event is found; for incidents, those of the service."""
    if event.kind == INCIDENT_KIND:
        return (event.kind,), (event.name, event.key)
    if event.kind != CHECK_KIND:
        return (event.kind,), (event.name,)
    is_incident = isinstance(event.body, dict) and str(event.body.get("kind")).startswith("incident:")
    kinds = (CHECK_KIND, "service", "incident") if is_incident else (CHECK_KIND, "service")
    return kinds, (event.name, event.key)


def _item(event: Event) -> LogItem:
    return LogItem(
        position=event.position,
        at=event.at,
        kind=event.kind,
        name=event.name,
        key=event.key,
        task_id=event.task_id,
        seq=event.seq,
        body=without_secrets(event.body),
    )


LOG_ROUTES = [
    detail(
        path="/api/log",
        noun="events",
        summary="List the durable log, newest first.",
        handler=list_log,
        query=LogQuery,
        answer=LogPage,
        example={
            "items": [
                {
                    "position": "18",
                    "at": instant_example(0),
                    "kind": "job",
                    "name": "audit",
                    "key": None,
                    "task_id": 42,
                    "seq": -18,
                    "body": {"what": "retry", "by": "HTTP from 10.1.2.3", "state": "queued"},
                }
            ],
            "after": None,
        },
    ),
]
