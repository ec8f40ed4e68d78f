"""Graph: all services and their dependencies, and the roots of failures.

A node is a canonical name: a service, or a dependency that services report. An edge leads from a service to what it
depends on, by `depends_on` or by its report; a reported name that resolves to a service is that service.

    shop (down) ──▶ billing (degraded) ──▶ PostgreSQL (down)        the root of shop is PostgreSQL

Promises: building the graph and each query take linear time. Cycles are allowed: if failed things depend on each other,
the first one that failed is the root, so that one of them always alerts. Reports of callers about a service are kept
separately and never replace its own status. Stale reports are ignored.
"""

from collections.abc import Iterable, Mapping
from functools import cached_property

from msgspec import Struct

from everpoll.monitors.dependencies import canonical
from everpoll.monitors.dependency_cycles import grouped
from everpoll.monitors.report import Status

MAX_NAMED = 100
"""How many roots or affected things one query returns."""
_TROUBLED = frozenset({Status.DOWN, Status.DEGRADED})
_RANK = {status: rank for rank, status in enumerate(Status)}


class ServiceFacts(Struct, frozen=True, gc=False, kw_only=True):
    """The input of the graph about one service."""

    name: str
    status: Status
    since: float = 0.0
    """When its status last changed."""
    depends_on: tuple[str, ...] = ()
    reported: tuple[tuple[str, Status, float], ...] = ()
    """Name, status and last change of each reported dependency; empty if the report is stale."""
    alerts: bool = True
    """Whether its incidents are sent to a channel: only a thing that alerts holds back others."""


class CallerReport(Struct, frozen=True, gc=False):
    """The report of a caller about a thing."""

    caller: str
    status: Status
    since: float


class Node(Struct, frozen=True, gc=False):
    """A thing in the graph: a service, or a dependency that services report."""

    name: str
    is_service: bool
    status: Status
    """The own status of a service; the worst reported status of anything else."""
    since: float
    reported: tuple[CallerReport, ...]
    """The reports of its callers."""


class _Groups(Struct, frozen=True):
    """Groups of troubled things that depend on each other; a group has a higher number than those below it."""

    of: dict[str, int]
    below: list[set[int]]
    has_failed: list[bool]
    """Whether a group, or a group below it, has a failed member."""
    root: list[str | None]
    """The member of each group that failed first."""


class Graph:
    """The services of one moment."""

    def __init__(self, services: Iterable[ServiceFacts], aliases: Mapping[str, str] | None = None) -> None:
        self._aliases = aliases or {}
        self._services = {facts.name: facts for facts in services}
        self._below: dict[str, list[str]] = {}
        self._above: dict[str, list[str]] = {}
        self._opinions: dict[str, list[CallerReport]] = {}
        for facts in self._services.values():
            self._add(facts)

    def resolve(self, name: str) -> str:
        """Return the node of a name. The name of a service is its node, even if an alias has that name."""
        return name if name in self._services or name not in self._aliases else canonical(name, self._aliases)

    def names(self) -> list[str]:
        """Return the names of all nodes."""
        return list(self._below)

    def node(self, name: str) -> Node:
        """Return a node; a name that is not in the graph has an unknown status."""
        name = self.resolve(name)
        facts, opinions = self._services.get(name), tuple(self._opinions.get(name, ()))
        if facts is not None:
            return Node(name, True, facts.status, facts.since, opinions)
        status = max((opinion.status for opinion in opinions), key=_RANK.__getitem__, default=Status.UNKNOWN)
        since = min((opinion.since for opinion in opinions if opinion.status is status), default=0.0)
        return Node(name, False, status, since, opinions)

    def status(self, name: str) -> Status:
        """Return the status of a node."""
        facts = self._services.get(name)
        return self.node(name).status if facts is None else facts.status

    def depends_on(self, name: str) -> tuple[str, ...]:
        """Return the direct dependencies of a thing."""
        return tuple(self._below.get(self.resolve(name), ()))

    def callers(self, name: str) -> tuple[str, ...]:
        """Return the services that depend on a thing directly."""
        return tuple(self._above.get(self.resolve(name), ()))

    def root_cause(self, name: str) -> tuple[str, ...]:
        """Return the failed roots below a failed thing; none if it has not failed, or is the root itself."""
        name = self.resolve(name)
        if name not in self._below or self.status(name) is not Status.DOWN:
            return ()
        groups, roots = self._groups, set()
        start = groups.of[name]
        seen, stack = {start}, [start]
        while stack:
            group = stack.pop()
            failed_below = [below for below in groups.below[group] if groups.has_failed[below]]
            root = groups.root[group]
            if not failed_below and root is not None and root != name:
                roots.add(root)
            stack += [below for below in failed_below if below not in seen]
            seen.update(failed_below)
        return tuple(sorted(roots)[:MAX_NAMED])

    def held_by(self, service: str, dependency: str | None = None) -> tuple[str, ...]:
        """Return the failed roots that alert, so that this service, or this dependency of it, does not."""
        if dependency is None:
            return tuple(root for root in self.root_cause(service) if self._alerts(root))
        name = self.resolve(dependency)
        facts = self._services.get(name)
        if facts is not None and facts.status is Status.DOWN:
            return tuple(root for root in self.root_cause(name) or (name,) if self._alerts(root))
        # Several callers report it: only the first of them that alerts sends an alert about it.
        first = min(((one.since, one.caller) for one in self._alarms(name)), default=None)
        return () if first is None or first[1] == service else (name,)

    def affected(self, name: str) -> tuple[str, ...]:
        """Return the failed services above a thing, whose failure it explains."""
        name = self.resolve(name)
        seen, stack, found = {name}, [name], []
        while stack:
            for caller in self._above.get(stack.pop(), ()):
                status = self._services[caller].status
                if caller in seen or status not in _TROUBLED:
                    continue
                seen.add(caller)
                stack.append(caller)
                found += [caller] if status is Status.DOWN else []
        return tuple(sorted(found)[:MAX_NAMED])

    def _add(self, facts: ServiceFacts) -> None:
        below = {self.resolve(name): None for name in facts.depends_on}
        for name, status, since in facts.reported:
            called = self.resolve(name)
            below[called] = None
            if called != facts.name:
                self._opinions.setdefault(called, []).append(CallerReport(facts.name, status, since))
        below.pop(facts.name, None)
        self._below.setdefault(facts.name, []).extend(below)
        for name in below:
            self._below.setdefault(name, [])
            self._above.setdefault(name, []).append(facts.name)

    def _alarms(self, name: str) -> list[CallerReport]:
        """Return the reports, by callers that alert, that a thing is down."""
        opinions = self._opinions.get(name, ())
        return [one for one in opinions if one.status is Status.DOWN and self._services[one.caller].alerts]

    def _alerts(self, root: str) -> bool:
        facts = self._services.get(root)
        return bool(self._alarms(root)) or (facts is not None and facts.status is Status.DOWN and facts.alerts)

    def _failed_since(self, name: str) -> float | None:
        """Return since when a thing has failed, by its own status or by a caller's report; None if it has not."""
        facts = self._services.get(name)
        times = [facts.since] if facts is not None and facts.status is Status.DOWN else []
        times += [one.since for one in self._opinions.get(name, ()) if one.status is Status.DOWN]
        return min(times, default=None)

    def _troubled_below(self, name: str) -> list[str]:
        """Return a service's troubled dependencies: its own report on a dependency counts, else that one's status."""
        facts = self._services.get(name)
        if facts is None:
            return []
        said = {self.resolve(one): status for one, status, _ in facts.reported if status is not Status.UNKNOWN}
        return [below for below in self._below[name] if (said.get(below) or self._statuses[below]) in _TROUBLED]

    def _troubled(self) -> dict[str, list[str]]:
        """Return failed things and all troubled things below them, each with the troubled things directly below it."""
        found: dict[str, list[str]] = {}
        left = [name for name, status in self._statuses.items() if status is Status.DOWN]
        while left:
            name = left.pop()
            if name not in found:
                found[name] = self._troubled_below(name)
                left += found[name]
        return found

    @cached_property
    def _statuses(self) -> dict[str, Status]:
        return {name: self.status(name) for name in self._below}

    @cached_property
    def _groups(self) -> _Groups:
        troubled = self._troubled()
        groups = grouped(troubled)
        of = {name: number for number, group in enumerate(groups) for name in group}
        below: list[set[int]] = []
        has_failed: list[bool] = []
        root: list[str | None] = []
        for number, group in enumerate(groups):
            leads_to = {of[other] for name in group for other in troubled[name]} - {number}
            failed = [(since, name) for name in group if (since := self._failed_since(name)) is not None]
            below.append(leads_to)
            has_failed.append(bool(failed) or any(has_failed[other] for other in leads_to))
            root.append(min(failed)[1] if failed else None)
        return _Groups(of, below, has_failed, root)
