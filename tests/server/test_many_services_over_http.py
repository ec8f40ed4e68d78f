"""A fleet of many services is listed in pages and drawn from what has changed; answers leave at once."""

import contextlib
import socket
import sqlite3
from typing import Any

import asyncpg
import pytest

from everpoll import Everpoll
from everpoll.monitors.control import Control, write
from everpoll.monitors.graph import Graph
from everpoll.monitors.report import Status
from everpoll.policy.rollup import HealthWord
from everpoll.server import service_graph, services_routes
from everpoll.stores.health import NewDependency, NewLook
from server.site import Site, example_app, site

CHANGED_AT = 1_900_000_000.0


async def _register(app: Everpoll, count: int) -> list[str]:
    names = [f"service-{number:03}" for number in range(count)]
    below = {name: names[number - 1 : number] for number, name in enumerate(names)}
    await app.services.publish(
        [app.services.define(name, f"https://{name}.example/", {"depends_on": below[name]}) for name in names]
    )
    return names


async def _listed(here: Site, **params: Any) -> list[str]:
    found: list[str] = []
    after: dict[str, str] = {}
    while True:
        page = await here.get("/api/services", **params, **after)
        found += [one["name"] for one in page["items"]]
        if page["after"] is None:
            return found
        after = {"after": page["after"]}


async def test_a_page_of_services_is_bounded_whatever_the_limit(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cursor goes on behind a page that is shorter than the limit; each service comes once, the newest first."""
    monkeypatch.setattr(services_routes, "PAGE_LIMIT", 3)
    async with site(example_app(url), works=False) as here:
        names = await _register(here.app, 7)
        first = await here.get("/api/services", limit=1000)
        assert len(first["items"]) == 3
        for limit in (1, 2, 3, 1000):
            assert await _listed(here, limit=limit) == names[::-1]


async def test_a_page_of_one_status_reads_a_bounded_number_of_services(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page may be empty and still have a cursor: the list goes on until all services were looked at."""
    monkeypatch.setattr(services_routes, "SCAN_LIMIT", 4)
    monkeypatch.setattr(services_routes, "SCAN_PAGE", 2)
    async with site(example_app(url), works=False) as here:
        names = await _register(here.app, 9)
        assert (await here.get("/api/services", status="down"))["after"] is not None
        assert await _listed(here, status="down") == []
        assert await _listed(here, status="unknown", limit=2) == names[::-1]


async def test_the_list_has_the_p95_of_the_looks_that_it_shows(url: str) -> None:
    """Looks without a latency do not count."""
    async with site(example_app(url), works=False) as here:
        app = here.app
        [name] = await _register(app, 1)
        now = app.services.wall()
        looks = [
            NewLook(service=name, at=now - 100 + number, status="up", span_s=1.0, latency_ms=float(number + 1))
            for number in range(20)
        ]
        refused = NewLook(service=name, at=now - 50, status="down", span_s=1.0, error="refused")
        await (await app.store()).health.record([*looks, refused])
        [item] = (await here.get("/api/services"))["items"]
        assert item["p95_ms"] == 19.0
        assert len(item["looks"]) == 21


async def test_the_graph_is_drawn_anew_exactly_when_a_fact_in_it_changes(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look that finds the same status draws nothing; another status, a new service and an alias do."""
    drawn = 0

    class CountedGraph(Graph):
        def __init__(self, *given: Any) -> None:
            nonlocal drawn
            drawn += 1
            super().__init__(*given)

    monkeypatch.setattr(service_graph, "Graph", CountedGraph)
    async with site(example_app(url), works=False) as here:
        names = await _register(here.app, 3)

        async def statuses() -> dict[str, str]:
            return {one["name"]: one["status"] for one in (await here.get("/api/graph"))["nodes"]}

        await statuses()
        before = drawn
        await _look(here.app, names[0], Status.DOWN, 1.0)
        assert (await statuses())[names[0]] == "down"
        assert drawn == before + 1
        await _look(here.app, names[0], Status.DOWN, 2.0)
        assert (await statuses())[names[0]] == "down"
        assert drawn == before + 1, "nothing in it has changed"
        assert len((await here.get("/api/graph", problems=True))["nodes"]) == 2
        assert drawn == before + 1, "another part of the same graph"
        await _register(here.app, 4)
        assert len(await statuses()) == 4
        await here.post("/api/aliases", {"name": "db", "canonical": "PostgreSQL"}, 201)
        await statuses()
        assert drawn == before + 3


async def test_the_graph_shows_what_time_alone_makes_stale(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No row has changed: the status is not known any more, and what the service reported says nothing."""
    async with site(example_app(url), works=False) as here:
        app, [name] = here.app, await _register(here.app, 1)
        now = app.services.wall()
        await _look(app, name, Status.UP, 1.0)
        await _report(app, name, now, "up")

        async def statuses() -> dict[str, str]:
            return {one["name"]: one["status"] for one in (await here.get("/api/graph"))["nodes"]}

        assert await statuses() == {name: "up", "PostgreSQL": "up"}
        monkeypatch.setattr(app.services, "wall", lambda: now + 10_000)
        assert await statuses() == {name: "unknown"}
        monkeypatch.setattr(app.services, "wall", lambda: now)
        assert await statuses() == {name: "up", "PostgreSQL": "up"}, "a clock that was set back"
        await _report(app, name, now + 1, "down")
        assert await statuses() == {name: "up", "PostgreSQL": "down"}, "its row has not changed, its report has"


async def _report(app: Everpoll, name: str, at: float, status: HealthWord) -> None:
    """Record a look with which a service reports PostgreSQL."""
    reported = NewDependency(name="PostgreSQL", status=status, changed_at=at, seen_at=at)
    look = NewLook(service=name, at=at, status="up", span_s=30.0, dependencies=(reported,))
    await (await app.store()).health.record([look])


async def _look(app: Everpoll, name: str, status: Status, seconds: float) -> None:
    """Give a service the memory that a look would have left that ended so many seconds ahead."""
    at = app.services.wall() + seconds
    memory = write(Control(status=status, changed_at=CHANGED_AT, judged_at=at, looked_at=at, answered_at=at))
    task = await app.services.row(name)
    if app.url.startswith("sqlite"):
        with contextlib.closing(sqlite3.connect(app.url.removeprefix("sqlite:///"))) as file, file:
            file.execute("update everpoll_tasks set memory = ? where id = ?", (memory, task.id))
        return
    connection = await asyncpg.connect(app.url)
    try:
        await connection.execute("update everpoll.tasks set memory = $1 where id = $2", memory, task.id)
    finally:
        await connection.close()


async def test_an_answer_does_not_wait_for_an_acknowledgment() -> None:
    """Connections have Nagle's algorithm off: with it, each answer on a kept connection comes 40 ms late."""
    async with site(example_app("memory://"), works=False) as here:
        await here.get("/api/loops")
        server = here.server._server
        assert server is not None
        [protocol] = server.server_state.connections
        connection = protocol.transport.get_extra_info("socket")
        assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
