"""A job whose name a worker has not registered waits for one that has, holds up no other, and fails in the end."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from everpoll import Everpoll
from everpoll.engine.unregistered import set_aside_since
from everpoll.engine.why import why
from everpoll.stores.contract import NewTask, Store, TaskInfo
from everpoll.testing import drain
from jobs.jobs_stage import LIMIT_S, ended
from stores.backends import Backend, backend_names
from stores.conftest import made
from worker_processes import WorkerProcess, story_of

POSTGRES = next(name for name in backend_names() if name.startswith("postgres"))
Another = Callable[[], Store]
CALLS = '{"args":[],"kwargs":{}}'
ORDERS = '{"args":[1],"kwargs":{}}'


def app_with(store: Store, *names: str, unknown: str | float = "1h") -> Everpoll:
    """An app that registers these jobs."""
    app = Everpoll(store, unknown=unknown)
    for name in names:

        async def run() -> str:
            return "done"

        app.job(name=name)(run)
    return app


async def put(app: Everpoll, name: str, how_many: int = 1) -> list[int]:
    """Enqueue jobs that the app need not know."""
    store = await app.store()
    return [one.id for one in await store.enqueue([NewTask(name=name, args=CALLS)] * how_many)]


async def set_aside(app: Everpoll, task_id: int) -> TaskInfo:
    """The task, once a worker has set it aside."""
    async with asyncio.timeout(LIMIT_S):
        while not (info := await app.task(task_id).info()).trail:  # noqa: ASYNC110 - a worker does it
            await asyncio.sleep(0.01)
    return info


async def test_a_job_of_an_unknown_name_waits_and_a_worker_that_starts_later_runs_it(another_store: Another) -> None:
    old, new = app_with(another_store(), "bill"), app_with(another_store(), "bill", "greet")
    [task_id] = await put(old, "greet")
    await drain(old)
    info = await old.task(task_id).info()
    assert (info.state, info.attempt, info.errors) == ("queued", 0, ())
    async with new:
        assert await new.task(task_id).result(timeout=LIMIT_S) == "done"
        info = await new.task(task_id).info()
    assert (info.attempt, [one["what"] for one in info.trail]) == (1, ["set-aside"])
    await old.close()


async def test_a_worker_that_runs_already_gets_what_another_set_aside(another_store: Another) -> None:
    """No task waits for its next turn, 30 s later: each one is asked for."""
    old, new = app_with(another_store(), "bill"), app_with(another_store(), "bill", "greet")
    async with old, new:
        ids = await put(old, "greet", 100)
        async with asyncio.timeout(LIMIT_S):
            results = [await new.task(one).result() for one in ids]
    assert results == ["done"] * 100


async def test_a_worker_reaches_its_own_jobs_behind_many_that_it_does_not_know(another_store: Another) -> None:
    old = app_with(another_store(), "bill")
    strange = await put(old, "greet", 1_000)
    [mine] = await put(old, "bill")
    async with old:
        assert await old.task(mine).result(timeout=LIMIT_S) == "done"
        assert (await old.task(strange[0]).info()).state == "queued"


async def test_each_unknown_name_is_warned_of_once(another_store: Another, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "everpoll")
    old = app_with(another_store(), "bill")
    for name in ("greet", "greet", "thank"):
        await put(old, name, 3)
    await drain(old)
    await old.close()
    warned = sorted(one.getMessage() for one in caplog.records if "is registered in this worker" in one.getMessage())
    assert len(warned) == 2
    assert "no job called 'greet' is registered in this worker; registered: bill. Its tasks wait" in warned[0]
    assert "no job called 'thank'" in warned[1]


async def test_a_name_that_no_live_worker_knows_fails_after_unknown(another_store: Another) -> None:
    old = app_with(another_store(), "bill", unknown=0.3)
    [task_id] = await put(old, "greet")
    async with old:
        info = await ended(old.task(task_id))
    assert (info.state, info.errors[0]["type"]) == ("failed", "JobNotFound")
    assert "it waited 300ms for a worker that registers it" in info.errors[0]["error"]
    assert info.trail[0]["what"] == "set-aside"


async def test_a_name_that_a_live_worker_knows_never_fails(another_store: Another) -> None:
    """The worker that knows it is busy: others only hand the task on."""
    old, new = app_with(another_store(), "bill", unknown=0), Everpoll(another_store(), slots=1, unknown=0)
    begun, go_on = asyncio.Event(), asyncio.Event()

    @new.job()
    async def greet() -> str:
        begun.set()
        await go_on.wait()
        return "done"

    async with new:
        await greet.enqueue()
        async with asyncio.timeout(LIMIT_S):
            await begun.wait()
        second = await greet.enqueue()
        async with old:
            info = await set_aside(old, second.id)
            assert (info.state, info.trail[-1]["fails_at"]) == ("queued", None)
            go_on.set()
            assert await second.result(timeout=LIMIT_S) == "done"


async def test_why_names_the_missing_registration_and_when_it_fails(another_store: Another) -> None:
    old = app_with(another_store(), "bill")
    [task_id] = await put(old, "greet")
    async with old:
        info = await set_aside(old, task_id)
        store = await old.store()
        answer = why(info, await store.workers(), await store.queues(), [], info.created_at)
    assert answer.verdict.startswith("It waits for a worker of queue 'default' that registers 'greet', since ")
    assert "; it fails in " in answer.verdict
    assert any("registers bill" in one for one in answer.evidence)


async def test_the_doctor_names_jobs_that_no_live_worker_registers(another_store: Another) -> None:
    old = app_with(another_store(), "bill")
    [task_id] = await put(old, "greet")
    async with old:
        await set_aside(old, task_id)
        found = {one.name: one for one in (await old.doctor()).checks}["names"]
    assert found.level == "warning"
    assert "no live worker of queue 'default' registers 'greet': 1 due task" in found.says


async def test_a_job_that_was_retried_by_hand_waits_anew(another_store: Another) -> None:
    old = app_with(another_store(), "bill", unknown=0)
    [task_id] = await put(old, "greet")
    async with old:
        await ended(old.task(task_id))
    later = app_with(another_store(), "bill")
    assert await later.task(task_id).retry()
    await drain(later)
    info = await later.task(task_id).info()
    assert info.state == "queued"
    assert set_aside_since(info, 0.0) > 0
    await later.close()


@pytest.fixture(params=["sqlite", POSTGRES])
def place(request: pytest.FixtureRequest, runner: asyncio.Runner, tmp_path: Path) -> Iterator[Backend]:
    """A database that several processes share."""
    with made(request, runner, tmp_path, migrated=True) as place:
        yield place


def test_a_rolling_deployment_loses_nothing(place: Backend, tmp_path: Path, runner: asyncio.Runner) -> None:
    """Two processes of different releases: jobs that only the newer one knows, enqueued before it starts and after."""
    runner.run(_deploy(place, tmp_path))


async def _deploy(backend: Backend, folder: Path) -> None:
    caller = app_with(backend.store(), "bill", "greet")
    workers: list[WorkerProcess] = []

    def start(release: str) -> None:
        env = {"EVERPOLL_URL": str(backend.url), "RELEASE": release}
        workers.append(WorkerProcess(release, folder, env, "jobs.releases:app", "5s"))

    try:
        store = await caller.store()
        start("old")
        tasks = [NewTask(name=name, args=ORDERS) for name in ("bill", "greet") for _ in range(50)]
        before = await store.enqueue(tasks)
        async with asyncio.timeout(90):
            await asyncio.gather(*(caller.task(one.id).result() for one in before[:50]))
            start("new")
            after = await store.enqueue(tasks)
            results = await asyncio.gather(*(caller.task(one.id).result() for one in [*before, *after]))
        assert sorted(set(results)) == ["billed 1", "greeted 1"]
        assert results.count("greeted 1") == 100
    except TimeoutError:
        raise AssertionError(story_of(workers)) from None
    finally:
        for worker in workers:
            worker.kill()
        await caller.close()
