"""What operators do over HTTP: run now, look now, extend, pause, bulk; each is in the log with its actor."""

from typing import Any

import pytest

from everpoll import Everpoll, Retry
from everpoll.server import bulk_routes, causes_routes
from server.site import Site, example_app, site, until


async def _log(here: Site) -> list[tuple[str, str, str, str]]:
    store = await here.app.store()
    events = (await store.events("0", 1000)).events
    return [(one.kind, one.name, one.body.get("what", ""), one.body.get("by", "")) for one in events]


async def test_a_job_is_run_now(url: str) -> None:
    async with site(example_app(url)) as here:
        job = await here.post("/api/jobs", {"name": "audit", "args": ["x"], "delay": "1h"}, 201)
        path = f"/api/jobs/{job['id']}"
        await here.post(f"{path}/run-now")

        async def is_done() -> bool:
            return bool((await here.get(path))["state"] == "done")

        await until(is_done)
        refused = await here.http.post(f"{path}/run-now")
        assert refused.status_code == 409
        assert "done" in refused.json()["detail"]
        [acted] = (await here.get(path))["actions"]
        assert acted["body"]["what"] == "run-now"
        assert acted["body"]["by"] == "HTTP from 127.0.0.1"


async def test_a_run_is_looked_at_now_and_extended(url: str) -> None:
    async with site(example_app(url), works=False) as here:
        run = await here.post("/api/runs", {"watch": "export", "id": "1", "op": {"never": True}}, 201)
        assert (run["budget_s"], run["budget_looks"]) == (1740.0, 120)
        extended = await here.post("/api/runs/export:1/extend", {"time": "10m", "looks": 20})
        assert (extended["budget_s"], extended["budget_looks"]) == (2340.0, 140)
        assert extended["op"] == {"never": True}
        await here.post("/api/runs/export:1/look-now")
        for body in ({}, {"looks": 0}, {"time": "soon"}, {"more": 1}):
            assert (await here.http.post("/api/runs/export:1/extend", json=body)).status_code == 422
        what = [entry[2] for entry in await _log(here)]
        assert {"extend", "look-now"} <= set(what)


async def test_a_run_is_paused_and_resumed(url: str) -> None:
    async with site(example_app(url), works=False) as here:
        await here.post("/api/runs", {"watch": "export", "id": "1", "op": {"never": True}}, 201)
        assert (await here.http.post("/api/runs/export:1/resume")).status_code == 409
        paused = await here.post("/api/runs/export:1/pause", {"reason": "see https://a.example/?token=hunter2"})
        assert (paused["phase"], paused["next_look_at"], paused["deadline_at"]) == ("paused", None, None)
        assert paused["paused"]["by"] == "HTTP from 127.0.0.1"
        assert "hunter2" not in str(paused), "no text of a run has a secret in it"
        listed = (await here.get("/api/runs"))["items"][0]
        assert listed["paused"] == paused["paused"]
        why = await here.get("/api/runs/export:1/why")
        assert why["verdict"].startswith("It is paused by HTTP from 127.0.0.1")
        refused = await here.http.post("/api/runs/export:1/look-now")
        assert refused.status_code == 409
        assert "resume it first" in refused.json()["detail"]
        resumed = await here.post("/api/runs/export:1/resume")
        assert (resumed["phase"], resumed["paused"]) == ("looking", None)
        assert resumed["next_look_at"] is not None
        assert {"pause", "resume"} <= {entry[2] for entry in await _log(here)}


async def test_an_ended_run_is_neither_looked_at_nor_extended(url: str) -> None:
    async with site(example_app(url)) as here:
        await here.post("/api/runs", {"watch": "export", "id": "1", "op": {}}, 201)

        async def has_ended() -> bool:
            return bool((await here.get("/api/runs/export:1"))["phase"] == "ended")

        await until(has_ended)
        assert (await here.http.post("/api/runs/export:1/look-now")).status_code == 409
        assert (await here.http.post("/api/runs/export:1/extend", json={"looks": 5})).status_code == 409
        assert (await here.http.post("/api/runs/export:1/pause")).status_code == 409


async def test_a_queue_is_paused_and_resumed(url: str) -> None:
    async with site(example_app(url)) as here:
        paused = await here.post("/api/queues/default/pause", {"reason": "a test"})
        assert (paused["paused"]["reason"], paused["paused"]["by"]) == ("a test", "HTTP from 127.0.0.1")
        job = await here.post("/api/jobs", {"name": "audit", "args": ["x"]}, 201)
        assert "paused" in (await here.get(f"/api/jobs/{job['id']}/why"))["verdict"]
        queues = {one["name"]: one for one in (await here.get("/api/queues"))["items"]}
        assert queues["default"]["paused"]
        assert queues["default"]["oldest_due_at"]
        assert (await here.post("/api/queues/default/resume"))["paused"] is None
        assert (await here.http.post("/api/queues/default/resume")).status_code == 409

        async def is_done() -> bool:
            return bool((await here.get(f"/api/jobs/{job['id']}"))["state"] == "done")

        await until(is_done)


async def test_everything_that_an_operator_does_is_in_the_log(url: str) -> None:
    async with site(example_app(url)) as here:
        await here.post("/api/services", {"name": "shop", "target": "http://127.0.0.1:9/", "every": "1h"}, 201)
        await here.post("/api/services/shop/mute", {"span": "1h"})
        await here.post("/api/loops/refresh/pause")
        await here.post("/api/aliases", {"name": "pg", "canonical": "PostgreSQL"}, 201)
        await here.http.delete("/api/services/shop")
        by = "HTTP from 127.0.0.1"
        done = {("loop", "refresh", "pause", by), ("service", "pg", "alias", by)}
        assert done <= set(await _log(here))
        about = (await here.get("/api/log", kind="service", name="shop"))["items"]
        assert {(one["body"]["what"], one["body"]["by"]) for one in about if "what" in one["body"]} == {
            ("add", by),
            ("mute", by),
            ("cancel", by),
        }


async def _bulk(here: Site, status: int = 200, **body: Any) -> Any:
    return await here.post("/api/jobs/bulk", body, status)


async def test_a_dry_run_says_what_is_done_and_nothing_else_is_touched(url: str) -> None:
    async with site(example_app(url), works=False) as here:
        job = here.app.jobs["audit"]
        tasks = await job.enqueue_many([(str(number),) for number in range(20)])
        for task in tasks[:5]:
            await task.cancel()
        wanted = {"name": "audit"}
        dry = await _bulk(here, action="redrive", filter=wanted, dry_run=True)
        assert (dry["matched"], dry["eligible"], dry["moved"], dry["skipped"]) == (20, 5, 0, 15)
        assert dry["reasons"] == {"it has not ended: it is queued": 15}
        assert (await tasks[0].info()).state == "canceled"
        await tasks[5].cancel()
        done = await _bulk(here, action="redrive", filter=wanted, as_of=dry["as_of"])
        assert (done["moved"], done["is_done"]) == (5, True)
        states = {task.id: (await task.info()).state for task in tasks}
        assert states[tasks[5].id] == "canceled"
        assert list(states.values()).count("queued") == 19
        log = [entry for entry in await _log(here) if entry[0] == "bulk"]
        assert log == [("bulk", "redrive", "finished", "HTTP from 127.0.0.1")]


async def test_cancel_and_delete_in_batches(url: str) -> None:
    async with site(example_app(url), works=False) as here:
        tasks = await here.app.jobs["audit"].enqueue_many([(str(number),) for number in range(1_200)])
        canceled = await _bulk(here, action="cancel", filter={"state": "queued"})
        assert (canceled["matched"], canceled["moved"]) == (1_200, 1_200)
        some = [task.id for task in tasks[:700]]
        deleted = await _bulk(here, action="delete", filter={"ids": some})
        assert deleted["moved"] == 700
        assert (await here.http.get(f"/api/jobs/{some[0]}")).status_code == 404
        assert (await here.get(f"/api/jobs/{tasks[700].id}"))["state"] == "canceled"
        again = await _bulk(here, action="delete", filter={"ids": some[:5]})
        assert again["matched"] == 0


async def test_a_key_that_is_taken_is_a_reason(url: str) -> None:
    async with site(example_app(url), works=False) as here:
        job = here.app.jobs["audit"]
        first = await job.enqueue("x", key="k")
        await first.cancel()
        await job.enqueue("y", key="k")
        answer = await _bulk(here, action="redrive", filter={"state": "canceled"})
        assert answer["reasons"] == {"another task has its key": 1}


async def test_an_order_without_a_filter_is_refused(url: str) -> None:
    async with site(example_app(url), works=False) as here:
        for body in (
            {"action": "delete", "filter": {}},
            {"action": "delete", "filter": {"q": ""}},
            {"action": "delete", "filter": {"q": "args.", "name": "", "queue": "", "error": ""}},
            {"action": "delete", "filter": {"ids": [1], "state": "done"}},
            {"action": "delete", "filter": {"ids": [-1]}},
            {"action": "explode", "filter": {"state": "done"}},
            {"action": "delete", "filter": {"state": "done"}, "as_of": "2020-01-01T00:00:00"},
        ):
            assert (await here.http.post("/api/jobs/bulk", json=body)).status_code == 422, body


async def test_an_order_touches_what_the_list_shows(url: str) -> None:
    """The text of a filter means the same in both, as the dashboard writes it: `args.` in front of a member."""
    async with site(example_app(url), works=False) as here:
        for address in ("a", "b"):
            await here.post("/api/jobs", {"name": "audit", "kwargs": {"url": address}}, 201)
        listed = (await here.get("/api/jobs", q="args.url:a"))["items"]
        assert [one["kwargs"]["url"] for one in listed] == ["a"]
        done = await _bulk(here, action="cancel", filter={"q": "args.url:a"})
        assert (done["matched"], done["moved"]) == (1, 1)
        assert (await here.get(f"/api/jobs/{listed[0]['id']}"))["state"] == "canceled"


async def test_failed_jobs_are_grouped_by_cause(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    app = example_app(url)

    @app.job(retry=Retry(1))
    async def breaks() -> None:
        raise ValueError("it never works")

    async with site(app) as here:
        jobs = [await here.post("/api/jobs", {"name": "breaks"}, 201) for _ in range(3)]

        async def have_failed() -> bool:
            return all([(await here.get(f"/api/jobs/{one['id']}"))["state"] == "failed" for one in jobs])

        await until(have_failed)
        answer = await here.get("/api/jobs/causes", name="breaks")
        assert not answer["is_capped"]
        [cause] = answer["items"]
        assert (cause["name"], cause["count"]) == ("breaks", 3)
        assert sorted(cause["examples"]) == sorted(one["id"] for one in jobs)
        assert (await here.get("/api/jobs/causes", name="other"))["items"] == []
        monkeypatch.setattr(causes_routes, "SEARCHED", 2)
        bounded = await here.get("/api/jobs/causes")
        assert (bounded["is_capped"], bounded["searched"], bounded["items"][0]["count"]) == (True, 2, 2)


async def test_a_bulk_that_takes_long_goes_on_and_tells_how_far_it_is(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer comes before the end: it has the id under which the events tell the rest."""
    monkeypatch.setattr(bulk_routes, "WAIT_S", 0.0)
    async with site(example_app(url), works=False) as here:
        await here.app.jobs["audit"].enqueue_many([(str(number),) for number in range(1_200)])
        going = await _bulk(here, 202, action="cancel", filter={"name": "audit"})
        assert not going["is_done"]

        async def finished() -> Any:
            log = (await here.get("/api/log", kind="bulk", key=going["id"]))["items"]
            return log if log and log[0]["body"]["what"] == "finished" else None

        log = await until(finished)
        assert len(log) > 1, "the end is not the first that is told"
        moved = [one["body"]["moved"] for one in reversed(log)]
        assert moved == sorted(moved)
        assert moved[-1] == 1_200
        assert (await here.get("/api/jobs", state="queued"))["items"] == []


async def test_a_server_without_an_app_operates_what_others_run(url: str) -> None:
    app = example_app(url)
    async with site(app), site(Everpoll(url), works=False, alone=True) as bare:
        await app.watches["export"].begin({"never": True}, id="1")
        assert (await bare.post("/api/runs/export:1/extend", {"looks": 5}))["budget_looks"] == 125
        await bare.post("/api/runs/export:1/look-now")
        assert (await bare.post("/api/services/billing/mute", {"span": "1h"}))["muted_until"]
        assert (await bare.post("/api/services", {"name": "shop", "target": "http://127.0.0.1:9/"}, 201))[
            "name"
        ] == "shop"
        assert (await bare.post("/api/queues/default/pause", {"reason": "test"}))["paused"]["reason"] == "test"
        assert (await bare.post("/api/queues/default/resume"))["paused"] is None
        refused = await bare.http.post("/api/jobs", json={"name": "audit", "args": ["x"]})
        assert refused.status_code in {409, 422}, "it starts no new work"
