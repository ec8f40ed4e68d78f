"""The graph of services for screens: nodes, edges, and the roots of failures."""

import asyncio
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct

from everpoll.monitors.control import are_reports_stale, reports_stale_at, shown_status, stale_at
from everpoll.monitors.graph import MAX_NAMED, Graph, ServiceFacts
from everpoll.monitors.report import Status
from everpoll.monitors.service_rows import KnownRows, ServiceRow, service_rows
from everpoll.policy.rollup import HealthWord
from everpoll.server.answers import Encoded
from everpoll.server.served import ServedApp
from everpoll.server.shapes import instant
from everpoll.stores.contract import Store
from everpoll.stores.health import Edge

NODES_LIMIT = 5_000
_PAGE = 5_000
DRAWN_LIMIT = 4
"""How many answers are cached, because each tab of a browser requests the same part repeatedly."""
_TROUBLED = frozenset({Status.DOWN, Status.DEGRADED})
_STATUSES: dict[str, Status] = {status.value: status for status in Status}


class NodeItem(Struct, frozen=True, kw_only=True, gc=False):
    """A service, or a dependency that services report."""

    name: str
    is_service: bool
    status: HealthWord
    since: datetime | None
    roots: list[str]
    """If it is down or degraded: the failed things below that explain it."""


class EdgeItem(Struct, frozen=True, gc=False):
    """`source` depends on `target`."""

    source: str
    target: str


class GraphAnswer(Struct, frozen=True, kw_only=True):
    """Nodes by name, and edges between them."""

    nodes: list[NodeItem]
    edges: list[EdgeItem]
    is_cut: bool
    """True: there are more than 5,000 nodes; a focus shows the others."""


Reports = tuple[tuple[str, Status], ...]
"""The reports of one service: names and statuses of dependencies."""


class ServiceGraphs:
    """The graph that the requests of one event loop share; it is made again only if one of its facts has changed."""

    def __init__(self, app: ServedApp) -> None:
        self._app = app
        self._facts: list[ServiceFacts] = []
        self._aliases: dict[str, str] = {}
        self._graph = Graph([])
        self._rows = KnownRows()
        self._known_facts = _KnownFacts()
        self._reports = _Reports()
        self._drawn: dict[tuple[str | None, int, bool], Encoded] = {}
        self._turn = asyncio.Lock()

    async def answer(self, focus: str | None, depth: int, *, only_problems: bool) -> Encoded:
        """Read all services, and return the requested part of the graph."""
        graph, drawn = await self._current()
        wanted = (focus, depth, only_problems)
        if wanted not in drawn:
            answer = await asyncio.to_thread(lambda: Encoded.of(_drawn(graph, focus, depth, only_problems)))
            while len(drawn) >= DRAWN_LIMIT:
                del drawn[next(iter(drawn))]
            drawn[wanted] = answer
        return drawn[wanted]

    async def _current(self) -> tuple[Graph, dict[tuple[str | None, int, bool], Encoded]]:
        # One request at a time: the second one then uses the graph that the first one made.
        async with self._turn:
            store, now = await self._app.store(), self._app.services.wall()
            rows, reported = await service_rows(store, self._rows.read), await self._reports.read(store)
            self._rows.keep(rows)
            aliases = await store.health.aliases()
            # In a thread: 100 ms for 10,000 services that are new, and other requests must not wait for it.
            facts = await asyncio.to_thread(self._known_facts.of, rows, reported, now)
            if facts != self._facts or aliases != self._aliases:
                self._graph = await asyncio.to_thread(Graph, facts, aliases)
                self._facts, self._aliases, self._drawn = facts, aliases, {}
            return self._graph, self._drawn


class _Reports:
    """The reports of all services, grouped by service again only if an edge has changed."""

    def __init__(self) -> None:
        self._edges: list[Edge] = []
        self._by_service: dict[str, Reports] = {}

    async def read(self, store: Store) -> dict[str, Reports]:
        """Return the current reports of each service."""
        edges: list[Edge] = []
        after: tuple[str, str] | None = None
        while True:
            page = await store.health.edges(after, _PAGE)
            edges += page.edges
            if page.after is None:
                break
            after = page.after
        if edges != self._edges:
            found: defaultdict[str, list[tuple[str, Status]]] = defaultdict(list)
            for edge in edges:
                if not edge.vanished:
                    found[edge.service].append((edge.name, _STATUSES[edge.status]))
            self._edges, self._by_service = edges, {service: tuple(some) for service, some in found.items()}
        return self._by_service


class _Known(Struct, frozen=True, gc=False):
    """The facts about a service, their sources, and the first and last instant at which they hold."""

    row: ServiceRow
    reported: Reports
    from_at: float
    until: float
    facts: ServiceFacts

    def holds(self, row: ServiceRow, reported: Reports, now: float) -> bool:
        """Return True if these rows and reports would give the same facts."""
        return self.row is row and self.from_at <= now <= self.until and self.reported == reported


class _KnownFacts:
    """The facts about services. Those of a service are made again only if its row, its reports or time change them."""

    def __init__(self) -> None:
        self._known: dict[int, _Known] = {}

    def of(self, rows: Sequence[ServiceRow], reported: Mapping[str, Reports], now: float) -> list[ServiceFacts]:
        """Return the facts of these services at that instant."""
        before, self._known = self._known, {}
        found: list[ServiceFacts] = []
        for row in rows:
            edges = reported.get(row.definition.name, ())
            known = before.get(row.id)
            if known is None or not known.holds(row, edges, now):
                known = _Known(row, edges, now, _turns_at(row, now), _facts(row, edges, now))
            self._known[row.id] = known
            found.append(known.facts)
        return found


def _turns_at(row: ServiceRow, now: float) -> float:
    """Return the last instant at which the facts about a service hold, if no look comes before."""
    turns = stale_at(row.definition, row.control), reports_stale_at(row.definition, row.control)
    return min((at for at in turns if at is not None and at >= now), default=math.inf)


def _facts(row: ServiceRow, reported: Reports, now: float) -> ServiceFacts:
    definition, control, is_paused = row.definition, row.control, row.assignment.paused is not None
    status = shown_status(definition, control, now, is_paused=is_paused)
    edges = () if is_paused or are_reports_stale(definition, control, now) else reported
    since = control.changed_at or 0.0
    return ServiceFacts(
        name=definition.name,
        status=status if isinstance(status, Status) else Status.UNKNOWN,
        since=since,
        depends_on=definition.depends_on,
        reported=tuple([(name, said, since) for name, said in edges]),
        alerts=bool(definition.alert.to),
    )


def _drawn(graph: Graph, focus: str | None, depth: int, only_problems: bool) -> GraphAnswer:
    names = set(graph.names()) if focus is None else _near(graph, graph.resolve(focus), depth)
    if only_problems:
        troubled = {name for name in names if graph.status(name) in _TROUBLED}
        names = troubled | {caller for name in troubled for caller in graph.callers(name) if caller in names}
    shown = sorted(names)[:NODES_LIMIT]
    inside = set(shown)
    edges = [EdgeItem(name, below) for name in shown for below in sorted(graph.depends_on(name)) if below in inside]
    return GraphAnswer(nodes=[_node(graph, name) for name in shown], edges=edges, is_cut=len(names) > len(shown))


def _near(graph: Graph, focus: str, depth: int) -> set[str]:
    """Return the things that are at most `depth` steps below or above this one."""
    if focus not in set(graph.names()):
        return set()
    found = {focus}
    for steps in (graph.depends_on, graph.callers):
        edge: Iterable[str] = {focus}
        for _ in range(depth):
            edge = {name for one in edge for name in steps(one)} - found
            found |= edge
    return found


def _node(graph: Graph, name: str) -> NodeItem:
    node: Any = graph.node(name)
    return NodeItem(
        name=node.name,
        is_service=node.is_service,
        status=node.status.value,
        since=instant(node.since) if node.since else None,
        roots=_explained_by(graph, name, node.status),
    )


def _explained_by(graph: Graph, name: str, status: Status) -> list[str]:
    """Return the roots of a failure; for a degraded thing, those of the down or else degraded things directly below."""
    if status is not Status.DEGRADED:
        return list(graph.root_cause(name))
    for worst in (Status.DOWN, Status.DEGRADED):
        blamed = [below for below in sorted(graph.depends_on(name)) if graph.status(below) is worst]
        if blamed:
            roots = {root for below in blamed for root in graph.root_cause(below) or (below,)} - {name}
            return sorted(roots)[:MAX_NAMED]
    return []
