"""Jobs over HTTP: started, listed, shown, explained, canceled, retried; nothing is lost on the way."""

import json
from typing import Any

from everpoll import Everpoll
from everpoll.stores.contract import NewTask, encode
from everpoll.testing import drain
from server.site import Site, example_app, site, until

LARGE = 9007199254740993


async def _ended(here: Site, job: dict[str, Any]) -> Any:
    async def look() -> Any:
        shown = await here.get(f"/api/jobs/{job['id']}")
        return shown if shown["ended_at"] else None

    return await until(look)


async def test_a_job_is_started_and_shows_its_result(url: str) -> None:
    async with site(example_app(url)) as here:
        body = {"name": "audit", "args": ["https://example.com"], "kwargs": {"depth": 2}, "priority": 5}
        job = await here.post("/api/jobs", body, 201)
        assert (job["name"], job["args"], job["kwargs"], job["priority"]) == ("audit", body["args"], {"depth": 2}, 5)
        shown = await _ended(here, job)
        assert shown["state"] == "done"
        assert shown["result"] == {"url": "https://example.com", "depth": 2}
        assert shown["attempt"] == 1
        assert shown["worker"]
        assert "done" in (await here.get(f"/api/jobs/{job['id']}/why"))["verdict"]


async def test_a_key_that_a_live_task_has_answers_with_that_task(url: str) -> None:
    async with site(example_app(url)) as here:
        body = {"name": "audit", "args": ["x"], "key": "once", "delay": "1h"}
        first = await here.post("/api/jobs", body, 201)
        again = await here.post("/api/jobs", body, 200)
        assert first["id"] == again["id"]


async def test_a_failed_job_shows_its_errors_and_is_retried(url: str) -> None:
    async with site(example_app(url)) as here:
        job = await here.post("/api/jobs", {"name": "broken", "kwargs": {"password": "hunter2"}}, 201)

        async def failed_once() -> Any:
            shown = await here.get(f"/api/jobs/{job['id']}")
            return shown if shown["errors"] else None

        shown = await until(failed_once)
        assert shown["errors"][0]["type"] == "ValueError"
        assert "it never works" in shown["errors"][0]["traceback"]
        assert shown["kwargs"] == {"password": "***"}
        await here.post(f"/api/jobs/{job['id']}/cancel", {"reason": "in vain"})
        ended = await _ended(here, job)
        assert ended["state"] == "canceled"
        assert [entry for entry in ended["trail"] if entry.get("why") == "in vain"]
        retried = await here.post(f"/api/jobs/{job['id']}/retry")
        assert retried["state"] in {"queued", "running"}


async def test_a_running_job_is_asked_to_end(url: str) -> None:
    async with site(example_app(url)) as here:
        job = await here.post("/api/jobs", {"name": "wait"}, 201)

        async def runs() -> bool:
            return bool((await here.get(f"/api/jobs/{job['id']}"))["state"] == "running")

        await until(runs)
        asked = await here.post(f"/api/jobs/{job['id']}/cancel")
        assert asked["cancel_requested"] or asked["state"] == "canceled"
        assert (await _ended(here, job))["state"] == "canceled"


async def test_integers_beyond_two_to_the_53rd_are_strings(url: str) -> None:
    async with site(example_app(url), works=False) as here:
        args = [{"large": LARGE, "least": -LARGE, "edge": 2**53, "text": f"id {LARGE}", "list": [LARGE]}]
        store = await here.app.store()
        [made] = await store.enqueue([NewTask(name="audit", args=encode({"args": args, "kwargs": {}}), delay_s=3600)])
        detail = await here.get(f"/api/jobs/{made.id}")
        assert detail["exact"].keys() == {"args"}
        assert json.loads(detail["exact"]["args"]) == args, "as numbers, for clients that read them exactly"
        shown = detail["args"][0]
        assert shown == {
            "large": str(LARGE),
            "least": str(-LARGE),
            "edge": 2**53,
            "text": f"id {LARGE}",
            "list": [str(LARGE)],
        }


async def test_a_job_that_a_schedule_enqueued_shows_its_slot(url: str) -> None:
    async with site(example_app(url), works=False) as here:
        store = await here.app.store()
        times = (1_767_229_200.0, None, 1e300, "foreign")
        calls = [{"args": ["x"], "kwargs": {}} | ({} if time is None else {"scheduled_for": time}) for time in times]
        tasks = [NewTask(name="audit", args=encode(call), delay_s=3600) for call in calls]
        shown = [await here.get(f"/api/jobs/{made.id}") for made in await store.enqueue(tasks)]
        assert [one["scheduled_for"] for one in shown] == ["2026-01-01T01:00:00Z", None, None, None]
        listed = (await here.get("/api/jobs"))["items"]
        assert {one["scheduled_for"] for one in listed} == {"2026-01-01T01:00:00Z", None}


async def test_what_has_not_changed_is_not_sent_again(url: str) -> None:
    async with site(example_app(url), works=False) as here:
        job = await here.post("/api/jobs", {"name": "audit", "args": ["x"], "delay": "1h"}, 201)
        tag = (await here.http.get("/api/jobs")).headers["etag"]
        for path in ("/api/jobs", f"/api/jobs/{job['id']}", "/api/queues", "/api/services", "/openapi.json"):
            first = await here.http.get(path)
            again = await here.http.get(path, headers={"If-None-Match": first.headers["etag"]})
            assert (again.status_code, again.content) == (304, b""), path
        await here.post(f"/api/jobs/{job['id']}/cancel")
        assert (await here.http.get("/api/jobs", headers={"If-None-Match": tag})).status_code == 200


async def test_a_server_without_an_app_starts_nothing_and_does_the_rest(url: str) -> None:
    owner = example_app(url)
    task = await owner.jobs["audit"].enqueue("x", delay="1h")
    async with site(Everpoll(url), works=False, alone=True) as here:
        assert (await here.http.post("/api/jobs", json={"name": "audit", "args": ["x"]})).status_code == 409
        assert (await here.http.post("/api/runs", json={"watch": "export", "op": {}})).status_code == 409
        assert [one["id"] for one in (await here.get("/api/jobs"))["items"]] == [task.id]
        assert (await here.post(f"/api/jobs/{task.id}/cancel"))["state"] == "canceled"
    await owner.close()


async def test_a_taken_key_is_a_conflict_that_names_its_holder(url: str) -> None:
    async with site(example_app(url)) as here:
        body = {"name": "audit", "args": ["x"], "key": "once", "delay": "1h"}
        first = await here.post("/api/jobs", body, 201)
        problem = await here.post("/api/jobs", body | {"on_conflict": "reject"}, 409)
        assert problem["holder"] == first["id"]
        assert "has the key 'once'" in problem["detail"]
        replaced = await here.post("/api/jobs", body | {"args": ["y"], "on_conflict": "replace"}, 200)
        assert (replaced["id"], replaced["args"]) == (first["id"], ["y"])
        problem = await here.post("/api/jobs", body | {"on_conflict": "ignore"}, 422)
        assert problem["argument"] == "on_conflict"
        problem = await here.post("/api/jobs", body | {"unique_for": "soon"}, 422)
        assert problem["argument"] == "unique_for"


async def test_groups_and_their_callbacks_show_how_many_members_have_ended(url: str) -> None:
    """A group without a callback has a page, since the jobs of the group lead to it; it takes no orders."""
    app = Everpoll(url)

    @app.job()
    async def fetch(number: int) -> int:
        return number

    @app.job()
    async def report(group: object) -> None: ...

    async with site(app, works=False) as here:
        later = fetch.options(delay="1h").call(2)
        plain = await app.group([fetch.call(1), later]).enqueue()
        called = await app.group([fetch.call(1), later]).then(report).enqueue()
        await drain(app)
        for group in (plain, called):
            shown = await here.get(f"/api/jobs/{group.id}")
            states = {"queued": 1, "running": 0, "done": 1, "failed": 0, "canceled": 0}
            assert shown["members"] == states | {"total": 2, "ended": 1}
            member = await here.get(f"/api/jobs/{shown['waits_for'][0]['id']}")
            assert (member["then_id"], member["members"]) == (group.id, None)
            verdict = (await here.get(f"/api/jobs/{group.id}/why"))["verdict"]
            assert verdict == "It waits for 1 of 2 tasks of its group."
        await here.post(f"/api/jobs/{plain.id}/run-now", {}, 404)


async def test_a_job_shows_the_version_of_its_arguments(url: str) -> None:
    app = Everpoll(url)

    @app.job(version=3)
    async def buy(number: int) -> None: ...

    async with site(app, works=False) as here:
        task = await buy.enqueue(1)
        assert (await here.get(f"/api/jobs/{task.id}"))["version"] == 3
        assert (await task.info()).version == 3
        await drain(app)
        assert (await here.get(f"/api/jobs/{task.id}"))["version"] == 3


async def test_jobs_of_chains_show_what_they_wait_for_and_what_waits_for_them(url: str) -> None:
    app = Everpoll(url)

    @app.job()
    async def fetch(page: str) -> str:
        return f"{page}!"

    async with site(app, works=False) as here:
        last = await fetch.call("a").then(fetch).enqueue()
        shown = await here.get(f"/api/jobs/{last.id}")
        assert (shown["state"], shown["blockers"], shown["takes"], shown["then_id"]) == ("queued", 1, "result", None)
        (first,) = shown["waits_for"]
        assert (first["name"], first["state"]) == ("fetch", "queued")
        before = await here.get(f"/api/jobs/{first['id']}")
        assert (before["then_id"], before["waits_for"], before["blockers"]) == (last.id, [], 0)
        verdict = (await here.get(f"/api/jobs/{last.id}/why"))["verdict"]
        assert verdict == f"It waits for task {first['id']} (fetch), which is queued."
        await here.post(f"/api/jobs/{last.id}/run-now", {}, 409)
        await drain(app)
        shown = await here.get(f"/api/jobs/{last.id}")
        assert (shown["result"], shown["args"]) == ("a!!", ["a!"])
