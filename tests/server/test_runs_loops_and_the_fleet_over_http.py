"""Runs, loops, workers, queues and tables over HTTP, and hints of what has changed."""

import asyncio
import contextlib
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from everpoll import Everpoll
from everpoll.server import fleet_routes
from everpoll.tables import Table
from everpoll.tables.contract import StatusCount
from server.site import Site, events_of, example_app, site, until


async def _run(here: Site, name: str, phase: str) -> Any:
    async def look() -> Any:
        shown = await here.get(f"/api/runs/{name}")
        return shown if shown["phase"] == phase else None

    return await until(look)


async def test_a_run_is_begun_once_and_shows_its_outcome(url: str) -> None:
    async with site(example_app(url)) as here:
        body = {"watch": "export", "id": "a/b", "op": {"table": "orders"}}
        first = await here.post("/api/runs", body, 201)
        again = await here.post("/api/runs", body, 200)
        assert first["task_id"] == again["task_id"]
        shown = await _run(here, "export:a%2Fb", "ended")
        assert (shown["outcome"], shown["value"], shown["op"]) == ("ready", {"rows": 3}, {"table": "orders"})
        assert (shown["budget_s"], shown["budget_looks"]) == (1740.0, 120)
        assert (await here.get(f"/api/runs/{first['task_id']}"))["id"] == "a/b"
        assert (await here.http.post("/api/runs/export:a%2Fb/cancel")).status_code == 409
        assert [one["id"] for one in (await here.get("/api/runs", watch="export"))["items"]] == ["a/b"]
        assert (await here.get("/api/runs", state="queued"))["items"] == []
        assert (await here.get("/api/runs/export:a%2Fb/why"))["verdict"]


async def test_a_run_is_canceled_with_a_reason(url: str) -> None:
    async with site(example_app(url)) as here:
        await here.post("/api/runs", {"watch": "export", "id": "1", "op": {"never": True}}, 201)
        asked = await here.post("/api/runs/export:1/cancel", {"reason": "the customer left"})
        assert asked["cancel_requested"] or asked["outcome"] == "canceled"
        shown = await _run(here, "export:1", "ended")
        assert shown["outcome"] == "canceled"
        assert "the customer left" in shown["reason"]


async def test_a_run_that_cannot_be_begun_says_why(url: str) -> None:
    async with site(example_app(url), works=False) as here:
        for body, argument in [
            ({"watch": "nothing", "op": {}}, "watch"),
            ({"watch": "export", "op": "text"}, None),
            ({"watch": "export"}, "op"),
            ({"watch": "export", "op": {}, "id": ""}, "id"),
        ]:
            refused = await here.http.post("/api/runs", json=body)
            assert refused.status_code == 422
            assert refused.json().get("argument") == argument, refused.text


async def test_loops_are_shown_and_operated() -> None:
    runs = asyncio.Event()
    app = example_app("memory://")

    @app.loop(every="1h")
    async def prices() -> None:
        runs.set()

    async with site(app) as here:
        page = await here.get("/api/loops", limit=1)
        assert page["items"][0]["name"] == "prices"
        assert (await here.get("/api/loops", after=page["after"]))["items"][0]["name"] == "refresh"
        assert (await here.post("/api/loops/prices/pause"))["phase"] == "paused"
        assert (await here.post("/api/loops/prices/resume"))["phase"] == "waiting"
        await here.post("/api/loops/prices/trigger")
        await asyncio.wait_for(runs.wait(), 30)
        assert (await here.post("/api/loops/prices/reset"))["failures"] == 0
        assert (await here.http.post("/api/loops/none/reset")).status_code == 404


async def test_workers_and_queues(url: str) -> None:
    async with site(example_app(url)) as here:
        await here.post("/api/jobs", {"name": "audit", "args": ["x"], "delay": "1h"}, 201)
        workers = (await here.get("/api/workers"))["items"]
        assert any("slow" in one["queues"] for one in workers)
        assert all(isinstance(one["incarnation"], str) for one in workers)
        queues = {one["name"]: one for one in (await here.get("/api/queues"))["items"]}
        assert queues["default"]["waiting"] == 1
        page = await here.get("/api/workers", limit=1)
        rest = await here.get("/api/workers", after=page["after"])
        # What they run changes between two answers; who they are does not.
        paged = [one["incarnation"] for one in (*page["items"], *rest["items"])]
        assert paged == [one["incarnation"] for one in workers]


async def test_workers_of_adopted_tables_are_listed(tmp_path: Path) -> None:
    """Those of the process that answers, also while they hold no rows."""
    with contextlib.closing(sqlite3.connect(tmp_path / "own.db")) as connection:
        columns = "id integer primary key, status text, created_at text, worker_id text, started_at text"
        connection.execute(f"create table orders ({columns})")
    app = Everpoll(f"sqlite:///{tmp_path}/everpoll.db")

    @app.table(Table("orders"), slots=3, url=f"sqlite:///{tmp_path}/own.db").handler
    async def pack(row: object) -> None: ...

    async with site(app) as here:
        [worker] = [one for one in (await here.get("/api/workers"))["items"] if one["table"] == "orders"]
        assert (worker["slots"], worker["running"], worker["queues"], worker["is_alive"]) == (3, 0, [], True)


async def test_schedules_of_the_fleet(url: str) -> None:
    app = example_app(url)
    for name, cron in (("nightly", "30 2 * * *"), ("hourly", "0 * * * *")):
        app.schedule(cron, tz="Europe/Berlin", name=name, args=("x",))(app.jobs["audit"])
    async with site(app) as here:
        hourly, nightly = await until(lambda: _begun(here))
        assert (nightly["name"], nightly["job"], nightly["timetable"]) == (
            "nightly",
            "audit",
            "30 2 * * * Europe/Berlin",
        )
        assert (nightly["is_registered"], nightly["missed"], nightly["last_at"]) == (True, "once", None)
        assert hourly["next_at"].endswith(":00:00Z")
        page = await here.get("/api/schedules", limit=1)
        rest = await here.get("/api/schedules", after=page["after"])
        assert [one["name"] for one in (*page["items"], *rest["items"])] == ["hourly", "nightly"]


async def _begun(here: Site) -> list[Any] | None:
    found = (await here.get("/api/schedules"))["items"]
    return found if all(one["next_at"] for one in found) else None


async def test_tables_of_this_process(tmp_path: Path) -> None:
    app = example_app(f"sqlite:///{tmp_path / 'tasks.db'}")
    app.table(Table("orders", columns=("customer",)))
    async with site(app, works=False) as here:
        [table] = (await here.get("/api/tables"))["items"]
        assert (table["name"], table["mapping"]["status"], table["findings"]) == ("orders", "status", None)
        [table] = (await here.get("/api/tables", check="true"))["items"]
        assert not all(one["is_fit"] for one in table["findings"])
        [table] = (await here.get("/api/tables", counts="true"))["items"]
        assert table["counts"] is None, "there is no such table to count"
        with sqlite3.connect(tmp_path / "tasks.db") as database:
            database.execute(
                "create table orders (id integer primary key, status text, created_at text, worker_id text, "
                "started_at text, customer text)"
            )
            database.execute("insert into orders (status) values ('queued'), ('queued'), ('done')")
        [table] = (await here.get("/api/tables", counts="true"))["items"]
        assert {one["status"]: one["rows"] for one in table["counts"]}["queued"] == 2


async def test_a_table_that_does_not_answer_leaves_the_others_in_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    app = example_app("memory://")
    for name in ("orders", "parcels"):
        app.table(Table(name), url="sqlite:///tables.db")

    async def hang() -> None:
        await asyncio.Event().wait()

    async def at_once() -> list[StatusCount]:
        return [StatusCount(status="queued", rows=2)]

    monkeypatch.setattr(fleet_routes, "COUNT_S", 0.05)
    monkeypatch.setattr(app.tables["orders"].source, "counts", hang)
    monkeypatch.setattr(app.tables["parcels"].source, "counts", at_once)
    async with site(app, works=False) as here:
        orders, parcels = (await here.get("/api/tables", counts="true"))["items"]
    assert orders["counts"] is None
    assert parcels["counts"] == [{"status": "queued", "rows": 2, "is_capped": False}]


async def test_a_screen_hears_what_is_worth_reading_again(url: str) -> None:
    async with site(example_app(url)) as here, asyncio.timeout(60), here.http.stream("GET", "/api/changes") as answer:
        reported = events_of(answer)
        versions: dict[str, int] = {}
        while len(versions) < 8:
            hint = await anext(reported)
            assert hint.event == "change"
            versions[hint.data["topic"]] = hint.data["version"]
        changes: list[tuple[str, Callable[[], Awaitable[Any]]]] = [
            ("jobs", lambda: here.app.jobs["audit"].enqueue("x")),
            ("runs", lambda: here.app.watches["export"].begin({}, id="1")),
            ("loops", lambda: here.post("/api/loops/refresh/pause")),
        ]
        for topic, change in changes:
            await change()
            while True:
                hint = await anext(reported)
                if hint.data["topic"] == topic and hint.data["version"] > versions[topic]:
                    break


async def test_polling_tells_looks_and_changes_of_each_watch(url: str) -> None:
    """From the runs themselves, live and ended; another watch has none."""
    async with site(example_app(url)) as here:
        assert (await here.get("/api/polling")) == {"items": [], "runs": 0, "is_capped": False, "since": None}
        for name in ("1", "2"):
            await here.post("/api/runs", {"watch": "export", "id": name, "op": {"table": "orders"}}, 201)
        ended = [await _run(here, f"export:{name}", "ended") for name in ("1", "2")]
        found = await here.get("/api/polling")
        [cost] = found["items"]
        assert (cost["watch"], cost["host"], cost["runs"]) == ("export", None, 2)
        assert cost["looks"] == sum(one["looks"] for one in ended)
        assert cost["changes"] >= 2
        assert {one["looks"] + one["saved"] for one in cost["floors"]} == {cost["looks"]}
        assert found["since"] == min(one["created_at"] for one in ended)
        assert (await here.get("/api/polling", watch="other"))["items"] == []
