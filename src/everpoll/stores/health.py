"""Records of services: the looks, the dependencies and errors that they found, and totals over time.

    record ──▶ looks ──roll_up──▶ packed looks · minutes · hours · days ──prune──▶ gone, each at its age

The control state of a service (breaker, due time, open incident) is in its task row and not here. Every store promises
the same (one conformance suite proves it):

- A batch is one transaction. Writing the same batch again, at any later time, changes nothing: a look is known by its
  service and its instant, and so is an entry of the error history. A dependency keeps what the latest look said.
- Instants are seconds since the epoch, kept to the millisecond; latencies are kept to the microsecond.
- What was recorded is seen by every read at once, whether it has been rolled up or not, and is counted once. A look
  stands until the next one at its service, also if its planned time is longer: no time is counted twice. (A look that
  arrives after more than RECENT_LIMIT later ones shortens those of its own hour only.)
- Texts come from remotes: they are cut to a length, and what a database cannot keep is escaped. They never make a call
  fail, because one batch carries the looks at many services.
- Names of services come from the user: one that cannot be stored is `BadInput`.
- No read scans what it does not need, and none counts rows of history.
- Errors of the connection are raised as `StoreUnavailable`, and then nothing is known about the outcome.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

from msgspec import Struct

from everpoll.policy import Availability, Rollup
from everpoll.policy.rollup import HealthWord
from everpoll.stores.operations import LogEntry

Step = Literal["minute", "hour", "day"]

BATCH_LIMIT = 1_000
"""Looks that one batch may carry."""
RECENT_LIMIT = 60
"""Looks at each of many services that `last_looks` can answer."""
BUCKET_LIMIT = 10_000
"""Buckets that one answer of `rollups` may span."""
WINDOW_BYTES = 64_000
"""The most bytes of one maintenance window as JSON."""
DAY_S = 86_400.0


class NewDependency(Struct, frozen=True, gc=False, kw_only=True):
    """A dependency as it is from now on. An unchanged one, or one with another latency only, need not be written."""

    name: str
    status: HealthWord
    changed_at: float
    """When its health changed last."""
    seen_at: float
    """When the service last reported it."""
    vanished: bool = False
    """The service does not report it any more."""
    skipped: bool = False
    latency_ms: float | None = None
    type: str = "other"
    impact: str | None = None
    description: str | None = None
    contact: dict[str, Any] | None = None
    check_details: dict[str, Any] | None = None
    error: Any = None
    error_message: str | None = None


class NewError(Struct, frozen=True, gc=False, kw_only=True):
    """An entry of a dependency's error history. Without error and message it is the recovery."""

    dependency: str
    error: Any = None
    error_message: str | None = None


class NewLook(Struct, frozen=True, gc=False, kw_only=True):
    """One look at a service, and what it changed."""

    service: str
    at: float
    status: HealthWord
    span_s: float
    """How long it stands: the time until the next look was due when this one was made. Uptime is counted in it."""
    latency_ms: float | None = None
    error: str | None = None
    http_status: int | None = None
    latencies: Mapping[str, float] | None = None
    """The latencies of dependencies, in milliseconds, by name; only those above 0."""
    dependencies: tuple[NewDependency, ...] = ()
    errors: tuple[NewError, ...] = ()


class Look(Struct, frozen=True, gc=False, kw_only=True):
    """One look as it is read."""

    at: float
    status: HealthWord
    span_s: float
    latency_ms: float | None = None
    error: str | None = None
    http_status: int | None = None


class LookPoint(Struct, frozen=True, gc=False):
    """One look in a sparkline."""

    at: float
    status: HealthWord
    latency_ms: float | None


class DependencyInfo(Struct, frozen=True, gc=False, kw_only=True):
    """A dependency as it is read."""

    name: str
    canonical: str
    """What its name is an alias of, else its name. Resolved when it is read: a new alias holds at once."""
    status: HealthWord
    changed_at: float
    seen_at: float
    vanished: bool
    skipped: bool
    latency_ms: float | None
    """The latency at the latest look that reported latencies."""
    type: str
    impact: str | None
    description: str | None
    contact: dict[str, Any] | None
    check_details: dict[str, Any] | None
    error: Any
    error_message: str | None

    @property
    def healthy(self) -> bool | None:
        """True for up and degraded, False for down, None for unknown."""
        return None if self.status == "unknown" else self.status != "down"


class Edge(Struct, frozen=True, gc=False):
    """A service and one dependency that it reports."""

    service: str
    name: str
    canonical: str
    status: HealthWord
    vanished: bool


class EdgePage(Struct, frozen=True):
    """A page of dependencies, ordered by service and name; `after` continues the list, None at its end."""

    edges: tuple[Edge, ...]
    after: tuple[str, str] | None = None


class ErrorEntry(Struct, frozen=True, gc=False):
    """An entry of the error history; without error and message the dependency recovered."""

    at: float
    error: Any
    error_message: str | None


class LatencyPoint(Struct, frozen=True, gc=False):
    """A dependency's latency at one look."""

    at: float
    latency_ms: float


class Bucket(Struct, frozen=True):
    """The rollup of one minute, hour or day (UTC) that begins at `at`."""

    at: float
    rollup: Rollup


class MaintenanceWindow(Struct, frozen=True):
    """A maintenance window: a JSON document under an id that its author chose."""

    id: str
    body: Any


class Retention(Struct, frozen=True, kw_only=True):
    """How long what is kept."""

    looks_s: float = 7 * DAY_S
    """Looks, and latencies of dependencies."""
    minutes_s: float = 30 * DAY_S
    hours_s: float = 365 * DAY_S
    days_s: float = 5 * 365 * DAY_S
    errors_s: float = 90 * DAY_S
    """Error history, and dependencies that have vanished."""


KEPT = Retention()
"""How long what is kept unless the caller says otherwise."""


class HealthRecords(Protocol):
    """The records of one store. Ranges are half open: from `from_at`, up to and without `to_at`."""

    async def record(self, looks: Sequence[NewLook]) -> None:
        """Write a batch of at most BATCH_LIMIT looks, all or none. A service is known from its first look on."""

    async def looks(self, service: str, from_at: float, to_at: float, limit: int = 1000) -> list[Look]:
        """Return looks of a range, newest first."""
        ...

    async def last_looks(self, services: Sequence[str], n: int) -> dict[str, list[LookPoint]]:
        """Return the last looks at each of these services that has any, newest first; at most RECENT_LIMIT each."""
        ...

    async def dependencies(self, service: str) -> list[DependencyInfo]:
        """Return what the service reports and has reported, by name."""
        ...

    async def edges(self, after: tuple[str, str] | None = None, limit: int = 1000) -> EdgePage:
        """Return what all services report, by service and name, in pages."""
        ...

    async def errors(self, service: str, dependency: str, limit: int = 100) -> list[ErrorEntry]:
        """Return the error history of a dependency, newest first."""
        ...

    async def latencies(
        self, service: str, dependency: str, from_at: float, to_at: float, limit: int = 1000
    ) -> list[LatencyPoint]:
        """Return latencies of a dependency in a range, newest first."""
        ...

    async def rollups(self, service: str, step: Step, from_at: float, to_at: float) -> list[Bucket]:
        """Return the buckets that overlap the range and have looks, oldest first.

        `BadInput` if the range spans more than BUCKET_LIMIT buckets.
        """
        ...

    async def summary(self, service: str, from_at: float, to_at: float) -> Rollup:
        """Return the figures of a range, exact to the minute.

        Where the minutes of its ends are pruned already, it is exact to the hour, and after the hours to the day.
        """
        ...

    async def availability(self, services: Sequence[str], from_at: float) -> dict[str, Availability]:
        """Return the availability since the hour of `from_at` of each of these services that has looks since then."""
        ...

    async def aliases(self) -> dict[str, str]:
        """Return canonical names by alias."""
        ...

    async def set_alias(self, alias: str, canonical: str, entry: LogEntry | None = None) -> None:
        """Let dependencies of the name `alias` be called `canonical`.

        Here and below, an entry for the log is written in the same transaction as the change, or not at all.
        """

    async def delete_alias(self, alias: str, entry: LogEntry | None = None) -> bool:
        """Forget an alias; False: there was none."""
        ...

    async def windows(self) -> list[MaintenanceWindow]:
        """Return every maintenance window, by id."""
        ...

    async def set_window(self, window: MaintenanceWindow, entry: LogEntry | None = None) -> None:
        """Store a maintenance window; one with the same id is replaced."""

    async def delete_window(self, window_id: str, entry: LogEntry | None = None) -> bool:
        """Delete a maintenance window; False: there was none."""
        ...

    async def forget(self, service: str) -> bool:
        """Delete everything about a service; False: it is not known. A look that is recorded later begins anew."""
        ...

    async def roll_up(self, until: float, after: int = 0) -> int | None:
        """Roll up the looks before `until`, of a bounded number of services and in bounded time.

        None: all is done. Else pass the number on as `after` to go on. Any number of processes may do this at any time.
        Reads count what waits for a roll-up as well. The more waits, the slower `availability` is; the more of an hour
        is rolled up at once, the less it costs: 25 us a look every ten minutes, 6 every hour, at an interval of 30 s.
        """
        ...

    async def prune(self, now: float, retention: Retention = KEPT) -> bool:
        """Drop a bounded portion of what is too old; True: call again, there is more."""
        ...
