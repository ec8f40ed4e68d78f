"""Info: makes the state of a service for callers from its row. Pure."""

from typing import Literal

import msgspec
from msgspec import Struct

from everpoll.monitors.checks.assignment import Assignment
from everpoll.monitors.control import Control, breaker_phase, shown_status
from everpoll.monitors.pause import ServicePause
from everpoll.monitors.report import Status
from everpoll.monitors.service_rows import ServiceRow
from everpoll.monitors.targets import shown_target
from everpoll.stores.contract import TaskInfo


class ServiceInfo(Struct, frozen=True, kw_only=True):
    """One service. Instants are seconds since the epoch."""

    name: str
    target: str
    """The target without secrets."""
    status: Status | Literal["stale", "paused"]
    since: float | None
    """When the status last changed."""
    looked_at: float | None
    due_at: float | None
    """When the next look is due; None while the service is paused."""
    waits: str
    """What the next look waits for: interval, backoff, breaker, retry_after, paused …"""
    latency_ms: float | None
    error: str | None
    http_status: int | None
    breaker: Literal["closed", "open", "half_open"]
    failures: int
    """Looks in a row that got no answer."""
    warnings: tuple[str, ...]
    every_s: float
    timeout_s: float
    format: str
    depends_on: tuple[str, ...]
    incident: str | None
    """The id of its open incident."""
    muted_until: float | None
    paused: ServicePause | None
    """The pause of the service: since when, why and by which actor; None: it is not paused."""
    is_removed: bool
    """True: the service is being removed."""

    @property
    def healthy(self) -> bool | None:
        """True for up and degraded, False for down, None for unknown, stale and paused."""
        return self.status.healthy if isinstance(self.status, Status) else None


def service_info(row: TaskInfo, now: float) -> ServiceInfo:
    """Return the state of a service from its task."""
    control = Control() if row.memory is None else msgspec.convert(row.memory, Control)
    return info_of(ServiceRow(row.id, msgspec.convert(row.args, Assignment), control, row.cancel_requested), now)


def info_of(row: ServiceRow, now: float) -> ServiceInfo:
    """Return the state of a service from its decoded row."""
    assignment, control, definition = row.assignment, row.control, row.definition
    muted, paused = assignment.muted_until, assignment.paused
    return ServiceInfo(
        name=definition.name,
        target=shown_target(definition.target),
        status=shown_status(definition, control, now, is_paused=paused is not None),
        since=control.changed_at if paused is None else paused.at,
        looked_at=control.looked_at,
        due_at=control.due_at if paused is None else None,
        waits=control.waits if paused is None else "paused",
        latency_ms=control.latency_ms,
        error=control.error if paused is None else None,
        http_status=control.http_status,
        breaker=breaker_phase(definition, control, now).value,
        failures=control.failures,
        warnings=control.warnings,
        every_s=definition.every_s,
        timeout_s=definition.timeout_s,
        format=definition.format,
        depends_on=definition.depends_on,
        incident=control.streak.incident,
        muted_until=muted if muted is not None and muted > now else None,
        paused=paused,
        is_removed=row.is_removed,
    )
