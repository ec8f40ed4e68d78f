"""A key that is taken returns the task, rejects the call or replaces the task; a bad key fails its own call only."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from everpoll import BadInput, Everpoll, KeyTaken
from everpoll.stores.contract import TaskFilter
from everpoll.testing import VirtualClock, drain
from jobs.jobs_stage import LIMIT_S, counted, soon


async def test_a_rejected_enqueue_says_which_task_has_the_key(app: Everpoll) -> None:
    @app.job()
    async def audit(url: str) -> None: ...

    first = await audit.enqueue("a", key="k", delay="1h")
    with pytest.raises(KeyTaken, match=f"job 'audit': task {first.id} has the key 'k'; nothing was enqueued") as raised:
        await audit.enqueue("b", key="k", on_conflict="reject")
    assert (raised.value.task.id, raised.value.task.is_new) == (first.id, False)
    assert (await raised.value.task.info()).args["args"] == ["a"]
    assert (await audit.enqueue("b", key="l", on_conflict="reject")).is_new
    await app.close()


async def test_one_bad_key_fails_its_caller_alone(app: Everpoll) -> None:
    """Callers that share a statement do not share its conflicts, nor its errors."""

    @app.job()
    async def audit(number: int) -> None: ...

    await audit.enqueue(0, key="taken")
    options: list[dict[str, Any]] = [
        {"key": "taken", "on_conflict": "reject"},
        {"key": "taken", "on_conflict": "reject", "unique_for": "1h"},
        {"key": "a", "on_conflict": "reject"},
        {"key": "taken"},
        {"key": "b", "unique_for": "1h"},
        {"key": "half \ud800", "on_conflict": "reject"},
        {},
        {"key": "c", "on_conflict": "replace"},
    ]
    answers = await asyncio.gather(
        *(audit.enqueue(number, **one) for number, one in enumerate(options)), return_exceptions=True
    )
    kinds = [type(one).__name__ for one in answers]
    assert kinds == ["KeyTaken", "KeyTaken", "Task", "Task", "Task", "BadInput", "Task", "Task"]
    await app.close()


async def test_plain_jobs_share_their_statement_whatever_others_say_about_keys(app: Everpoll) -> None:
    """Those without these options take the same few statements, and none of these is slowed by such a task."""

    @app.job()
    async def audit(number: int) -> None: ...

    await audit.enqueue(0)
    calls = counted(app, "enqueue")
    await asyncio.gather(
        *(audit.enqueue(number) for number in range(50)),
        audit.enqueue(1, key="a", unique_for="1h"),
        audit.enqueue(1, key="b", on_conflict="replace"),
    )
    batches = [batch for (batch,) in calls]
    assert all(len({task.unique is None for task in batch}) == 1 for batch in batches)
    await app.close()


async def test_a_debounced_job_runs_once_with_the_last_arguments(app: Everpoll) -> None:
    ran: list[int] = []
    is_over = asyncio.Event()

    @app.job(key=lambda number, user: f"sync:{user}", on_conflict="replace")
    async def sync(number: int, user: str) -> None:
        ran.append(number)
        is_over.set()

    tasks = [await sync.enqueue(number, "ada", delay="1h") for number in range(5)]
    tasks.append(await sync.enqueue(5, user="ada", priority=3))
    assert len({task.id for task in tasks}) == 1
    assert [task.is_new for task in tasks] == [True] + [False] * 5
    async with app:
        await soon(is_over)
        await tasks[0].result(timeout=LIMIT_S)
    assert ran == [5]


async def test_what_runs_goes_on_and_the_new_task_gets_the_key(app: Everpoll) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    @app.job()
    async def sync(number: int) -> int:
        if number == 1:
            begun.set()
            await soon(go_on)
        return number

    first = await sync.enqueue(1, key="k")
    async with app:
        await soon(begun)
        second = await sync.enqueue(2, key="k", on_conflict="replace")
        assert second.is_new
        assert await second.result(timeout=LIMIT_S) == 2
        assert not (await first.info()).ended_at
        go_on.set()
        assert await first.result(timeout=LIMIT_S) == 1


async def test_an_ended_task_has_its_key_for_as_long_as_was_said(app: Everpoll) -> None:
    @app.job(key=lambda number: f"report:{number}", unique_for="1h")
    async def report(number: int) -> int:
        return number

    async with app:
        first = await report.enqueue(1)
        assert await first.result(timeout=LIMIT_S) == 1
        again = await report.enqueue(1)
        assert (again.id, again.is_new) == (first.id, False)
        assert await again.result(timeout=LIMIT_S) == 1
        with pytest.raises(KeyTaken, match="has the key 'report:1' or had it within the last 1h; nothing was enqueued"):
            await report.enqueue(1, on_conflict="reject")
        assert (await report.enqueue(2)).is_new


async def test_many_with_keys_are_all_or_none(app: Everpoll) -> None:
    @app.job(key=lambda number: f"n:{number}" if number else None)
    async def f(number: int) -> None: ...

    first = await f.enqueue(2, delay="1h")
    existing = await f.enqueue_many([(1,), (2,), (0,), (0,)])
    assert [one.is_new for one in existing] == [True, False, True, True]
    with pytest.raises(KeyTaken, match=f"task {first.id} has the key 'n:2'") as raised:
        await f.enqueue_many([(3,), (2,), (4,)], on_conflict="reject")
    assert raised.value.task.id == first.id
    assert len((await (await app.store()).tasks(TaskFilter())).tasks) == 4, "none of a rejected call"
    assert all(one.is_new for one in await f.enqueue_many([(3,), (4,)], on_conflict="reject"))
    replaced = await f.enqueue_many([(2,), (5,)], on_conflict="replace", priority=4)
    assert [one.is_new for one in replaced] == [False, True]
    assert (await first.info()).priority == 4
    with pytest.raises(BadInput, match="two tasks of this call have the key 'n:6': the second would be rejected"):
        await f.enqueue_many([(6,), (6,)], on_conflict="reject")
    await app.close()


def test_synchronous_callers_are_told_the_same(tmp_path: Any) -> None:
    app = Everpoll(f"sqlite:///{tmp_path}/tasks.db")

    @app.job(key=lambda number: "k", on_conflict="reject")
    def f(number: int) -> None: ...

    first = f.sync.enqueue(1)
    with pytest.raises(KeyTaken) as raised:
        f.sync.enqueue(2)
    assert raised.value.task.info().id == first.id
    with pytest.raises(KeyTaken):
        f.sync.enqueue_many([(3,)])
    assert f.sync.enqueue(4, on_conflict="replace").id == first.id
    assert f.sync.enqueue(5, on_conflict="existing", unique_for="1m").id == first.id
    app.sync.close()


@pytest.mark.parametrize(
    ("register", "says"),
    [
        ({"key": "k"}, "job 'f': key='k': one key would be the same for every task; write a function of the arguments"),
        ({"on_conflict": "ignore"}, "job 'f': on_conflict='ignore': must be one of existing, reject, replace"),
        ({"unique_for": "0s"}, "unique_for='0s': must be longer than 0"),
        ({"unique_for": 5j}, "unique_for=5j"),
        ({"key": asyncio.sleep}, "is async: write a plain function of the arguments"),
    ],
)
def test_what_a_job_cannot_say_is_refused_where_it_is_registered(register: dict[str, Any], says: str) -> None:
    app = Everpoll("memory://")
    with pytest.raises(BadInput, match=says):

        @app.job(**register)
        def f() -> None: ...


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"on_conflict": "replace"}, "on_conflict= and unique_for= are about a key, and this call has no key="),
        ({"unique_for": "1m"}, "on_conflict= and unique_for= are about a key, and this call has no key="),
        ({"key": "k", "on_conflict": True}, "on_conflict=True: must be one of existing, reject, replace"),
        ({"key": "k", "unique_for": -1}, "unique_for=-1"),
        ({"delay": datetime(2030, 1, 1)}, "has no time zone: write datetime"),  # noqa: DTZ001 - the subject
    ],
)
async def test_what_an_enqueue_cannot_say_is_refused(options: dict[str, Any], says: str) -> None:
    app = Everpoll("memory://")

    @app.job()
    def f() -> None: ...

    with pytest.raises(BadInput, match=says):
        await f.enqueue(**options)
    await app.close()


@pytest.mark.parametrize(
    ("key", "says"),
    [
        (lambda number: 1 / number, "job 'f': key= raised ZeroDivisionError"),
        (lambda number: number, "job 'f': key=0 is of type int, not a text"),
        (lambda number: "", "job 'f': key='' is empty"),
    ],
)
async def test_a_key_that_cannot_be_made_is_refused(key: Callable[[int], Any], says: str) -> None:
    app = Everpoll("memory://")

    @app.job(key=key)
    def f(number: int) -> None: ...

    with pytest.raises(BadInput, match=says):
        await f.enqueue(0)
    await app.close()


def test_a_parameter_that_an_option_would_hide_is_refused() -> None:
    app = Everpoll("memory://")
    for name in ("on_conflict", "unique_for", "connection"):
        namespace: dict[str, Any] = {}
        exec(f"def f({name}): ...", namespace)  # noqa: S102 - one for each name
        with pytest.raises(BadInput, match=f"its parameter '{name}' would never get {name}=…"):
            app.job()(namespace["f"])


def test_a_delay_may_be_an_instant() -> None:
    clock = VirtualClock()
    app = Everpoll("memory://", clock=clock)
    ran: list[str] = []

    @app.job()
    async def f(name: str) -> None:
        ran.append(name)

    async def scene() -> None:
        now = datetime.fromtimestamp(clock.wall(), UTC)
        await f.enqueue("later", delay=now + timedelta(hours=1))
        await f.enqueue("past", delay=now - timedelta(days=1))
        await drain(app)
        assert ran == ["past"]
        await clock.advance("1h")
        await drain(app)
        assert ran == ["past", "later"]
        await app.close()

    clock.run(scene())
