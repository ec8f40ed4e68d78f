"""Fills the log with events of several kinds, as the two last days of a fleet leave them."""

import time
from collections.abc import Iterator, Sequence

from bench.database import Database, Row, spread
from everpoll.engine.actors import action
from everpoll.engine.failure_events import failure_event
from everpoll.monitors.checks.assignment import CHECK, KIND
from everpoll.monitors.events import IncidentClose, IncidentOpen, StatusChange, about, write
from everpoll.monitors.report import Status

DAYS = 2.0
COLUMNS = ("id", "task_id", "seq", "at", "kind", "name", "key", "body")
LAST = "select coalesce(max(id), 0) from {}"
GO_ON = "select setval(pg_get_serial_sequence('everpoll.events', 'id'), (select max(id) from everpoll.events))"
ERROR = "connection refused by the host, port 443, after 3 tries"


async def fill_events(database: Database, count: int, services: Sequence[str], runs: int) -> None:
    """Write events behind those that are there: of jobs, runs, services, incidents and operators."""
    now = time.time()
    before = int(await database.execute(LAST.format("everpoll_events"), LAST.format("everpoll.events")))
    moments = spread(count, now - DAYS * 86_400, now)
    await database.insert("events", COLUMNS, _events(database, moments, before, services, runs))
    await database.execute("select 1", GO_ON)


def _events(
    database: Database, moments: Iterator[tuple[int, float]], before: int, services: Sequence[str], runs: int
) -> Iterator[Row]:
    for number, at in moments:
        place = before + number + 1
        # A negative number of the event among those of its task is minus its place in the log.
        yield place, number + 1, -place, database.at(at), *_event(number, at, services, runs)


def _event(number: int, at: float, services: Sequence[str], runs: int) -> Row:
    """Return kind, name, key and body; in ten events: jobs three, services three, runs two, incidents and operators."""
    service = services[number * 7 % len(services)]
    match number % 10:
        case 0 | 1 | 2:
            note = {"what": "retry", "attempt": 1, "type": f"Error{number % 20}", "error": ERROR}
            return "job", f"job{number % 50}", None, failure_event(note)[0].body
        case 3 | 4 | 5:
            return KIND, CHECK, service, write(_change(service, at, is_up=number % 20 < 10))
        case 6 | 7:
            body = '{"from":"looking","to":"looking","status":"running","progress":"40 %"}'
            return "watch", "export", f"run-{number % max(1, runs)}", body
        case 8:
            return KIND, CHECK, service, write(_of_incident(service, at, is_open=number % 20 < 10))
        case _:
            return "queue", f"queue{number % 5}", None, action("pause", "anna", "maintenance of the database")


def _change(service: str, at: float, *, is_up: bool) -> StatusChange:
    before, after = (Status.DOWN, Status.UP) if is_up else (Status.UP, Status.DOWN)
    return StatusChange(
        **about(service, at),
        dependency_name=None,
        previous_healthy=not is_up,
        current_healthy=is_up,
        previous_status=before,
        current_status=after,
        error=None if is_up else ERROR,
    )


def _of_incident(service: str, at: float, *, is_open: bool) -> IncidentOpen | IncidentClose:
    name = f"{service}:past:{int(at)}"
    if is_open:
        return IncidentOpen(**about(service, at), incident_id=name, dependency_name=None, since=at - 30, error=ERROR)
    return IncidentClose(**about(service, at), incident_id=name, dependency_name=None, reason="recovered")
