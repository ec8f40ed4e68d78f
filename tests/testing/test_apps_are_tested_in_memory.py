"""An app that was made for a real database is tested without it."""

import asyncio
from pathlib import Path

import pytest

from everpoll import AlreadyRunning, Everpoll, JobFailed, Retry, Task
from everpoll.testing import VirtualClock, assert_enqueued, drain, enqueued, in_memory, inline


def shop(folder: Path) -> Everpoll:
    """An app whose database does not exist yet."""
    return Everpoll(f"sqlite:///{folder}/shop.db")


def files_of(folder: Path) -> list[str]:
    """What a store on disk would have left there."""
    return sorted(one.name for one in folder.iterdir())


async def test_nothing_reaches_the_apps_own_database(tmp_path: Path) -> None:
    """Neither from coroutines nor from synchronous callers."""
    app = shop(tmp_path)

    @app.job()
    async def double(number: int) -> int:
        return 2 * number

    with in_memory(app) as same:
        assert same is app
        task = await double.enqueue(2)
        other = await asyncio.to_thread(double.sync.enqueue, 3)
        await drain(app)
        assert (await task.result(), await app.task(other.id).result()) == (4, 6)
    assert files_of(tmp_path) == []


async def test_the_app_has_its_own_database_again_after_the_block(tmp_path: Path) -> None:
    """Open as it was, with what was in it; what was enqueued in the block is gone."""
    app = shop(tmp_path)

    @app.job()
    async def noted(number: int) -> int:
        return number

    before = await noted.enqueue(1)

    async def broken_test() -> None:
        with in_memory(app):
            await noted.enqueue(2)
            raise AssertionError("as a test that fails")

    with pytest.raises(AssertionError, match="as a test"):
        await broken_test()
    assert [call.args for call in await enqueued(app, noted)] == [(1,)]
    await drain(app)
    assert await before.result() == 1
    await app.close()


async def test_the_store_of_an_app_that_runs_is_not_exchanged(tmp_path: Path) -> None:
    """Its worker would go on with the store of before."""
    app = shop(tmp_path)

    @app.job()
    async def nothing() -> None: ...

    async with app:
        with pytest.raises(AlreadyRunning, match="before it starts"), in_memory(app):
            raise AssertionError("not reached")
        await (await nothing.enqueue()).result(timeout="30s")


def test_a_virtual_clock_lets_delays_pass(tmp_path: Path) -> None:
    """The app itself was made with the real one."""
    app, clock = shop(tmp_path), VirtualClock()
    ran: list[int] = []

    @app.job()
    async def later(number: int) -> None:
        ran.append(number)

    async def main() -> None:
        with in_memory(app, clock=clock):
            await later.enqueue(1, delay="2h")
            await drain(app)
            assert ran == []
            await clock.advance("2h")
            await drain(app)

    clock.run(main())
    assert ran == [1]


async def test_inline_runs_a_task_before_its_enqueue_returns(tmp_path: Path) -> None:
    """Those that it enqueues are run by then, too, and a failure is told by the result."""
    app = shop(tmp_path)
    ran: list[str] = []

    @app.job()
    async def order(item: str) -> None:
        ran.append(f"order {item}")
        await invoice.enqueue(item)

    @app.job()
    def invoice(item: str) -> str:
        ran.append(f"invoice {item}")
        return item

    @app.job(retry=Retry(1))
    async def broken() -> None:
        raise ValueError("no")

    with inline(app):
        await asyncio.gather(order.enqueue("a"), order.enqueue("b"))
        assert sorted(ran) == ["invoice a", "invoice b", "order a", "order b"]
        with pytest.raises(JobFailed):
            await (await broken.enqueue()).result()
        [*_, last] = await invoice.enqueue_many([("c",), ("d",)])
        assert await last.result() == "d"
        chained = await invoice.call("e").then(invoice).enqueue()
        assert await chained.result() == "e"


def test_inline_runs_tasks_of_synchronous_callers(tmp_path: Path) -> None:
    """As a view of Flask or Django enqueues."""
    app = shop(tmp_path)
    ran: list[int] = []

    @app.job()
    def note(number: int) -> None:
        ran.append(number)

    with inline(app):
        note.sync.enqueue(1)
        assert ran == [1]


async def test_calls_are_the_same_however_their_arguments_are_passed(tmp_path: Path) -> None:
    """By position, by keyword, or left to their defaults; the message lists what was enqueued."""
    app = shop(tmp_path)

    @app.job()
    async def send(task: Task, to: str, copies: int = 1) -> None: ...

    @app.job()
    async def other() -> None: ...

    with in_memory(app):
        with pytest.raises(AssertionError, match=r"send\('ada'\) was not enqueued; no task of send was"):
            await assert_enqueued(app, send, "ada")
        first = await send.enqueue("ada")
        await send.enqueue(to="grace", copies=2)
        assert (await assert_enqueued(app, send, to="ada", copies=1)).id == first.id
        assert (await assert_enqueued(app, send, "grace", 2)).state == "queued"
        assert [(call.args, call.kwargs) for call in await enqueued(app, send)] == [
            (("ada",), {}),
            ((), {"to": "grace", "copies": 2}),
        ]
        with pytest.raises(AssertionError, match=r"these were:\n  send\('ada'\), queued\n  send\(to='grace'"):
            await assert_enqueued(app, send, "ada", copies=3)
        assert await enqueued(app, other) == []


async def test_more_tasks_than_a_page_are_found(tmp_path: Path) -> None:
    """Pages are an affair of the store."""
    app = shop(tmp_path)

    @app.job()
    async def count(number: int) -> None: ...

    with in_memory(app):
        await count.enqueue_many([(number,) for number in range(1_100)])
        assert [call.args[0] for call in await enqueued(app, count)] == list(range(1_100))
        with pytest.raises(AssertionError, match="and 1090 before them"):
            await assert_enqueued(app, count, -1)


async def test_a_block_inside_another_leaves_the_outer_one_as_it_was(tmp_path: Path) -> None:
    """Its tasks are there again, and still run inline: also those that jobs enqueue."""
    app = shop(tmp_path)
    ran: list[int] = []

    @app.job()
    async def count_down(number: int) -> None:
        ran.append(number)
        if number:
            await count_down.enqueue(number - 1)

    with inline(app):
        await count_down.enqueue(1)
        with in_memory(app):
            assert await enqueued(app, count_down) == []
        assert len(await enqueued(app, count_down)) == 2
        await count_down.enqueue(2)
    assert ran == [1, 0, 2, 1, 0]
