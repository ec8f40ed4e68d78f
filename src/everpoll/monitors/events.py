"""Events of services, with the payloads that subscribers receive.

Promises: a payload has the fields of its kind under their JSON names (`serviceId`, `previousHealthy`, …) and `kind`.
Changes are durable; "poll:complete" and "poll:error" come with each look and are never stored. A service is identified
by its name, so `serviceId` and `serviceName` are equal.
"""

from typing import Any

import msgspec
from msgspec import Struct

from everpoll.monitors.report import Status


class ServiceEvent(Struct, frozen=True, kw_only=True, rename="camel", tag_field="kind", omit_defaults=False):
    """The fields of every event."""

    service_id: str
    service_name: str
    timestamp: float
    """Seconds since the epoch, by the store's clock."""

    @property
    def kind(self) -> str:
        """The kind of the event, such as "status:change"."""
        return str(self.__struct_config__.tag)

    @property
    def is_durable(self) -> bool:
        """Whether the event is stored, so that later subscribers can read it."""
        return not isinstance(self, PollComplete | PollError)


class StatusChange(ServiceEvent, frozen=True, kw_only=True, tag="status:change"):
    """A service, or one of its dependencies, has another status."""

    dependency_name: str | None
    """None: the service itself."""
    previous_healthy: bool | None
    current_healthy: bool | None
    previous_status: Status
    current_status: Status
    error: str | None = None


class PollComplete(ServiceEvent, frozen=True, kw_only=True, tag="poll:complete"):
    """A look ended."""

    success: bool
    """Whether an answer came."""
    dependencies_updated: int
    status_changes: tuple[StatusChange, ...] = ()
    error: str | None = None
    warnings: tuple[str, ...] = ()
    latency_ms: float | None = None


class PollError(ServiceEvent, frozen=True, kw_only=True, tag="poll:error"):
    """A look got no answer."""

    error: str


class ServiceStarted(ServiceEvent, frozen=True, kw_only=True, tag="service:started"):
    """A service was registered."""


class ServiceStopped(ServiceEvent, frozen=True, kw_only=True, tag="service:stopped"):
    """A service was removed."""


class ServicePaused(ServiceEvent, frozen=True, kw_only=True, tag="service:paused"):
    """A service was paused: no worker looks at it until it is resumed."""

    reason: str
    by: str


class ServiceResumed(ServiceEvent, frozen=True, kw_only=True, tag="service:resumed"):
    """A service was resumed: workers look at it again."""


class CircuitOpen(ServiceEvent, frozen=True, kw_only=True, tag="circuit:open"):
    """The breaker opened: the next look comes after the cooldown."""

    failures: int
    until: float


class CircuitClose(ServiceEvent, frozen=True, kw_only=True, tag="circuit:close"):
    """The breaker closed: an answer came, or the service has another target."""


class IncidentOpen(ServiceEvent, frozen=True, kw_only=True, tag="incident:open"):
    """A service or a dependency failed often or long enough."""

    incident_id: str
    dependency_name: str | None
    since: float
    error: str | None = None


class IncidentClose(ServiceEvent, frozen=True, kw_only=True, tag="incident:close"):
    """The incident is over."""

    incident_id: str
    dependency_name: str | None
    reason: str


class IncidentAcknowledge(ServiceEvent, frozen=True, kw_only=True, tag="incident:acknowledge"):
    """An operator acknowledged the incident: no further reminders are sent."""

    incident_id: str
    by: str


class DependencyNew(ServiceEvent, frozen=True, kw_only=True, tag="dependency:new"):
    """The service reports a dependency for the first time."""

    dependency_name: str
    canonical_name: str
    healthy: bool | None
    status: Status


class DependencyVanished(ServiceEvent, frozen=True, kw_only=True, tag="dependency:vanished"):
    """The service does not report a dependency any more."""

    dependency_name: str


class DependencyReturned(ServiceEvent, frozen=True, kw_only=True, tag="dependency:returned"):
    """A vanished dependency is reported again."""

    dependency_name: str
    healthy: bool | None
    status: Status


AnyEvent = (
    StatusChange
    | PollComplete
    | PollError
    | ServiceStarted
    | ServiceStopped
    | ServicePaused
    | ServiceResumed
    | CircuitOpen
    | CircuitClose
    | IncidentOpen
    | IncidentClose
    | IncidentAcknowledge
    | DependencyNew
    | DependencyVanished
    | DependencyReturned
)
DURABLE_KINDS = frozenset(
    kind.__struct_config__.tag for kind in ServiceEvent.__subclasses__() if kind not in {PollComplete, PollError}
)
_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[AnyEvent] = msgspec.json.Decoder(AnyEvent)


def about(service: str, at: float) -> dict[str, Any]:
    """Return the common fields of a service's events."""
    return {"service_id": service, "service_name": service, "timestamp": at}


def write(event: ServiceEvent) -> str:
    """Return the JSON object of an event."""
    return _encoder.encode(event).decode()


def read(body: str | bytes) -> AnyEvent:
    """Read the JSON object of an event."""
    return _decoder.decode(body)


def payload(event: ServiceEvent) -> dict[str, Any]:
    """Return the payload for subscribers."""
    plain: dict[str, Any] = msgspec.to_builtins(event)
    return plain
