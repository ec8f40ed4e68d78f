"""Heartbeats: services that call everpoll. A late heartbeat means down.

    expected   one heartbeat in each interval, late by at most the timeout
    missed     down; counted again for each further interval without a heartbeat
    received   up, or the status that the heartbeat names

Promises: a heartbeat counts as missed only if a worker was running at its deadline. If a worker sees the deadline long
after it, nothing is known, and the service gets another whole interval. A heartbeat service has neither breaker nor
backoff; `failures` counts missed heartbeats.
"""

import math

from msgspec.structs import replace

from everpoll.monitors.control import Control
from everpoll.monitors.definition import Definition
from everpoll.monitors.look import Look
from everpoll.monitors.report import Status
from everpoll.policy import human

OUR_ABSENCE_S = 60.0
"""If a worker sees a deadline this much later, no worker was running at the deadline."""


def heartbeat_due_at(definition: Definition, control: Control) -> float:
    """Return when the next heartbeat is late."""
    since = control.born if control.origin_at is None else control.origin_at
    return since + definition.every_s * (control.failures + 1) + definition.timeout_s


def heartbeat_look(definition: Definition, control: Control, now: float) -> Look:
    """Return the look for a deadline without a heartbeat: down, or unknown if no worker was running."""
    if now > heartbeat_due_at(definition, control) + OUR_ABSENCE_S:
        why = "no worker was running at the deadline"
        return Look(started_at=now, ended_at=now, reached=None, error=why)
    expected = f"expected every {human(definition.every_s)}"
    if control.answered_at is None:
        error = f"no heartbeat yet; {expected}"
    else:
        error = f"no heartbeat for {human(round(now - control.answered_at))}; {expected}"
    return Look(started_at=now, ended_at=now, reached=False, status=Status.DOWN, error=error)


def heartbeat_planned(definition: Definition, control: Control, look: Look) -> Control:
    """Set the next deadline after a heartbeat, or after a missed one."""
    since = control.born if control.origin_at is None else control.origin_at
    if look.reached is False:
        # Count one failure for each interval that has passed without a heartbeat, and at least one.
        overdue_s = look.ended_at - since - definition.timeout_s
        counted = replace(control, failures=max(control.failures + 1, math.floor(overdue_s / definition.every_s)))
    else:
        counted = replace(control, failures=0, origin_at=look.ended_at)
    due_at = heartbeat_due_at(definition, counted)
    return replace(counted, every_s=definition.every_s, due_at=due_at, waits="heartbeat")
