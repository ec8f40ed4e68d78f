"""Enqueueing and running: every job once, in the order of priority and age, at its time, under its key."""

import asyncio
import contextvars
import threading
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pytest

from everpoll import BadInput, Everpoll, JobNotFound, KeyTaken, Task
from jobs.jobs_stage import LIMIT_S, counted, ended


async def test_an_async_job_runs_and_its_result_is_read(app: Everpoll) -> None:
    @app.job()
    async def double(number: int) -> int:
        await asyncio.sleep(0)
        return number * 2

    async with app:
        task = await double.enqueue(21)
        assert task.is_new
        assert await task.result(timeout=LIMIT_S) == 42
        info = await task.info()
    assert (info.name, info.queue, info.state, info.attempt, info.errors) == ("double", "default", "done", 1, ())
    assert info.started_at is not None
    assert info.ended_at is not None
    assert info.started_at <= info.ended_at
    assert info.worker == app.worker_options.label
    assert await double(4) == 8  # called directly, it is the function


async def test_a_plain_function_runs_in_a_thread_beside_others(app: Everpoll) -> None:
    together = threading.Barrier(3)

    @app.job()
    def meet(name: str) -> list[str]:
        together.wait(LIMIT_S)
        return [name, threading.current_thread().name]

    async with app:
        tasks = await meet.enqueue_many([("a",), ("b",), ("c",)])
        results = [await task.result(timeout=LIMIT_S) for task in tasks]
    assert [name for name, _ in results] == ["a", "b", "c"]
    assert len({thread for _, thread in results} - {threading.current_thread().name}) == 3


async def test_a_plain_function_that_returns_a_coroutine_is_awaited(app: Everpoll) -> None:
    async def real(number: int) -> int:
        return number + 1

    @app.job(name="wrapped")
    def wrapped(number: int) -> Any:
        return real(number)

    async with app:
        assert await (await wrapped.enqueue(1)).result(timeout=LIMIT_S) == 2


async def test_higher_priority_first_then_oldest_first(app: Everpoll) -> None:
    order: list[str] = []

    @app.job(priority=5)
    async def note(name: str) -> None:
        order.append(name)

    app.worker_options = type(app.worker_options)(slots=1)
    for name, priority in (("old", 5), ("low", -3), ("high", 10), ("young", None)):
        await note.enqueue(name, **({} if priority is None else {"priority": priority}))
    async with app:
        last = await note.enqueue("last", priority=-10)
        await last.result(timeout=LIMIT_S)
    assert order == ["high", "old", "young", "low", "last"]


async def test_a_delayed_job_waits_and_says_until_when(app: Everpoll) -> None:
    ran: list[str] = []

    @app.job()
    async def note(name: str) -> None:
        ran.append(name)

    async with app:
        later = await note.enqueue("later", delay="10m")
        soon = await note.enqueue("soon", delay="50ms")
        await (await note.enqueue("now")).result(timeout=LIMIT_S)
        await soon.result(timeout=LIMIT_S)
        info = await later.info()
        soon_info = await soon.info()
    assert sorted(ran) == ["now", "soon"]
    assert (info.state, info.attempt) == ("queued", 0)
    assert (info.due_at - info.created_at).total_seconds() == pytest.approx(600, abs=0.01)
    assert soon_info.started_at is not None
    assert soon_info.started_at >= soon_info.due_at


async def test_a_key_has_one_live_task_and_is_free_again_when_that_has_ended(app: Everpoll) -> None:
    ran: list[int] = []

    @app.job()
    async def audit(number: int) -> int:
        ran.append(number)
        return number

    first = await audit.enqueue(1, key="audit:example.com")
    again = await audit.enqueue(2, key="audit:example.com")
    other = await audit.enqueue(3, key="audit:example.org")
    assert (first.is_new, again.is_new, other.is_new) == (True, False, True)
    assert again.id == first.id
    async with app:
        assert await again.result(timeout=LIMIT_S) == 1
        assert await other.result(timeout=LIMIT_S) == 3
        fresh = await audit.enqueue(4, key="audit:example.com")
        assert fresh.is_new
        assert await fresh.result(timeout=LIMIT_S) == 4
        assert (await fresh.info()).key == "audit:example.com"
    assert sorted(ran) == [1, 3, 4]


async def test_enqueue_many_is_one_statement_in_order_and_an_empty_list_is_fine(app: Everpoll) -> None:
    seen: list[int] = []

    @app.job()
    async def note(number: int) -> None:
        seen.append(number)

    app.worker_options = type(app.worker_options)(slots=1)
    calls = counted(app, "enqueue")
    assert await note.enqueue_many([]) == []
    tasks = await note.enqueue_many(((number,) for number in range(50)), priority=1)
    assert len(calls) == 1
    assert [task.id for task in tasks] == sorted(task.id for task in tasks)
    async with app:
        await tasks[-1].result(timeout=LIMIT_S)
    assert seen == list(range(50))


async def test_2000_jobs_are_all_done_exactly_once(app: Everpoll) -> None:
    ran: Counter[int] = Counter()

    @app.job()
    async def count(number: int) -> int:
        ran[number] += 1
        if number % 7 == 0:
            await asyncio.sleep(0.001)
        return number

    async with app:
        tasks = await count.enqueue_many([(number,) for number in range(2_000)])
        results = await asyncio.gather(*(task.result(timeout=LIMIT_S) for task in tasks))
    assert results == list(range(2_000))
    assert set(ran.values()) == {1}
    assert len(ran) == 2_000


async def test_a_job_enqueues_jobs(app: Everpoll) -> None:
    @app.job()
    async def leaf(number: int) -> int:
        return number

    @app.job()
    async def tree(width: int) -> int:
        tasks = await leaf.enqueue_many([(number,) for number in range(width)])
        return sum([await task.result(timeout=LIMIT_S) for task in tasks])

    async with app:
        assert await (await tree.enqueue(10)).result(timeout=LIMIT_S) == 45


async def test_several_jobs_share_a_queue_and_a_queue_of_its_own_is_served_too(app: Everpoll) -> None:
    @app.job()
    async def red() -> str:
        return "red"

    @app.job()
    async def blue() -> str:
        return "blue"

    @app.job(queue="special", name="odd")
    async def green() -> str:
        return "green"

    async with app:
        tasks = [await job.enqueue() for job in (red, blue, green)]
        assert [await task.result(timeout=LIMIT_S) for task in tasks] == ["red", "blue", "green"]
        info = await tasks[2].info()
    assert (info.name, info.queue) == ("odd", "special")
    assert list(app.queues) == ["default", "special"]


async def test_context_variables_do_not_leak_between_runs_and_reach_threads(app: Everpoll) -> None:
    tenant: contextvars.ContextVar[str] = contextvars.ContextVar("tenant", default="none")

    @app.job()
    async def sets(name: str) -> str:
        before = tenant.get()
        tenant.set(name)
        await asyncio.sleep(0)
        return f"{before}>{tenant.get()}"

    @app.job()
    def sets_in_thread(name: str) -> str:
        before = tenant.get()
        tenant.set(name)
        return f"{before}>{tenant.get()}"

    tenant.set("main")  # before the worker starts: its handlers inherit it
    async with app:
        for job in (sets, sets_in_thread):
            tasks = await job.enqueue_many([("a",), ("b",)])
            assert [await task.result(timeout=LIMIT_S) for task in tasks] == ["main>a", "main>b"]
    assert tenant.get() == "main"


async def test_a_handle_on_a_task_of_earlier(app: Everpoll) -> None:
    @app.job()
    async def note() -> int:
        return 7

    task_id = (await note.enqueue()).id
    async with app:
        assert await app.task(task_id).result(timeout=LIMIT_S) == 7
        assert repr(app.task(task_id)) == f"<Task {task_id}>"


async def test_the_first_call_connects_without_entering_the_app(app: Everpoll) -> None:
    @app.job()
    async def note() -> None: ...

    task = await note.enqueue()
    assert (await task.info()).state == "queued"
    await app.close()
    assert (await task.info()).state == "queued"  # and connects again
    await app.close()


def test_a_name_is_registered_once_and_an_unknown_one_is_told(app: Everpoll) -> None:
    @app.job()
    async def audit() -> None: ...

    with pytest.raises(BadInput, match="job 'audit' is registered already; give one of the two another name="):
        app.job(name="audit")(audit)
    with pytest.raises(JobNotFound, match="no job is called 'adit'; registered: audit"):
        app.jobs["adit"]
    assert app.jobs["audit"] is audit
    assert len(app.jobs) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": ""}, "write a text of 1 to 200 characters"),
        ({"name": "x" * 201}, "write a text of 1 to 200 characters"),
        ({"name": "a\x00b"}, "write a text of 1 to 200 characters"),
        ({"queue": 5}, "job 'f': queue"),
        ({"priority": 1.5}, "job 'f': priority"),
        ({"priority": 10**12}, "at most 1,000,000,000"),
        ({"retry": 3}, r"write Retry\(3\), which means three attempts in all"),
        ({"timeout": "soon"}, "job 'f': timeout"),
        ({"timeout": 0}, "must be longer than 0"),
    ],
)
def test_options_that_cannot_be_used_are_refused_with_what_can(options: Any, message: str) -> None:
    async def f() -> None: ...

    with pytest.raises(BadInput, match=message):
        Everpoll("memory://").job(**options)(f)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"delay": -1}, "job 'f': delay=-1: negative"),
        (
            {"delay": datetime(9999, 12, 31, tzinfo=UTC)},
            r"job 'f': delay=9999-12-31T00:00:00\+00:00: the seconds until then=\d+\.\d+: longer than ten years",
        ),
        ({"priority": "high"}, "job 'f': priority"),
        ({"key": ""}, "job 'f': key='' is empty: write"),
        ({"key": 5}, "job 'f': key=5 is of type int, not a text: write a text of 1 to 200 characters"),
        ({"key": "x" * 201}, "has 201 characters: write a text of 1 to 200 characters"),
        ({"key": "a\x00b"}, r"job 'f': key='a\\x00b' has a NUL character, which databases cannot keep"),
        ({"key": "a\ud800"}, r"job 'f': key='a\\ud800' has half a character, '\\ud800', which UTF-8 cannot represent"),
    ],
)
async def test_options_of_enqueue_are_checked_too(options: Any, message: str) -> None:
    app = Everpoll("memory://")

    @app.job()
    async def f() -> None: ...

    with pytest.raises(BadInput, match=message):
        await f.enqueue(**options)
    await app.close()


async def g_of_text(text: str) -> None: ...


async def test_enqueue_many_takes_calls_with_options_of_their_own(app: Everpoll) -> None:
    @app.job(priority=1)
    async def f(text: str, *, loud: bool = False) -> str:
        return text.upper() if loud else text

    calls = [f.call("a", loud=True), f.options(key="k", delay="1h", priority=5).call(text="b"), f.call("c")]
    tasks = await f.enqueue_many(calls)
    infos = [await task.info() for task in tasks]
    assert [(info.key, info.priority) for info in infos] == [(None, 1), ("k", 5), (None, 1)]
    again = await f.enqueue_many([*calls[1:2], ("d",)], priority=3, delay="1h")
    assert [(one.id == tasks[1].id, one.is_new) for one in again] == [(True, False), (False, True)]
    with pytest.raises(KeyTaken):
        await f.enqueue_many(calls[1:2], on_conflict="reject")
    async with app:
        assert [await tasks[place].result(timeout=LIMIT_S) for place in (0, 2)] == ["A", "c"]


async def test_an_argument_may_be_called_self(app: Everpoll) -> None:
    @app.job()
    async def f(**given: str) -> dict[str, str]:
        return given

    async with app:
        for task in (await f.enqueue(self="a"), await f.options(priority=1).enqueue(self="a")):
            assert await task.result(timeout=LIMIT_S) == {"self": "a"}


async def test_enqueue_many_refuses_what_would_go_wrong_silently() -> None:
    app = Everpoll("memory://")

    @app.job()
    async def f(text: str) -> None: ...

    with pytest.raises(BadInput, match="one key for many tasks would enqueue one"):
        await f.enqueue_many([("a",)], key="k")
    with pytest.raises(BadInput, match=r'takes one tuple of arguments per task, as \[\("a",\), \("b",\)\]'):
        await f.enqueue_many(["ab"])  # type: ignore[list-item]
    with pytest.raises(BadInput, match=r"<call g\('a'\)> is a call of another job: write app\.group"):
        await f.enqueue_many([f.call("a"), app.job(name="g")(g_of_text).call("a")])
    with pytest.raises(BadInput, match=r"on_conflict= is not for one call of many: pass it to enqueue_many"):
        await f.enqueue_many([f.options(key="k", on_conflict="reject").call("a")])
    calls = counted(app, "enqueue")
    with pytest.raises(BadInput):
        await f.enqueue_many([("a",), ("b", "c")])
    assert calls == []  # all or none
    await app.close()


async def test_without_jobs_no_store_is_opened() -> None:
    app = Everpoll("memory://")
    opened = counted(app, "open")
    async with app:
        assert app.health().worker is None
    assert opened == []


async def test_a_task_parameter_is_not_part_of_the_call(app: Everpoll) -> None:
    @app.job()
    async def f(task: Task, number: int = 3) -> list[int]:
        return [task.attempt, number]

    async with app:
        assert await (await f.enqueue()).result(timeout=LIMIT_S) == [1, 3]
        assert await ended(await f.enqueue(4)) is not None
