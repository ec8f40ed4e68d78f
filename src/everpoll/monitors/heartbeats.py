"""Heartbeats: services that call everpoll. A beat that is late means down.

    expected   one beat each interval, late by at most the timeout
    missed     down, and once more with each further interval without a beat
    beat       up, whatever was missed

Promises: a beat is missed only if everpoll was there to receive it: where the row is looked at long after its deadline,
no worker was running, nothing is known, and the service has a whole interval more. Nothing is ever asked, so there is
neither breaker nor backoff; `failures` counts missed beats.
"""

import math

from msgspec.structs import replace

from everpoll.monitors.control import Control
from everpoll.monitors.definition import Definition
from everpoll.monitors.look import Look
from everpoll.monitors.report import Status
from everpoll.policy import human

OUR_ABSENCE_S = 60.0
"""A deadline that was looked at this much later was not watched: no worker was running."""


def heartbeat_due_at(definition: Definition, control: Control) -> float:
    """Return when the next beat is late."""
    since = control.born if control.slot_at is None else control.slot_at
    return since + definition.every_s * (control.failures + 1) + definition.timeout_s


def heartbeat_look(definition: Definition, control: Control, now: float) -> Look:
    """Return what a deadline without a beat says: late, or nothing."""
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
    """Set the next deadline after a beat, or after one that was missed."""
    since = control.born if control.slot_at is None else control.slot_at
    if look.reached is False:
        # Deadlines that passed while this one was waited for are one miss.
        overdue_s = look.ended_at - since - definition.timeout_s
        counted = replace(control, failures=max(control.failures + 1, math.floor(overdue_s / definition.every_s)))
    else:
        counted = replace(control, failures=0, slot_at=look.ended_at)
    due_at = heartbeat_due_at(definition, counted)
    return replace(counted, every_s=definition.every_s, due_at=due_at, waits="heartbeat")
