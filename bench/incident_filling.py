"""Fills a store with incidents: open ones, which the control state of their service names, and past ones."""

import time
from collections.abc import Iterator, Sequence

from bench.database import Database, Row, spread
from everpoll.monitors.alerting import Alert
from everpoll.monitors.alerts.incident_row import INCIDENT, KIND, IncidentState, Orders, write
from everpoll.monitors.checks.assignment import QUEUE
from everpoll.monitors.control import Streak
from everpoll.monitors.incident import Incident, close
from everpoll.monitors.report import Status
from everpoll.monitors.streaks import incident_id

ALERT = Alert(after=2, delay="1m", reminder="1h", to=["ops"])
OPEN_S, PAST_S = 3_600.0, 600.0
"""How long the open ones have been open, and how long the past ones were."""
ERROR = "connection refused by the host, port 443, after 3 tries"
TASK = ("kind", "queue", "name", "key", "cancels_itself", "indexed", "rank", "version", "args", "memory")


def open_streaks(service: str, born: int, now: float, dependency: str) -> tuple[Streak, dict[str, Streak]]:
    """Return what the control state says of a failed service and a failed dependency of it."""
    since = now - OPEN_S
    own = Streak(bad=90, since=since, incident=incident_id(service, born, 1))
    return own, {dependency: Streak(bad=90, since=since, incident=incident_id(service, born, 2, dependency))}


async def fill_incidents(
    database: Database, opened: Sequence[tuple[str, str]], past: Iterator[Row], first: int
) -> None:
    """Write the open incidents, as `opened` ids and services under ids from `first` on, and the rows of past ones."""
    now = time.time()
    live = [(name, service, now - OPEN_S) for name, service in opened]
    await database.insert(
        "tasks",
        ("id", "due_at", "created_at", "line", *TASK),
        (
            (first + place, database.at(now + 86_400), database.at(at), 1, *_task(_incident(name, service, at), at))
            for place, (name, service, at) in enumerate(live)
        ),
    )
    ended = ("was_leased",) if database.path is not None else ()
    columns = ("id", "ended_at", "due_at", "created_at", "state", "sequence", "attempt", "rescues", "cancel_requested")
    await database.insert("history", (*columns, *TASK, "result", *ended), past)


def past_incidents(database: Database, ids: Sequence[int], services: Sequence[str], days: float) -> Iterator[Row]:
    """Yield rows of history under these ids, spread over the days before now."""
    now = time.time()
    is_sqlite = database.path is not None
    for number, at in spread(len(ids), now - days * 86_400 + PAST_S, now - PAST_S):
        service = services[number * 7 % len(services)]
        incident = close(_incident(f"{service}:past:{number}", service, at), "recovered", at + PAST_S)
        instants = (database.at(at + PAST_S), database.at(at), database.at(at))
        task = _task(incident, at)
        yield ids[number], *instants, "done", 9, 1, 0, False, *task, write(incident), *((True,) if is_sqlite else ())


def _task(incident: Incident, at: float) -> Row:
    memory = write(IncidentState(incident=incident, seen_at=at, seq=3))
    return KIND, QUEUE, INCIDENT, incident.id, True, True, 0, 1, write(Orders()), memory


def _incident(name: str, service: str, at: float) -> Incident:
    return Incident(
        id=name,
        service=service,
        opened_at=at,
        since=at - 30,
        status=Status.DOWN,
        error=ERROR,
        alert=ALERT,
        sent={"ops": at + 60},
        noticed_at=at + 60,
        waits="reminder",
    )
