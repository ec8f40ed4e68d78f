"""Jobs are found by error, arguments and time; series and metrics are read; loops of other processes are shown."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from server.site import example_app, is_healthy, python, site, until
from servers.ports import reserved_port

OTHER = """
from everpoll import Everpoll
app = Everpoll({url!r}, lease="1500ms")
@app.job()
async def work(): ...
@app.loop(every="1h")
async def elsewhere(): ...
"""


async def test_jobs_are_found_by_error_arguments_and_time(url: str) -> None:
    async with site(example_app(url)) as here:
        failing = await here.post("/api/jobs", {"name": "broken"}, 201)
        found = await here.post("/api/jobs", {"name": "audit", "args": ["https://a.example"], "delay": "1h"}, 201)
        await here.post("/api/jobs", {"name": "audit", "args": ["https://b.example"], "delay": "1h"}, 201)

        async def ids(**params: Any) -> list[int]:
            return [one["id"] for one in (await here.get("/api/jobs", **params))["items"]]

        async def has_failed() -> bool:
            return await ids(error="ValueError") == [failing["id"]]

        await until(has_failed)
        assert await ids(error="KeyError") == []
        assert await ids(q="a.example") == [found["id"]]
        now = datetime.now(UTC)
        assert len(await ids(**{"from": (now - timedelta(hours=1)).isoformat()})) == 3
        assert await ids(to=(now - timedelta(hours=1)).isoformat()) == []
        # Whenever it was enqueued; live jobs have not ended.
        await here.http.post(f"/api/jobs/{found['id']}/cancel", json={})
        an_hour_ago = (now - timedelta(hours=1)).isoformat()
        assert await ids(ended_from=an_hour_ago, name="audit") == [found["id"]]
        assert await ids(ended_to=(now - timedelta(hours=1)).isoformat()) == []
        assert (await here.http.get("/api/jobs", params={"ended_from": "2020-01-01T00:00:00"})).status_code == 422
        assert (await here.http.get("/api/jobs", params={"from": "yesterday"})).status_code == 422
        assert (await here.http.get("/api/jobs", params={"from": "2020-01-01T00:00:00"})).status_code == 422
        dry = {"action": "cancel", "filter": {"q": "b.example"}, "dry_run": True}
        assert (await here.post("/api/jobs/bulk", dry))["eligible"] == 1


async def test_series_for_charts(url: str) -> None:
    async with site(example_app(url, lease="900ms")) as here:
        await here.post("/api/jobs", {"name": "audit", "args": ["x"]}, 201)

        async def throughput() -> Any:
            return (await here.get("/api/series", of="throughput", range="1h"))["items"]

        [point] = await until(throughput)
        assert point["counts"]["done"] == 1
        for of in ("waiting", "running", "lateness"):
            assert (await here.get("/api/series", of=of, range="6h", step="10m"))["step_s"] == 600
        assert (await here.get("/api/series", of="uptime", service="billing", range="7d"))["step_s"] == 3600
        for params, argument in [
            ({"of": "odd"}, "of"),
            ({}, "of"),
            ({"of": "waiting", "range": "9999d"}, "range"),
            ({"of": "waiting", "step": "90s"}, "step"),
            ({"of": "waiting", "range": "2d", "step": "1m"}, "step"),
            ({"of": "uptime"}, "service"),
            ({"of": "waiting", "service": "billing"}, "service"),
        ]:
            refused = await here.http.get("/api/series", params=params)
            assert (refused.status_code, refused.json()["argument"]) == (422, argument)
        assert (await here.http.get("/api/series", params={"of": "uptime", "service": "none"})).status_code == 404


async def test_metrics_are_scraped_with_a_token(url: str) -> None:
    async with site(example_app(url)) as here, here.client() as stranger:
        answer = await here.http.get("/metrics")
        assert answer.headers["content-type"].startswith("text/plain")
        assert "everpoll_store_up 1.0" in answer.text
        assert (await stranger.get("/metrics")).status_code == 401


LOOPS_ALONE = """
from everpoll import Everpoll

app = Everpoll({url!r})


@app.loop(every="1h")
async def elsewhere() -> None: ...
"""


async def test_loops_of_a_process_without_jobs_are_shown_too(tmp_path: Path) -> None:
    """It has a database and answers HTTP, so its heartbeat publishes them."""
    url = f"sqlite:///{tmp_path / 'tasks.db'}"
    (tmp_path / "alone.py").write_text(LOOPS_ALONE.format(url=url))
    port = reserved_port()
    with python(["-m", "everpoll", "run", "alone:app", "--serve", "--port", str(port)], tmp_path):
        async with site(example_app(url)) as here:

            async def published() -> Any:
                return [one for one in (await here.get("/api/loops"))["items"] if one["name"] == "elsewhere"]

            [loop] = await until(published)
            assert loop["is_alive"]


async def test_loops_of_other_processes_are_shown_and_operated_there(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'tasks.db'}"
    (tmp_path / "other.py").write_text(OTHER.format(url=url))
    port = reserved_port()
    command = ["-m", "everpoll", "run", "other:app", "--serve", "--port", str(port)]
    with python(command, tmp_path):
        await until(lambda: is_healthy(f"http://127.0.0.1:{port}"))
        async with site(example_app(url)) as here:

            async def published() -> Any:
                return [one for one in (await here.get("/api/loops"))["items"] if one["name"] == "elsewhere"]

            [loop] = await until(published)
            assert loop["worker"]
            assert loop["is_alive"]
            refused = await here.http.post("/api/loops/elsewhere/pause")
            assert refused.status_code == 409
            assert loop["worker"] in refused.json()["detail"]
            names = [one["name"] for one in (await here.get("/api/loops"))["items"]]
            assert names == ["elsewhere", "refresh"]
