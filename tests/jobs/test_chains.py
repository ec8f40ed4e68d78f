"""Chains: jobs that run one after the other, each with the result of the one before, enqueued as a whole."""

import asyncio
from typing import Any

import pytest
from msgspec import Struct

from everpoll import Backoff, BadInput, Cancel, Everpoll, JobCanceled, KeyTaken, Retry, Task
from everpoll.stores.contract import NewTask, TaskFilter
from everpoll.testing import drain
from jobs.jobs_stage import LIMIT_S, ended


async def test_each_job_gets_the_result_of_the_one_before_and_the_extra_arguments(app: Everpoll) -> None:
    @app.job()
    async def fetch(url: str) -> dict[str, Any]:
        return {"url": url, "rows": [1, 2]}

    @app.job()
    def parse(page: dict[str, Any], *, factor: int = 1) -> list[int]:
        return [row * factor for row in page["rows"]]

    @app.job(queue="slow")
    async def store(task: Task, rows: list[int], where: int) -> str:
        return f"{rows} in {where} at attempt {task.attempt}"

    async with app:
        # Type checkers know the whole signature: what comes later is missing for them.
        tripled = parse.call(factor=3)  # type: ignore[call-arg]
        last = await fetch.call("a").then(tripled).then(store, 7).enqueue()
        assert await last.result(LIMIT_S) == "[3, 6] in 7 at attempt 1"
        plain = await fetch.call("b").enqueue()
        assert await plain.result(LIMIT_S) == {"url": "b", "rows": [1, 2]}
        urgent: Any = store.options(priority=5)
        nothing = await urgent.call([1], 2).then(fetch).enqueue()
        assert (await nothing.result(LIMIT_S))["url"] == "[1] in 2 at attempt 1"


async def test_results_are_converted_to_what_the_next_job_is_annotated_with(app: Everpoll) -> None:
    class Page(Struct):
        size: int

    @app.job()
    async def fetch() -> Page:
        return Page(4)

    @app.job()
    async def parse(page: Page) -> int:
        return page.size + 1

    async with app:
        task = await fetch.call().then(parse).enqueue()
        assert await task.result(LIMIT_S) == 5


async def test_a_failure_cancels_the_rest_and_is_named_there(app: Everpoll) -> None:
    ran: list[str] = []

    @app.job(retry=Retry(1))
    async def fetch() -> None:
        raise ValueError("no such page")

    @app.job()
    async def parse(page: None) -> None:
        ran.append("parse")

    @app.job()
    async def store(page: None) -> None:
        ran.append("store")

    async with app:
        task = await fetch.call().then(parse).then(store).enqueue()
        with pytest.raises(JobCanceled, match=r"task \d+ \(fetch\), which comes before it, failed"):
            await task.result(LIMIT_S)
    assert ran == []


async def test_a_job_that_cancels_itself_cancels_the_rest(app: Everpoll) -> None:
    @app.job()
    async def fetch() -> Cancel:
        return Cancel("nothing new")

    @app.job()
    async def parse(page: None) -> None: ...

    async with app:
        task = await fetch.call().then(parse).enqueue()
        assert "(fetch), which comes before it, was canceled" in (await ended(task)).cancel_reason


async def test_a_retry_on_the_way_only_delays_the_rest(app: Everpoll) -> None:
    @app.job(retry=Retry(3, Backoff("1ms", jitter=0)))
    async def fetch(task: Task) -> int:
        if task.attempt < 3:
            raise ValueError("not yet")
        return task.attempt

    @app.job()
    async def parse(attempts: int) -> int:
        return attempts * 10

    async with app:
        start: Any = fetch
        task = await start.call().then(parse).enqueue()
        assert await task.result(LIMIT_S) == 30


async def test_a_chain_whose_failed_job_is_retried_goes_on_by_hand(app: Everpoll) -> None:
    is_broken = True

    @app.job(retry=Retry(1))
    async def fetch() -> int:
        if is_broken:
            raise ValueError("no")
        return 2

    @app.job(retry=Retry(1))
    async def parse(page: int) -> int:
        return page + 1

    async with app:
        task = await fetch.call().then(parse).enqueue()
        info = await ended(task)
        assert await task.retry()
        info = await ended(task)
        assert "takes the result of the task before it" in info.errors[-1]["error"]
        is_broken = False
        first = app.task(int(info.trail[0]["cause"]))
        assert await first.retry()
        assert await first.result(LIMIT_S) == 2
        assert await task.retry()
        assert await task.result(LIMIT_S) == 3


async def test_what_cannot_be_called_is_refused_and_nothing_is_enqueued(app: Everpoll) -> None:
    @app.job()
    async def fetch(url: str) -> None: ...

    @app.job()
    async def nothing() -> None: ...

    @app.job(concurrency=1, per="tenant")
    async def per_tenant(tenant: str, size: int = 0) -> None: ...

    @app.job(key=lambda url: f"k:{url}")
    async def keyed(url: str) -> None: ...

    start = fetch.call("a")
    with pytest.raises(BadInput, match=r"job 'fetch'.*too many positional"):
        await start.then(fetch, "b").enqueue()
    with pytest.raises(
        BadInput, match=r"it is called as per_tenant\(size.*, and 'tenant' comes from the task before it"
    ):
        await start.then(per_tenant, 1, 2).enqueue()
    with pytest.raises(BadInput, match="job 'nothing' takes no argument by position"):
        await start.then(nothing).enqueue()
    with pytest.raises(BadInput, match="job 'per_tenant': per= needs its first argument"):
        await start.then(per_tenant).enqueue()
    with pytest.raises(BadInput, match="job 'keyed': its key= needs its first argument"):
        await start.then(keyed).enqueue()
    with pytest.raises(BadInput, match="is not a job"):
        start.then(print)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="has its arguments"):
        start.then(fetch.call("b"), 3)
    with pytest.raises(BadInput, match="on_conflict= is not for tasks of chains"):
        await fetch.options(key="k", on_conflict="replace").call("a").then(fetch).enqueue()
    with pytest.raises(BadInput, match=r"must be JSON"):
        await start.then(per_tenant.call(size=object())).enqueue()  # type: ignore[call-arg, arg-type]
    store = await app.store()
    assert (await store.tasks(TaskFilter())).tasks == ()
    task = await start.then(keyed.options(key="mine").call()).enqueue()  # type: ignore[call-arg]
    assert (await task.info()).key == "mine"
    await app.close()


async def test_a_key_that_is_taken_refuses_the_whole_chain_and_names_the_task(app: Everpoll) -> None:
    @app.job()
    async def fetch(url: str) -> None: ...

    holder = await fetch.enqueue("a", key="k", delay="1h")
    with pytest.raises(
        KeyTaken, match=f"job 'fetch': task {holder.id} has the key 'k'; nothing of the chain"
    ) as raised:
        await fetch.call("a").then(fetch.options(key="k").call()).enqueue()  # type: ignore[call-arg]
    assert raised.value.task.id == holder.id
    store = await app.store()
    assert [one.id for one in (await store.tasks(TaskFilter())).tasks] == [holder.id]
    await app.close()


async def test_a_job_that_waits_for_another_is_not_run_by_hand(app: Everpoll) -> None:
    @app.job()
    async def fetch(url: str) -> None: ...

    task = await fetch.options(delay="1h").call("a").then(fetch).enqueue()
    info = await task.info()
    assert (info.state, info.blockers, info.takes) == ("queued", 1, "result")
    with pytest.raises(Exception, match=rf"task {task.id} cannot be run now: it waits for 1 other task"):
        await task.run_now()
    await app.close()


async def test_a_call_that_another_program_wrote_in_its_own_order_is_no_part_of_a_chain(app: Everpoll) -> None:
    @app.job()
    async def add(a: int, b: int) -> int:
        return a + b

    store = await app.store()
    texts = ['{"kwargs": {"b": 2}, "args": [1]}', ' { "args" : [1, 2] } ']
    answers = await store.enqueue([NewTask(name="add", args=text) for text in texts])
    await drain(app)
    assert [(await app.task(one.id).info()).result for one in answers] == [3, 3]
    await app.close()


async def test_a_chain_drains(app: Everpoll) -> None:
    @app.job()
    async def count(number: int) -> int:
        return number + 1

    chain = count.call(0).then(count)
    for _ in range(20):
        chain = chain.then(count)
    task = await chain.enqueue()
    await drain(app)
    assert (await task.info()).result == 22
    await app.close()


def test_a_chain_is_enqueued_without_an_event_loop(tmp_path: Any) -> None:
    app = Everpoll(f"sqlite:///{tmp_path}/flows.db")

    @app.job()
    def add(a: int, b: int) -> int:
        return a + b

    task = add.call(1, 2).then(add, 10).sync.enqueue()
    lone = add.options(delay="1h").call(3, 4).sync.enqueue()
    asyncio.run(_worked(app, task.id))
    assert task.result("20s") == 13
    assert task.info().state == "done"
    assert lone.info().due_at > lone.info().created_at
    app.sync.close()


async def _worked(app: Everpoll, task_id: int) -> None:
    async with app:
        await ended(app.task(task_id))
