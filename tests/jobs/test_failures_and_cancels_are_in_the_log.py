"""Each failed attempt and each cancel is an event in the feed, written as it settles. What is done writes none."""

import asyncio
from collections.abc import Callable
from typing import Any

from everpoll import Backoff, Cancel, Everpoll, Retry
from everpoll.stores.contract import Event, NewTask, Store
from jobs.jobs_stage import LIMIT_S, ended, soon

QUICK = Retry(2, Backoff("5ms", factor=1, jitter=0))


async def feed(app: Everpoll) -> list[Event]:
    return list((await (await app.store()).events("0")).events)


def reported(events: list[Event]) -> list[tuple[int, dict[str, Any]]]:
    return [(one.task_id, one.body) for one in events]


async def test_what_is_done_writes_nothing_and_each_failure_one_event(app: Everpoll) -> None:
    @app.job(retry=QUICK)
    async def fails() -> None:
        raise LookupError("\N{SNOWMAN}" * 1_000)

    @app.job()
    async def works() -> int:
        return 1

    async with app:
        assert await (await works.enqueue()).result(timeout=LIMIT_S) == 1
        task = await fails.enqueue()
        info = await ended(task)
        found = await feed(app)
    assert info.state == "failed"
    assert [(one.kind, one.name, one.task_id) for one in found] == [("job", "fails", task.id)] * 2
    assert [one.seq for one in found] == [1, 2], "the numbers of its leases"
    assert [(one.body["what"], one.body["attempt"], one.body["type"]) for one in found] == [
        ("retry", 1, "LookupError"),
        ("failed", 2, "LookupError"),
    ]
    assert found[1].body["why"] == "attempt 2 of 2 failed"
    for one in found:
        assert "traceback" not in one.body
        assert 0 < len(one.body["error"].encode()) <= 500


async def test_cancels_from_inside_and_outside_are_told(app: Everpoll) -> None:
    began = asyncio.Event()

    @app.job()
    async def gives_up() -> Cancel:
        return Cancel("no longer needed")

    @app.job()
    async def hangs() -> None:
        began.set()
        await asyncio.sleep(LIMIT_S)

    async with app:
        inside = await gives_up.enqueue()
        await ended(inside)
        outside = await hangs.enqueue()
        await soon(began)
        await outside.cancel("enough", by="ops")
        await ended(outside)
        found = reported(await feed(app))
    assert found == [
        (inside.id, {"what": "canceled", "attempt": 1, "why": "no longer needed"}),
        (outside.id, {"what": "cancel", "by": "ops", "why": "enough", "state": "running"}),
        (outside.id, {"what": "canceled", "attempt": 1, "why": "canceled while running"}),
    ]


async def test_a_retry_by_hand_is_told_with_its_actor(app: Everpoll) -> None:
    @app.job(retry=Retry(1))
    async def fails() -> None:
        raise LookupError("no")

    async with app:
        task = await fails.enqueue()
        await ended(task)
    assert await task.retry(by="ops")
    bodies = [body for _, body in reported(await feed(app))]
    assert bodies[1] == {"what": "retry", "by": "ops", "why": "retried by hand"}
    await app.close()


async def test_a_job_that_no_worker_knows_tells_that_it_failed(another_store: Callable[[], Store]) -> None:
    app = Everpoll(another_store(), unknown=0)

    @app.job()
    async def known() -> None: ...

    async with app:
        [answer] = await (await app.store()).enqueue([NewTask(name="unknown", args='{"args":[],"kwargs":{}}')])
        await ended(app.task(answer.id))
        [event] = await feed(app)
    assert (event.task_id, event.body["what"], event.body["type"]) == (answer.id, "failed", "JobNotFound")
