"""Services over HTTP: registered, changed, muted, looked at, acknowledged, removed; heartbeats come in."""

import contextlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from server.site import READ_TOKEN, Site, example_app, site, until

DEPENDENCIES = (
    b'[{"name": "pg-main", "healthy": false, "type": "database", "health": {"state": 2, "code": 500, "latency": 7},'
    b' "error": {"message": "https://user:hunter2@db/"}}]'
)


@contextlib.contextmanager
def endpoint(body: bytes = DEPENDENCIES) -> Iterator[str]:
    """A service that reports a dependency which is down."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/health"
        finally:
            server.shutdown()
            thread.join()


async def _known(here: Site, name: str, status: str) -> Any:
    async def look() -> Any:
        shown = await here.get(f"/api/services/{name}")
        return shown if shown["status"] == status else None

    return await until(look)


async def test_a_service_is_registered_looked_at_changed_and_removed(url: str) -> None:
    with endpoint() as target:
        async with site(example_app(url)) as here:
            new: dict[str, Any] = {"name": "shop/eu", "target": target, "every": "1h", "depends_on": ["billing"]}
            new |= {"alert": {"after": 1, "to": ["ops"]}, "breaker": None}
            made = await here.post("/api/services", new, 201)
            assert made["definition"]["alert"]["to"] == ["ops"]
            assert await here.post("/api/services", new, 200)
            assert (await here.http.post("/api/services", json={**new, "every": "20m"})).status_code == 409
            shown = await _known(here, "shop%2Feu", "degraded")
            assert shown["looks"][0]["http_status"] == 200
            assert shown["uptime"]["24h"]["percent"] == 100.0
            [pg] = (await here.get("/api/services/shop%2Feu/dependencies"))["items"]
            assert (pg["name"], pg["status"], pg["healthy"]) == ("pg-main", "down", False)
            assert "hunter2" not in str(pg)
            changed = await here.http.patch("/api/services/shop%2Feu", json={"every": "30m"})
            assert changed.json()["every_s"] == 1800.0
            assert changed.json()["definition"]["depends_on"] == ["billing"]
            await here.post("/api/services/shop%2Feu/check")

            async def looks() -> bool:
                return len((await here.get("/api/services/shop%2Feu"))["looks"]) >= 2

            await until(looks)
            history = await here.get("/api/services/shop%2Feu/history", range="1h", limit=1, step="minute")
            assert history["after"]
            assert sum(one["degraded"] for one in history["buckets"]) >= 2
            older = await here.get("/api/services/shop%2Feu/history", range="1h", limit=1, after=history["after"])
            assert older["items"][0]["at"] < history["items"][0]["at"]
            assert "shop/eu" in (await here.get("/api/services/shop%2Feu/why"))["verdict"]
            assert (await here.http.delete("/api/services/shop%2Feu")).status_code == 204

            async def is_gone() -> bool:
                return (await here.http.get("/api/services/shop%2Feu")).status_code == 404

            await until(is_gone)


async def test_a_secret_is_neither_accepted_nor_shown(url: str) -> None:
    async with site(example_app(url), works=False) as here:
        new = {"name": "a", "target": "https://a.example/health", "headers": {"Authorization": "Bearer hunter2"}}
        refused = await here.http.post("/api/services", json=new)
        assert refused.status_code == 422
        assert "hunter2" not in refused.text
        refused = await here.http.post("/api/services", json={"name": "a", "target": "https://u:hunter2@a.example/"})
        assert refused.status_code == 422
        assert "hunter2" not in refused.text
        referred = {**new, "headers": {"Authorization": "Bearer ${KEY}"}}
        assert (await here.post("/api/services", referred, 201))["definition"]["headers"] == referred["headers"]


async def test_heartbeats_come_in_by_their_token_alone(url: str) -> None:
    async with site(example_app(url)) as here, here.client() as service:
        made = await here.post("/api/services", {"name": "backup", "target": "beat:", "every": "1d"}, 201)
        path = made["beat_path"]
        assert path.startswith("/api/beat/")
        assert path.rpartition("/")[2] not in str(await here.get("/api/services"))
        assert (await service.get(path)).json() == {"ok": True}
        await _known(here, "backup", "up")
        assert (await service.post(f"{path}?status=down")).status_code == 200
        await _known(here, "backup", "down")
        assert (await service.post(f"{path}?status=odd")).status_code == 422
        assert (await service.post(f"{path}x")).status_code == 404


async def test_a_heartbeat_service_of_an_app_has_a_token_that_lasts(url: str) -> None:
    """Made once, kept by each further registration, shown to callers that may write, and to no reader."""
    paths = []
    for every in ("1d", "2d"):
        app = example_app(url)
        app.service("nightly", "beat:", every=every)
        async with site(app) as here, here.client() as service:
            path = (await here.get("/api/services/nightly"))["beat_path"]
            assert path == f"/api/beat/{await app.services['nightly'].beat_token()}"
            assert (await service.post(path)).status_code == 200
            reader = {"Authorization": f"Bearer {READ_TOKEN}"}
            shown = await service.get("/api/services/nightly", headers=reader)
            assert (shown.status_code, shown.json()["beat_path"]) == (200, None)
            assert path.rpartition("/")[2] not in shown.text
            again = await here.post("/api/services", {"name": "nightly", "target": "beat:", "every": every})
            assert again["beat_path"] == path
            changed = await here.http.patch("/api/services/nightly", json={"target": "beat:", "timeout": "1h"})
            paths += [path, changed.json()["beat_path"]]
    assert len(set(paths)) == 1


async def test_incidents_are_listed_and_acknowledged(url: str) -> None:
    app = example_app(url)
    app.service("gone", "http://127.0.0.1:9/health", every="5s", alert=None)
    async with site(app) as here:

        async def opened() -> Any:
            return (await here.get("/api/incidents", service="gone"))["items"]

        await here.post("/api/services/gone/check")
        await here.post("/api/services/gone/check")
        [incident] = await until(opened)
        assert incident["is_open"]
        known = await here.post(f"/api/incidents/{incident['id']}/ack", {"by": "anna"})
        assert known["acknowledged_by"] == "anna"
        assert (await here.get("/api/incidents", state="past"))["items"] == []
        assert [one["id"] for one in (await here.get("/api/incidents", state="all"))["items"]] == [incident["id"]]

        async def is_logged() -> bool:
            log = (await here.get("/api/log", kind="incident", name="gone"))["items"]
            return "incident:open" in {one["body"].get("kind") for one in log}

        assert await until(is_logged)
        assert (await here.http.post("/api/incidents/none/ack")).status_code == 404


async def test_a_service_is_paused_and_resumed(url: str) -> None:
    async with site(example_app(url)) as here:
        paused = await here.post("/api/services/billing/pause", {"reason": "it moves"})
        assert (paused["status"], paused["healthy"], paused["due_at"], paused["waits"]) == (
            "paused",
            None,
            None,
            "paused",
        )
        assert paused["paused"]["reason"] == "it moves"
        assert paused["paused"]["by"].startswith("HTTP from ")
        assert [one["name"] for one in (await here.get("/api/services", status="paused"))["items"]] == ["billing"]
        why = await here.get("/api/services/billing/why")
        assert why["verdict"].startswith("billing has been paused by HTTP from ")
        assert why["verdict"].endswith(": it moves.")
        assert why["advice"] == "to look at it again: everpoll services resume billing"
        assert 'everpoll_services{status="paused"} 1.0' in (await here.http.get("/metrics")).text
        refused = await here.http.post("/api/services/billing/check")
        assert (refused.status_code, "is paused by HTTP from " in refused.json()["detail"]) == (409, True)
        assert (await here.post("/api/services/billing/resume"))["paused"] is None
        assert (await here.http.post("/api/services/billing/resume")).status_code == 409
        assert (await here.post("/api/services/billing/pause"))["paused"]["reason"] == "", "a reason is not needed"
        assert (await here.http.post("/api/services/none/pause")).status_code == 404
        log = (await here.get("/api/log", kind="service", name="billing"))["items"]
        assert sorted(one["body"]["what"] for one in log if "what" in one["body"]) == ["pause", "pause", "resume"]

        async def is_seen() -> bool:
            log = (await here.get("/api/log", kind="service", name="billing"))["items"]
            return "service:paused" in {one["body"].get("kind") for one in log}

        assert await until(is_seen), "what a worker has seen of a service is about it, too"


async def test_mute_maintenance_and_aliases(url: str) -> None:
    async with site(example_app(url)) as here:
        assert (await here.post("/api/services/billing/mute", {"span": "2h"}))["muted_until"]
        assert (await here.post("/api/services/billing/unmute"))["muted_until"] is None
        window = {"starts_at": "2020-01-01T00:00:00Z", "ends_at": "2120-01-01T00:00:00Z", "services": ["billing"]}
        planned = await here.post("/api/maintenance", window, 201)
        assert planned["is_active"]
        weekly = {"id": "sunday", "days": ["sun"], "at": "02:00", "lasting": "2h", "zone": "Europe/Berlin"}
        assert (await here.post("/api/maintenance", weekly, 201))["days"] == ["sun"]
        assert {one["id"] for one in (await here.get("/api/maintenance"))["items"]} == {planned["id"], "sunday"}
        assert (await here.http.delete("/api/maintenance", params={"id": "sunday"})).status_code == 204
        assert (await here.http.delete("/api/maintenance", params={"id": "sunday"})).status_code == 404
        assert (await here.http.post("/api/maintenance", json={"days": ["odd"]})).status_code == 422
        alias = {"name": "pg-main", "canonical": "PostgreSQL"}
        await here.post("/api/aliases", alias, 201)
        assert (await here.get("/api/aliases"))["items"] == [alias]
        assert (await here.http.delete("/api/aliases", params={"name": "pg-main"})).status_code == 204
        assert (await here.http.delete("/api/aliases", params={"name": "pg-main"})).status_code == 404


async def test_the_graph_shows_what_explains_an_outage(url: str) -> None:
    with endpoint() as target:
        async with site(example_app(url)) as here:
            await here.post("/api/aliases", {"name": "pg-main", "canonical": "PostgreSQL"}, 201)
            await here.post("/api/services", {"name": "shop", "target": target, "depends_on": ["billing"]}, 201)
            await _known(here, "shop", "degraded")
            graph = await here.get("/api/graph")
            assert {one["name"]: one["status"] for one in graph["nodes"]}["PostgreSQL"] == "down"
            assert {"source": "shop", "target": "PostgreSQL"} in graph["edges"]
            near = await here.get("/api/graph", focus="pg-main", depth=1)
            assert {one["name"] for one in near["nodes"]} == {"PostgreSQL", "shop"}
            assert (await here.get("/api/graph", focus="nothing"))["nodes"] == []
