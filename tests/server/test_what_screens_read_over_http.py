"""What a screen needs beside the lists: the log newest first, what its caller may do, and bulk by "retrying"."""

from typing import Any

from everpoll import Budget, Everpoll
from everpoll.server import log_routes
from everpoll.stores.health import DAY_S, NewLook
from everpoll.watches import Done, Wait
from server.site import READ_TOKEN, Site, example_app, site


async def _paused(here: Site, times: int) -> None:
    for _ in range(times):
        await here.post("/api/queues/default/pause", {"reason": "a test"})
        await here.post("/api/queues/default/resume")


async def _positions(here: Site, **params: Any) -> list[str]:
    found: list[str] = []
    after: str | None = None
    while True:
        page = await here.get("/api/log", **params, **({} if after is None else {"after": after}))
        found += [one["position"] for one in page["items"]]
        after = page["after"]
        if after is None:
            return found


async def test_the_log_lists_every_event_once_newest_first(url: str) -> None:
    """Pages of any size give the same events, newest first, as the feed has oldest first."""
    async with site(example_app(url), works=False) as here:
        await _paused(here, 4)
        feed = [one.position for one in (await (await here.app.store()).events("0", 1000)).events]
        assert len(feed) >= 8
        for limit in (1, 3, 100):
            assert await _positions(here, limit=limit) == feed[::-1]
        assert await _positions(here, at=feed[3], limit=2) == feed[3::-1]
        assert (await here.http.get("/api/log", params={"at": "x"})).status_code == 422


async def test_the_log_is_filtered_by_what_and_by_task(url: str) -> None:
    """Kind and name choose events; a task has its own, actions of operators included."""
    async with site(example_app(url), works=False) as here:
        await _paused(here, 2)
        job = await here.post("/api/jobs", {"name": "audit", "args": ["x"], "delay": "1h"}, 201)
        await here.post(f"/api/jobs/{job['id']}/run-now")
        await here.post(f"/api/jobs/{job['id']}/cancel", {"reason": "not needed"})
        queues = await here.get("/api/log", kind="queue", name="default")
        assert [one["body"]["what"] for one in queues["items"]] == ["resume", "pause"] * 2
        own = (await here.get("/api/log", task=job["id"]))["items"]
        assert [one["body"]["what"] for one in own] == ["cancel", "run-now"]
        assert {one["task_id"] for one in own} == {job["id"]}
        assert await _positions(here, task=job["id"], limit=1) == [one["position"] for one in own]
        assert (await here.get("/api/log", name="nothing"))["items"] == []


async def test_a_page_of_the_log_looks_at_a_bounded_number_of_events(url: str, monkeypatch: Any) -> None:
    """A filter that fits little gives short pages, which say how far back they looked and go on from there."""
    monkeypatch.setattr(log_routes, "WINDOW", 2)
    monkeypatch.setattr(log_routes, "SCAN", 4)
    async with site(example_app(url), works=False) as here:
        await here.post("/api/queues/slow/pause")
        await _paused(here, 5)
        first = await here.get("/api/log", name="slow")
        assert first["items"] == []
        assert first["after"] is not None
        assert first["searched_back_to"] is not None
        assert len(await _positions(here, name="slow")) == 1


async def test_every_answer_tells_what_its_caller_may_do(url: str) -> None:
    """A token that only reads hears "read", and the other "write"."""
    async with site(example_app(url), works=False) as here:
        assert (await here.http.get("/api/jobs")).headers["everpoll-access"] == "write"
        async with here.client(Authorization=f"Bearer {READ_TOKEN}") as reader:
            assert (await reader.get("/api/jobs")).headers["everpoll-access"] == "read"
        async with here.client() as stranger:
            assert "everpoll-access" not in (await stranger.get("/health")).headers


async def test_bulk_knows_the_filter_retrying(url: str) -> None:
    """Only jobs that wait for their next attempt are counted."""
    async with site(example_app(url), works=False) as here:
        await here.post("/api/jobs", {"name": "audit", "args": ["x"]}, 201)
        body = {"action": "cancel", "filter": {"retrying": True}, "dry_run": True}
        assert (await here.post("/api/jobs/bulk", body))["matched"] == 0
        assert (await here.post("/api/jobs/bulk", body | {"filter": {"retrying": False}}, 422)) is not None


async def test_a_job_says_how_many_attempts_it_has(url: str) -> None:
    """As its registration says; a server without the app does not know."""
    async with site(example_app(url), works=False) as here:
        made = await here.post("/api/jobs", {"name": "audit", "args": ["x"]}, 201)
        assert (made["attempt"], made["attempts"]) == (0, 3)
        [item] = (await here.get("/api/jobs"))["items"]
        assert item["attempts"] == 3
    async with site(Everpoll(url), works=False, alone=True) as elsewhere:
        assert (await elsewhere.get(f"/api/jobs/{made['id']}"))["attempts"] is None


async def test_a_run_shows_its_looks_by_number_and_what_changed_last(url: str) -> None:
    """The list has target and last fact; the log has the number of each look and how long it took."""
    app = Everpoll(url)

    @app.watch(every="20ms", budget=Budget("29m"), remote=lambda op: op["host"])
    async def export(op: dict[str, Any], w: Any) -> Done | Wait:
        w.memory["rows"] = w.looks
        w.confirm("token=secret", w.looks == 2, times=1)
        return Done() if w.looks == 3 else Wait()

    async with site(app) as here:
        await here.post("/api/runs", {"watch": "export", "id": "r", "op": {"host": "shop.example.com"}}, 201)
        run = await app.watches["export"].begin({"host": "shop.example.com"}, "r")
        await run.result()
        [item] = (await here.get("/api/runs"))["items"]
        assert item["target"] == "shop.example.com"
        detail = await here.get("/api/runs/export:r")
        assert detail["log"][-1]["look"] == detail["looks"] == 3
        assert all(entry["took_s"] >= 0 for entry in detail["log"] if "look" in entry)
        assert item["last_fact"] == detail["last_fact"]
        assert item["last_fact"]["look"] in {entry.get("look") for entry in detail["log"]}


async def test_a_loop_shows_its_last_runs(url: str) -> None:
    """A letter each, oldest first, here and in other processes."""
    app = Everpoll(url)
    answers = iter([True, False, True])

    @app.loop(every="1h")
    async def prices() -> bool:
        return next(answers)

    async with site(app) as here:
        for _ in range(3):
            await app.loops["prices"].trigger()
        [item] = (await here.get("/api/loops"))["items"]
        assert item["strip"][:3] == "ofo"


async def test_a_mute_says_why_in_the_log(url: str) -> None:
    async with site(example_app(url), works=False) as here:
        await here.post("/api/services", {"name": "web", "target": "https://web.example/"}, 201)
        await here.post("/api/services/web/mute", {"span": "2h", "reason": "a release"})
        [entry] = (await here.get("/api/log", kind="service", name="web", limit=1))["items"]
        assert (entry["body"]["what"], entry["body"]["why"]) == ("mute", "for 2h: a release")


async def test_time_that_is_still_to_come_is_not_covered(url: str) -> None:
    """A look that stands for an hour covers nothing of it when it has just been made, in lists, details and series."""
    async with site(example_app(url), works=False) as here:
        app = here.app
        await here.post("/api/services", {"name": "web", "target": "https://web.example/", "every": "1h"}, 201)
        now = app.services.wall()
        look = NewLook(service="web", at=now, status="up", span_s=DAY_S)
        await (await app.store()).health.record([look])
        uptime = (await here.get("/api/services/web"))["uptime"]
        history = await here.get("/api/services/web/history", range="24h", step="hour")
        series = await here.get("/api/series", of="uptime", service="web", range="24h", step="1h")
        took_s = app.services.wall() - now
        assert uptime["24h"]["covered"] <= took_s / DAY_S
        assert history["buckets"][-1]["uptime"]["covered"] <= took_s / 3600
        assert series["items"][-1]["covered"] <= took_s / 3600
        found = await (await app.services.find("web")).uptime("1d")
        assert found.covered <= (app.services.wall() - now) / DAY_S
