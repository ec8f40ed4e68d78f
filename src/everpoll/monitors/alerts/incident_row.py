"""Incident row: the task of one incident, and what the row of its service says about it.

    args      orders, written by operators and looks: acknowledged, opened again, closed
    memory    the incident, and the notices that are not in the mailboxes yet

The row of the service decides: an incident is open exactly while that row names it. A worker that lost its lease may
write wrong orders, so orders alone decide nothing.

    made ──▶ not seen open ──service names it──▶ open ──service names it no more──▶ over ──handed over──▶ ended: done
                  └──service has opened a later one, or is gone, and no look has closed it──▶ ended: canceled

Promises: if a worker opens an incident and its decision is lost, the incident sends nothing and is in no history. Pure.
"""

from enum import Enum, auto
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from everpoll.monitors.alerting import Notice
from everpoll.monitors.checks.assignment import Assignment
from everpoll.monitors.control import CALM, Control
from everpoll.monitors.control import read as read_control
from everpoll.monitors.incident import RECOVERED, Incident, acknowledge, close
from everpoll.monitors.incident_changes import REMOVED, Closing
from everpoll.monitors.kinds import INCIDENT_KIND
from everpoll.monitors.streaks import incident_id
from everpoll.stores.contract import TaskInfo, encode

KIND = INCIDENT_KIND
INCIDENT = "everpoll.incident"
SHORTEST_REST_S = 1.0
LONGEST_REST_S = 3_600.0


class Orders(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The arguments of an incident's task."""

    acknowledged_at: float | None = None
    acknowledged_by: str | None = None
    opened: Incident | None = None
    """A later opening under the same id: it replaces the first while the incident was not seen open."""
    closed_at: float | None = None
    """When a look found that it is over …"""
    closed_why: str | None = None
    """… and why."""


class IncidentState(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The memory of an incident's task."""

    incident: Incident
    seen_at: float | None = None
    """When it was first certain that the incident was open: its service named it, or a look closed it."""
    outgoing: tuple[Notice, ...] = ()
    """Notices that are not in the mailboxes yet."""
    is_over: bool = False
    """True: no notices will follow those in `outgoing`."""
    seq: int = 0
    """The number of the last event."""


class OpenState(Enum):
    """Whether an incident is open, by the row of its service."""

    OPEN = auto()
    NOT_YET = auto()
    """The service has not opened this incident yet."""
    OVER = auto()
    GONE = auto()
    """The service was removed."""


def open_state(incident: Incident, row: TaskInfo | None) -> OpenState:
    """Return whether an incident is open, by the row of its service."""
    if row is None or row.ended_at is not None:
        return OpenState.GONE
    control = control_of(row)
    number = number_of(incident)
    if incident.id != incident_id(incident.service, control.born, number, incident.dependency):
        # The service was removed, and registered again.
        return OpenState.GONE
    streak = control.streak if incident.dependency is None else control.dependencies.get(incident.dependency, CALM)
    if streak.incident == incident.id:
        return OpenState.OPEN
    return OpenState.OVER if number <= control.incidents else OpenState.NOT_YET


def number_of(incident: Incident) -> int:
    """Return the number of an incident among those of its service."""
    parts = incident.id[len(incident.service) + 1 :].split(":")
    return int(parts[1]) if len(parts) > 1 and parts[1].isascii() and parts[1].isdigit() else 0


def seen(state: IncidentState, orders: Orders, found: OpenState, now: float) -> IncidentState | None:
    """Return the state once it is certain that the incident was open; None before that."""
    if state.seen_at is not None:
        return state
    if found is not OpenState.OPEN and orders.closed_at is None:
        return None
    return replace(state, incident=orders.opened or state.incident, seen_at=now)


def ordered(state: IncidentState, orders: Orders, found: OpenState, now: float) -> IncidentState:
    """Return the state after the orders of operators and looks."""
    incident = state.incident
    if orders.acknowledged_at is not None:
        incident = acknowledge(incident, orders.acknowledged_by, orders.acknowledged_at)
    if found is not OpenState.OPEN:
        usual = REMOVED if found is OpenState.GONE else RECOVERED
        at = now if orders.closed_at is None else min(now, max(orders.closed_at, incident.opened_at))
        incident = close(incident, orders.closed_why or usual, at)
    return replace(state, incident=incident)


def rest_s(since: float, now: float) -> float:
    """Return how long to wait for a row that is about to be settled: a second at first, then longer and longer.

    If a worker died before it settled, its decision never comes: waiting for it must cost less and less.
    """
    return min(max((now - since) / 10, SHORTEST_REST_S), LONGEST_REST_S)


def with_closing(orders: Orders, closing: Closing) -> Orders:
    """Return the orders with a closing that a look found; of two closings, the later one stays."""
    if orders.closed_at is not None and orders.closed_at >= closing.at:
        return orders
    return replace(orders, closed_at=closing.at, closed_why=closing.why)


def control_of(row: TaskInfo) -> Control:
    """Return the control state of a service's row."""
    try:
        return Control() if row.memory is None else msgspec.convert(row.memory, Control)
    except msgspec.ValidationError:
        return read_control(encode(row.memory))


def assignment_of(row: TaskInfo) -> Assignment:
    """Return the assignment of a service's row."""
    return msgspec.convert(row.args, Assignment)


def orders_of(row: TaskInfo) -> Orders:
    """Return the orders in an incident's row."""
    return msgspec.convert(row.args, Orders)


def state_of(row: TaskInfo) -> IncidentState:
    """Return the state in an incident's row."""
    return msgspec.convert(row.memory, IncidentState)


_encoder = msgspec.json.Encoder()
read_orders = msgspec.json.Decoder(Orders).decode
read_state = msgspec.json.Decoder(IncidentState).decode


def write(value: Any) -> str:
    """Return the JSON of orders, of a state, or of an incident."""
    return _encoder.encode(value).decode()
