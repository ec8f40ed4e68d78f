"""`/health` is 503 soon after the database goes away and 200 soon after it returns, with a worker and without one."""

import sys
import time
from typing import Any

import pytest

from everpoll import Everpoll
from server.site import Site, example_app, site, until
from servers.postgres import cluster

AWAY_S = 20.0
BACK_S = 5.0
CALLS = [
    *(("GET", f"/api/{name}") for name in ("jobs", "runs", "services", "incidents", "workers", "queues", "schedules")),
    *(
        ("GET", path)
        for path in ("/api/jobs/1", "/api/jobs/causes", "/api/services/billing", "/api/aliases", "/api/log")
    ),
    *(("POST", path) for path in ("/api/queues/default/pause", "/api/jobs/1/cancel", "/api/services/billing/unmute")),
    ("DELETE", "/api/maintenance?id=move"),
]


async def _status(here: Site, wanted: int) -> float:
    """How long it takes until `/health` answers so."""
    began = time.monotonic()

    async def look() -> bool:
        return (await here.http.get("/health")).status_code == wanted

    await until(look)
    return time.monotonic() - began


async def _outage(works: bool) -> tuple[float, float]:
    """Stop Postgres and start it again; how long `/health` took to say so, each."""
    with cluster() as server:
        app = example_app(server.url()) if works else Everpoll(server.url())
        async with site(app, works=works, alone=not works) as here:
            await _status(here, 200)
            server.stop()
            away_s = await _status(here, 503)
            for method, path in CALLS:
                refused = await here.http.request(method, path)
                assert (path, refused.status_code) == (path, 503)
                assert refused.headers["content-type"] == "application/problem+json"
            assert (await here.http.get("/ready")).status_code == 503
            server.start()
            back_s = await _status(here, 200)
            assert (await here.http.get("/api/jobs")).status_code == 200
            assert (await here.http.get("/ready")).status_code == 200
            return away_s, back_s


@pytest.mark.parametrize("works", [True, False])
async def test_postgres_goes_away_and_comes_back(works: bool) -> None:
    await _outage(works)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="stops processes by /proc")
@pytest.mark.parametrize("works", [True, False])
async def test_a_postgres_that_stands_still_is_away(works: bool) -> None:
    """Its connections stay open, and no answer comes."""
    with cluster() as server:
        app = example_app(server.url()) if works else Everpoll(server.url())
        async with site(app, works=works, alone=not works) as here:
            await _status(here, 200)
            server.freeze()
            try:
                await _status(here, 503)
            finally:
                server.thaw()
            await _status(here, 200)
            assert (await here.http.get("/api/jobs")).status_code == 200


@pytest.mark.prove
@pytest.mark.parametrize("works", [True, False])
async def test_an_outage_shows_within_20_s_and_its_end_within_5_s(works: bool) -> None:
    away_s, back_s = await _outage(works)
    assert away_s < AWAY_S
    assert back_s < BACK_S


async def test_metrics_of_the_poller_are_told_and_errors_only_to_callers_with_a_token() -> None:
    async with site(example_app("memory://")) as here, here.client() as stranger:
        told: Any = (await stranger.get("/health")).json()
        assert told["healthy"]
        assert told["worker"]["polling"]
        assert {"polls_per_minute", "rows_per_poll", "lease_success_rate", "lease_latency_s"} <= told["worker"].keys()
        assert (await stranger.get("/ready")).status_code == 401
    with cluster() as server:
        url = server.url()
    async with site(Everpoll(url), works=False, alone=True) as here, here.client() as stranger:

        async def has_error() -> Any:
            return (await here.http.get("/health")).json()["store"]["last_error"]

        assert "127.0.0.1" in await until(has_error)
        assert "127.0.0.1" not in (await stranger.get("/health")).json()["store"]["last_error"]


async def test_an_app_of_loops_is_healthy_without_a_database() -> None:
    app = Everpoll("postgresql://127.0.0.1:1/nothing")

    @app.loop(every="1h")
    async def refresh() -> None: ...

    async with site(app) as here:
        told = (await here.http.get("/health")).json()
        assert told["healthy"]
        assert told["store"] is None
        assert told["loops"] == 1
