"""Services as the HTTP API shows them: instants are dates, and no text has a secret in it."""

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec
from msgspec import Struct

from everpoll.http.stored_secrets import safe_dependency, without_secrets
from everpoll.monitors.checks.assignment import Assignment
from everpoll.monitors.info import ServiceInfo, service_info
from everpoll.monitors.pause import ServicePause
from everpoll.monitors.safe_definition import safe_definition
from everpoll.policy.rollup import Availability, HealthWord
from everpoll.policy.uptime import NOTHING_AHEAD, Uptime, ahead_of, uptime_of
from everpoll.server.shapes import Page, instant, instant_example
from everpoll.stores.contract import TaskInfo
from everpoll.stores.health import DependencyInfo, Look, LookPoint
from everpoll.stores.operations import Pause

DAY_MS = 86_400_000
fromtimestamp = datetime.fromtimestamp
StatusWord = Literal["up", "degraded", "down", "unknown", "stale", "paused"]


class UptimeShown(Struct, frozen=True, gc=False):
    """The share of a span in which a service was up or degraded, and how much of the span is known."""

    percent: float | None
    covered: float


class LookItem(Struct, frozen=True, kw_only=True, gc=False):
    """One look."""

    at: datetime
    status: HealthWord
    latency_ms: float | None
    error: str | None = None
    http_status: int | None = None


class ServiceItem(Struct, frozen=True, kw_only=True, gc=False):
    """A service in a list."""

    name: str
    target: str
    status: StatusWord
    healthy: bool | None
    since: datetime | None
    looked_at: datetime | None
    due_at: datetime | None
    waits: str
    latency_ms: float | None
    error: str | None
    http_status: int | None
    breaker: Literal["closed", "open", "half_open"]
    failures: int
    warnings: list[str]
    every_s: float
    timeout_s: float
    format: str
    depends_on: list[str]
    incident: str | None
    muted_until: datetime | None
    paused: Pause | None
    """The pause of the service; null: it is not paused."""
    is_removed: bool
    uptime_24h: UptimeShown | None = None
    p95_ms: float | None = None
    """The latency that 95 % of these looks did not exceed; null if none has a latency."""
    looks: list[LookItem] = []
    """The last looks, newest first."""


class ServiceDetail(ServiceItem, frozen=True, kw_only=True):
    """Everything about a service."""

    definition: dict[str, Any]
    """The definition, without header values and tokens."""
    uptime: dict[str, UptimeShown] = {}
    """The uptime by span: 24h, 7d, 30d, 90d."""
    latencies_24h_ms: dict[str, float | None] = {}
    """p50, p95, p99."""
    beat_path: str | None = None
    """The path that a heartbeat service calls; only for callers that may write."""


class ServicePage(Page, frozen=True, kw_only=True):
    """Services, newest first."""

    items: list[ServiceItem]
    after: str | None


class DependencyItem(Struct, frozen=True, kw_only=True):
    """A dependency that a service reports."""

    name: str
    canonical: str
    status: HealthWord
    healthy: bool | None
    skipped: bool
    latency_ms: float | None
    type: str
    impact: str | None
    description: str | None
    contact: dict[str, Any] | None
    check_details: dict[str, Any] | None
    error: Any
    error_message: str | None
    changed_at: datetime | None
    seen_at: datetime | None


def info_fields(info: ServiceInfo) -> dict[str, Any]:
    """Return the fields that lists and details share."""
    return {
        "name": info.name,
        "target": info.target,
        "status": str(info.status),
        "healthy": info.healthy,
        "since": instant(info.since),
        "looked_at": instant(info.looked_at),
        "due_at": instant(info.due_at),
        "waits": info.waits,
        "latency_ms": info.latency_ms,
        "error": without_secrets(info.error),
        "http_status": info.http_status,
        "breaker": info.breaker,
        "failures": info.failures,
        "warnings": without_secrets(list(info.warnings)),
        "every_s": info.every_s,
        "timeout_s": info.timeout_s,
        "format": info.format,
        "depends_on": list(info.depends_on),
        "incident": info.incident,
        "muted_until": instant(info.muted_until),
        "paused": None if info.paused is None else _pause(info.paused),
        "is_removed": info.is_removed,
    }


def _pause(pause: ServicePause) -> Pause:
    return Pause(reason=pause.reason, by=pause.by, at=fromtimestamp(pause.at, UTC))


def service_item(info: ServiceInfo, looks: Sequence[LookPoint], known: Availability | None, now: float) -> ServiceItem:
    """Return a service for lists, with its last looks and the uptime of the last day."""
    ahead = ahead_of(looks[0].status, looks[0].at, info.due_at or now, now) if looks else NOTHING_AHEAD
    # A page of 200 services has ten thousand looks, so this is one fast expression for each.
    shown = [LookItem(at=fromtimestamp(one.at, UTC), status=one.status, latency_ms=one.latency_ms) for one in looks]
    return ServiceItem(
        **info_fields(info),
        uptime_24h=uptime_shown(uptime_of(known or Availability(), DAY_MS, ahead)),
        p95_ms=_p95([one.latency_ms for one in looks if one.latency_ms is not None]),
        looks=shown,
    )


def _p95(latencies_ms: list[float]) -> float | None:
    """Return the latency that 95 % of the looks do not exceed; None without any."""
    ranked = sorted(latencies_ms)
    return ranked[math.ceil(len(ranked) * 0.95) - 1] if ranked else None


def service_detail(row: TaskInfo, now: float, **more: Any) -> ServiceDetail:
    """Return everything about a service from its row, and the fields in `more`."""
    fields = info_fields(service_info(row, now))
    definition = safe_definition(msgspec.convert(row.args, Assignment).definition)
    return ServiceDetail(**fields, definition=definition, **more)


def look_item(look: Look | LookPoint) -> LookItem:
    """Return a look for the API."""
    at = instant(look.at)
    assert at is not None, "a look has an instant"
    return LookItem(
        at=at,
        status=look.status,
        latency_ms=look.latency_ms,
        error=without_secrets(look.error) if isinstance(look, Look) else None,
        http_status=look.http_status if isinstance(look, Look) else None,
    )


def uptime_shown(uptime: Uptime) -> UptimeShown:
    """Return an uptime for the API."""
    return UptimeShown(uptime.percent, uptime.covered)


def dependency_item(info: DependencyInfo) -> DependencyItem:
    """Return a dependency for the API."""
    safe = safe_dependency(info)
    wanted = [name for name in DependencyItem.__struct_fields__ if name in DependencyInfo.__struct_fields__]
    fields = {name: getattr(safe, name) for name in wanted}
    changed = {"changed_at": instant(info.changed_at), "seen_at": instant(info.seen_at), "healthy": info.healthy}
    return DependencyItem(**fields | changed)


LOOK = {"at": instant_example(0), "status": "up", "latency_ms": 12.5, "error": None, "http_status": 200}
SERVICE: dict[str, Any] = {
    "name": "billing",
    "target": "https://billing.internal/health",
    "status": "up",
    "healthy": True,
    "since": instant_example(0),
    "looked_at": instant_example(60),
    "due_at": instant_example(90),
    "waits": "interval",
    "latency_ms": 12.5,
    "error": None,
    "http_status": 200,
    "breaker": "closed",
    "failures": 0,
    "warnings": [],
    "every_s": 30.0,
    "timeout_s": 10.0,
    "format": "auto",
    "depends_on": ["PostgreSQL"],
    "incident": None,
    "muted_until": None,
    "paused": None,
    "is_removed": False,
    "uptime_24h": {"percent": 99.98, "covered": 1.0},
    "p95_ms": 12.5,
    "looks": [LOOK],
}
SERVICE_DETAIL = SERVICE | {
    "definition": {"name": "billing", "target": "https://billing.internal/health", "every_s": 30.0},
    "uptime": {"24h": {"percent": 99.98, "covered": 1.0}},
    "latencies_24h_ms": {"p50": 11.0, "p95": 30.0, "p99": 55.0},
    "beat_path": None,
}
DEPENDENCY: dict[str, Any] = {
    "name": "pg-main",
    "canonical": "PostgreSQL",
    "status": "up",
    "healthy": True,
    "skipped": False,
    "latency_ms": 1.2,
    "type": "database",
    "impact": "no invoices",
    "description": None,
    "contact": None,
    "check_details": None,
    "error": None,
    "error_message": None,
    "changed_at": instant_example(0),
    "seen_at": instant_example(60),
}
