"""Dependencies: compares a new report with the known dependencies of a service.

    reported, not known          new
    reported, known              changed if its status or another field differs
    reported again               returned
    not reported any more        vanished: it does not count as up any more
                                 (up again, if the format lists failures only)

Promises: a dependency is identified by (service, name). The error history grows only when an error changes: one entry
for a new error, one for its recovery. A latency above 0 is one entry for each look. For an unchanged report,
`changes.is_empty` is True, and only latencies are written. A report that cannot be read, or that is down and lists
nothing, makes no dependency vanish. At most MAX_KNOWN names of a service are known at a time, vanished ones included,
so that a service with new names at every look does not fill the database.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from everpoll.monitors.events import (
    DependencyNew,
    DependencyReturned,
    DependencyVanished,
    ServiceEvent,
    StatusChange,
    about,
)
from everpoll.monitors.report import Dependency, Report, Status

UNHEALTHY: dict[str, Any] = {"unhealthy": True}
"""The error of a dependency that is down and reports no error."""
UNHEALTHY_MESSAGE = "Unhealthy"
MAX_KNOWN = 5_000
"""How many dependencies of one service are known at a time. Vanished ones are forgotten after 90 days."""
MAX_HOPS = 10
"""Aliases of aliases are followed this far."""


class Known(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A dependency as it is stored."""

    service: str
    canonical: str
    reported: Dependency
    """The last report on it, without the latency, which changes at each look."""
    changed_at: float
    """When its status last changed, or when it was first reported."""
    first_at: float
    error: Any = None
    """The current error in the history; None: there was none, or it has recovered."""
    error_message: str | None = None
    vanished_at: float | None = None

    @property
    def name(self) -> str:
        """The name that the service reports."""
        return self.reported.name

    @property
    def status(self) -> Status:
        """The effective status: unknown, once it has vanished."""
        return Status.UNKNOWN if self.vanished_at is not None else effective(self.reported)


class ErrorEntry(Struct, frozen=True, kw_only=True):
    """One entry of the error history."""

    service: str
    name: str
    at: float
    error: Any
    """None: it recovered."""
    message: str | None


class LatencyEntry(Struct, frozen=True, gc=False):
    """One entry of the latency history."""

    service: str
    name: str
    at: float
    latency_ms: float


class Changes(Struct, frozen=True, kw_only=True):
    """The changes of a report, for the store."""

    upserts: tuple[Known, ...] = ()
    """New and changed dependencies, each in its new form."""
    vanished: tuple[str, ...] = ()
    """The names of vanished dependencies, which are in `upserts`, too."""
    errors: tuple[ErrorEntry, ...] = ()
    latencies: tuple[LatencyEntry, ...] = ()
    events: tuple[ServiceEvent, ...] = ()
    left_out: int = 0
    """How many new names were left out, because MAX_KNOWN names are known."""

    @property
    def is_empty(self) -> bool:
        """True if no dependency has changed; there may be latencies."""
        return not self.upserts


NO_CHANGES = Changes()


def canonical(name: str, aliases: Mapping[str, str]) -> str:
    """Return the canonical name of a name. Aliases of aliases are followed, up to MAX_HOPS and not in a circle."""
    seen = name
    for _ in range(MAX_HOPS):
        target = aliases.get(seen)
        if target is None or target == name:
            break
        seen = target
    return seen


def effective(dependency: Dependency) -> Status:
    """Return the effective status of a dependency: a skipped one counts as up."""
    return Status.UP if dependency.skipped else dependency.status


def current_error(reported: Dependency) -> tuple[Any, str | None]:
    """Return the current error in the history of a dependency with this last report."""
    return _error(None, reported)


def compare(service: str, known: Mapping[str, Known], report: Report, at: float, aliases: Mapping[str, str]) -> Changes:
    """Compare the known dependencies of a service with what it reports now."""
    gathered = _Gathered(service, at)
    names = set()
    room = MAX_KNOWN - len(known)
    for reported in report.dependencies:
        if reported.name in names:
            continue
        before = known.get(reported.name)
        if before is None:
            room -= 1
            if room < 0:
                continue
        names.add(reported.name)
        plain = reported
        if reported.latency_ms is not None:
            plain = replace(reported, latency_ms=None)
            gathered.latency(reported.name, reported.latency_ms)
        called = canonical(reported.name, aliases) if aliases else reported.name
        if before is None or not _is_same(before, plain, called):
            gathered.merge(before, plain, called)
    # Count first: most reports list all known names. A name can be missing only if the counts differ or a name is new.
    if len(names) != len(known) or gathered.upserts:
        for missing in _missing(known, names, report):
            gathered.lose(missing, report.lists_failures_only)
    return gathered.changes(max(0, -room))


def repeated(service: str, report: Report, at: float) -> Changes:
    """Return the changes of a report that repeats the one before: only its latencies are new entries."""
    latencies = tuple(
        LatencyEntry(service, one.name, at, one.latency_ms)
        for one in report.dependencies
        if one.latency_ms is not None and one.latency_ms > 0
    )
    return Changes(latencies=latencies) if latencies else NO_CHANGES


def lists_everything(report: Report) -> bool:
    """Return True if a dependency that is missing from this report no longer exists.

    An error page, or a body that cannot be read, lists nothing.
    """
    if report.dependencies:
        return True
    is_fine = report.status in {Status.UP, Status.DEGRADED}
    return is_fine and report.format != "plain" and not report.warnings


def _missing(known: Mapping[str, Known], names: set[str], report: Report) -> list[Known]:
    if not lists_everything(report):
        return []
    missing = [one for name, one in known.items() if name not in names]
    if report.lists_failures_only:
        return [one for one in missing if one.vanished_at is None and one.status is not Status.UP]
    return [one for one in missing if one.vanished_at is None]


def _is_same(before: Known, reported: Dependency, called: str) -> bool:
    return before.vanished_at is None and before.canonical == called and before.reported == reported


class _Gathered:
    """The changes of one report, while it is compared."""

    def __init__(self, service: str, at: float) -> None:
        self._service = service
        self._at = at
        self.upserts: list[Known] = []
        self._vanished: list[str] = []
        self._errors: list[ErrorEntry] = []
        self._latencies: list[LatencyEntry] = []
        self._events: list[ServiceEvent] = []

    def latency(self, name: str, latency_ms: float) -> None:
        if latency_ms > 0:
            self._latencies.append(LatencyEntry(self._service, name, self._at, latency_ms))

    def merge(self, before: Known | None, reported: Dependency, called: str) -> None:
        """Note a dependency that is new or has changed."""
        status = effective(reported)
        error, message = _error(before, reported)
        after = Known(
            service=self._service,
            canonical=called,
            reported=reported,
            changed_at=self._at if before is None or before.status is not status else before.changed_at,
            first_at=self._at if before is None else before.first_at,
            error=error,
            error_message=message,
        )
        self.upserts.append(after)
        if (error, message) != ((None, None) if before is None else (before.error, before.error_message)):
            entry = ErrorEntry(service=self._service, name=reported.name, at=self._at, error=error, message=message)
            self._errors.append(entry)
        self._events += _events(before, after, self._at)

    def lose(self, before: Known, lists_failures_only: bool) -> None:
        """Note a dependency that is not reported: it is up if only failures are listed, else it has vanished."""
        if lists_failures_only:
            up = replace(before.reported, status=Status.UP, skipped=False, error=None, error_message=None)
            self.merge(before, up, before.canonical)
            return
        after = replace(before, vanished_at=self._at, changed_at=self._at)
        self.upserts.append(after)
        self._vanished.append(before.name)
        self._events += _events(before, after, self._at)

    def changes(self, left_out: int) -> Changes:
        if not self.upserts and not self._latencies and not left_out:
            return NO_CHANGES
        return Changes(
            upserts=tuple(self.upserts),
            vanished=tuple(self._vanished),
            errors=tuple(self._errors),
            latencies=tuple(self._latencies),
            events=tuple(self._events),
            left_out=left_out,
        )


def _error(before: Known | None, reported: Dependency) -> tuple[Any, str | None]:
    """Return the error that the history shows as current."""
    match effective(reported).healthy:
        case True:
            return None, None
        case None:
            return (None, None) if before is None else (before.error, before.error_message)
    if reported.error is not None:
        return reported.error, reported.error_message
    return UNHEALTHY, reported.error_message or UNHEALTHY_MESSAGE


def _events(before: Known | None, after: Known, at: float) -> list[ServiceEvent]:
    common = about(after.service, at)
    name, status = after.name, after.status
    if before is None:
        called = after.canonical
        return [
            DependencyNew(**common, dependency_name=name, canonical_name=called, healthy=status.healthy, status=status)
        ]
    if after.vanished_at is not None:
        return [DependencyVanished(**common, dependency_name=name)]
    if before.vanished_at is not None:
        return [DependencyReturned(**common, dependency_name=name, healthy=status.healthy, status=status)]
    if before.status is status:
        return []
    return [
        StatusChange(
            **common,
            dependency_name=name,
            previous_healthy=before.status.healthy,
            current_healthy=status.healthy,
            previous_status=before.status,
            current_status=status,
            error=after.error_message,
        )
    ]
