"""Change log: logs changes of services, and each look at debug level.

Everything is logged at level INFO or below: a service that is down is not an error of this program, and has its alerts.
The first "up" of a service is logged at debug level, because ten thousand services log as many lines at the start.
"""

import logging
from collections.abc import Iterable

from everpoll.logs.context import about
from everpoll.monitors.events import CircuitOpen, ServiceEvent, StatusChange
from everpoll.monitors.look import Look
from everpoll.monitors.report import Status
from everpoll.policy import human

logger = logging.getLogger("everpoll.monitors")


def log_changes(events: Iterable[ServiceEvent]) -> None:
    """Log changes of status, and breakers that open."""
    for event in events:
        if isinstance(event, StatusChange):
            logger.log(_level(event), "%s", _changed(event))
        elif isinstance(event, CircuitOpen):
            left = human(max(0, round(event.until - event.timestamp)))
            text = "%s did not answer %d times in a row: the breaker is open, the next look is in %s"
            logger.info(text, event.service_name, event.failures, left)


def log_look(logger: logging.Logger, name: str, look: Look, next_s: float) -> None:
    """Log one look at debug level."""
    took_s = max(0.0, look.ended_at - look.started_at)
    status = "not asked" if look.reached is None else str(look.status)
    why = f": {look.error}" if look.error else ""
    extra = about(outcome=status, duration_s=round(took_s, 6))
    next_look = human(max(0.0, round(next_s, 3)))
    logger.debug("looked at %s in %s: %s%s; next look in %s", name, human(took_s), status, why, next_look, extra=extra)


def _level(event: StatusChange) -> int:
    is_first = event.previous_status is Status.UNKNOWN and event.current_status is Status.UP
    return logging.DEBUG if is_first else logging.INFO


def _changed(event: StatusChange) -> str:
    name = event.service_name
    thing = name if event.dependency_name is None else f"{event.dependency_name} of {name}"
    why = f": {event.error}" if event.error and event.current_status is not Status.UP else ""
    return f"{thing} is {event.current_status}{why}"
