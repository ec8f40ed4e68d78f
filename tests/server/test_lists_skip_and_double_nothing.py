"""Pages of a list have each row once, although rows are inserted and moved to history between two pages."""

import asyncio
from typing import Any

import pytest

from everpoll import Everpoll
from everpoll.server import jobs_routes, runs_routes
from server.incident_writer import end, incident, write_open
from server.site import Site, example_app, site


async def _page(here: Site, path: str, after: str | None, **params: Any) -> Any:
    return await here.get(path, **params, **({} if after is None else {"after": after}))


async def test_jobs_while_others_are_started_and_end(url: str) -> None:
    async with site(example_app(url), works=False) as here:
        job = here.app.jobs["audit"]
        tasks = await job.enqueue_many([(f"https://example.com/{number}",) for number in range(60)])
        seen: list[int] = []
        after: str | None = None
        async with here.app.working():
            while True:
                page = await _page(here, "/api/jobs", after, limit=7, name="audit")
                seen += [one["id"] for one in page["items"]]
                await job.enqueue_many([("https://example.com/new",)] * 3)
                await asyncio.gather(*(task.result(timeout="30s") for task in tasks[len(seen) : len(seen) + 5]))
                after = page["after"]
                if after is None:
                    break
        assert sorted(seen, reverse=True) == seen
        assert len(set(seen)) == len(seen)
        assert {task.id for task in tasks} <= set(seen)


async def test_a_page_of_jobs_or_runs_is_bounded_whatever_the_limit(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cursor goes on behind a page that is shorter than the limit."""
    monkeypatch.setattr(jobs_routes, "TASKS_LIMIT", 3)
    monkeypatch.setattr(runs_routes, "TASKS_LIMIT", 2)
    async with site(example_app(url), works=False) as here:
        tasks = await here.app.jobs["audit"].enqueue_many([("https://example.com",)] * 7)
        watch = here.app.watches["export"]
        runs = [await watch.begin({"query": "select 1"}, f"run-{number}") for number in range(5)]
        for path, ids, most in (
            ("/api/jobs", [task.id for task in tasks], 3),
            ("/api/runs", [run.task_id for run in runs], 2),
        ):
            seen: list[int] = []
            after: str | None = None
            while True:
                page = await _page(here, path, after, limit=1000)
                assert len(page["items"]) <= most
                seen += [one.get("task_id", one["id"]) for one in page["items"]]
                after = page["after"]
                if after is None:
                    break
            assert seen == ids[::-1]


async def test_services_by_pages(url: str) -> None:
    app = example_app(url)
    names = {f"s{number}" for number in range(23)}
    for name in names:
        app.service(name, "http://127.0.0.1:9/health", every="1h")
    async with site(app) as here:
        seen: list[str] = []
        after: str | None = None
        while True:
            page = await _page(here, "/api/services", after, limit=5)
            seen += [one["name"] for one in page["items"]]
            after = page["after"]
            if after is None:
                break
        assert sorted(seen) == sorted({*names, "billing"})


async def test_open_incidents_while_others_open_and_end(url: str) -> None:
    """Those that stay open are listed once each, without a limit in the call, too."""
    app = Everpoll(url)
    async with site(app, works=False) as here:
        store = await app.store()
        first = [incident(number) for number in range(60)]
        # Past ones lie between: they are not looked at.
        await write_open(store, first)
        await end(store, first[10:15])
        seen: list[str] = []
        after: str | None = None
        for turn in range(10):
            page = await _page(here, "/api/incidents", after, **({} if turn == 0 else {"limit": 7}))
            assert len(page["items"]) == (50 if turn == 0 else min(7, len(page["items"])))
            assert all(one["is_open"] for one in page["items"])
            seen += [one["id"] for one in page["items"]]
            after = page["after"]
            if after is None:
                break
            await write_open(store, [incident(100 + turn)])
            await end(store, [first[20 + turn], first[turn]])
        stay = {one.id for place, one in enumerate(first) if not (10 <= place < 15 or place < 5)}
        assert after is None
        assert len(set(seen)) == len(seen)
        assert stay <= set(seen)


async def test_more_open_incidents_than_one_page_are_listed_and_counted(url: str) -> None:
    app = Everpoll(url)
    async with site(app, works=False) as here:
        await write_open(await app.store(), [incident(number) for number in range(1_003)])
        await app.services.publish([app.services.define("billing", "http://127.0.0.1:9/", {})])
        page = await here.get("/api/incidents", limit=1000)
        rest = await _page(here, "/api/incidents", page["after"], limit=1000)
        assert (len(page["items"]), len(rest["items"]), rest["after"]) == (1_000, 3, None)
        assert [len(await app.services.incidents.list(limit=limit)) for limit in (0, 1, 1_003)] == [0, 1, 1_003]
        assert "everpoll_incidents_open 1003.0" in (await here.http.get("/metrics")).text


async def test_jobs_are_found_behind_many_newer_services(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page looks at 10 tasks here, and a list without a filter goes on until it has a job."""
    monkeypatch.setattr("everpoll.stores.task_search.SEARCH_LIMIT", 10)
    app = example_app(url)
    async with site(app, works=False) as here:
        task = await here.app.jobs["audit"].enqueue("https://example.com")
        define = app.services.define
        await app.services.publish([define(f"s{number}", "http://127.0.0.1:9/", {}) for number in range(35)])
        assert [one["id"] for one in (await here.get("/api/jobs"))["items"]] == [task.id]
        assert [one["id"] for one in (await here.get("/api/jobs", state="queued"))["items"]] == [task.id]
        assert (await here.get("/api/jobs", name="audit"))["items"] == []


async def test_a_cursor_is_of_one_list_only(url: str) -> None:
    async with site(example_app(url), works=False) as here:
        await here.app.jobs["audit"].enqueue_many([("x",)] * 3)
        page = await here.get("/api/jobs", limit=1)
        for path in ("/api/runs", "/api/services", "/api/loops"):
            assert (await here.http.get(path, params={"after": page["after"]})).status_code == 422
