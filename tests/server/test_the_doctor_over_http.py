"""`GET /api/doctor` answers with every check, whatever is wrong with the database."""

import asyncio
import contextlib
from pathlib import Path

from server.site import READ_TOKEN, example_app, site, until
from servers.postgres import cluster


async def test_a_healthy_site_is_well_and_a_reader_may_ask(url: str) -> None:
    """The shape that clients rely on, by a token that only reads."""
    async with site(example_app(url)) as here, here.client(Authorization=f"Bearer {READ_TOKEN}") as reader:

        async def well() -> bool:
            found = (await reader.get("/api/doctor")).json()
            assert {"schema", "indexes", "clock", "leases", "transactions"} <= {one["name"] for one in found["checks"]}
            assert all(one.keys() == {"name", "level", "says", "remedy"} for one in found["checks"])
            # Sessions of tests before may still be about to end, and a busy machine may be late by a second.
            return bool(found["ok"])

        assert await until(well)


async def test_a_paused_queue_shows_and_an_age_that_cannot_be_read_is_refused(url: str) -> None:
    async with site(example_app(url), works=False) as here:
        await here.post("/api/jobs", {"name": "audit", "args": ["https://example.com"]}, 201)
        await here.post("/api/queues/default/pause", {"reason": "a test"})
        found = await here.get("/api/doctor", transaction_age="1h")
        [paused] = [one for one in found["checks"] if one["name"] == "paused"]
        assert (found["ok"], paused["level"]) == (False, "warning")
        assert "everpoll queues resume default" in paused["remedy"]
        refused = await here.http.get("/api/doctor", params={"transaction_age": "soon"})
        assert (refused.status_code, refused.json()["argument"]) == (422, "transaction_age")


async def test_it_answers_while_the_database_is_away(tmp_path: Path) -> None:
    """Where every other call is 503, the doctor says what is wrong."""
    with contextlib.ExitStack() as until_end:
        server = await asyncio.to_thread(until_end.enter_context, cluster(None))
        async with site(example_app(server.url()), works=False) as here:
            assert (await here.get("/api/doctor"))["checks"][1]["level"] == "problem"  # no schema yet
            await asyncio.to_thread(server.stop)
            found = await here.get("/api/doctor")
            assert not found["ok"]
            assert found["checks"][0]["name"] == "database"
            assert found["checks"][0]["level"] == "problem"
