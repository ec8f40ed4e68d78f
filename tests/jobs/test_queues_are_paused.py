"""`app.queues["mail"]` pauses, resumes and counts a queue for the whole fleet; the mapping lists what it serves."""

import asyncio

import pytest

from everpoll import BadInput, Everpoll
from everpoll.testing import drain
from jobs.jobs_stage import LIMIT_S


async def test_a_paused_queue_waits_and_a_resumed_one_goes_on_at_once(app: Everpoll) -> None:
    began: list[str] = []

    @app.job(queue="mail")
    async def send(to: str) -> str:
        began.append(to)
        return to

    @app.job()
    async def other() -> str:
        return "other"

    mail = app.queues["mail"]
    async with app:
        await mail.pause("the relay is down", by="ann")
        task = await send.enqueue("a@b")
        assert await (await other.enqueue()).result(timeout=LIMIT_S) == "other"
        info = await mail.info()
        assert (info.ready, info.running, began) == (1, 0, [])
        assert info.paused is not None
        assert (info.paused.reason, info.paused.by) == ("the relay is down", "ann")
        assert info.oldest_due_at == (await task.info()).due_at
        assert await mail.resume(by="ann")
        assert await task.result(timeout=LIMIT_S) == "a@b"
        assert (await mail.info()).paused is None
        assert await mail.resume() is False


async def test_a_pause_outlives_its_app_and_a_drain_leaves_it_alone(app: Everpoll) -> None:
    ran: list[int] = []

    @app.job()
    async def f(number: int) -> None:
        ran.append(number)

    await app.queues["default"].pause()
    await f.enqueue(1)
    await app.close()
    async with asyncio.timeout(LIMIT_S):
        await drain(app)
    assert ran == []
    await app.queues["default"].resume()
    await drain(app)
    assert ran == [1]
    await app.close()


def test_the_mapping_lists_what_the_app_serves_and_knows_other_queues_by_name() -> None:
    app = Everpoll("memory://")
    assert list(app.queues) == []

    @app.job(queue="mail")
    async def send() -> None: ...

    assert list(app.queues) == ["mail"]
    assert "mail" in app.queues
    assert "other" not in app.queues
    assert app.queues["other"].name == "other"
    assert [one.name for one in app.queues.values()] == ["mail"]
    assert list(Everpoll("memory://", queues={"b": 1, "a": 2}).queues) == ["b", "a"]


@pytest.mark.parametrize("name", ["", "a\0b", "x" * 201, 7])
def test_what_is_no_queue_is_refused(name: str) -> None:
    with pytest.raises(BadInput, match="queue"):
        Everpoll("memory://").queues[name]


async def test_an_actor_has_a_bound() -> None:
    app = Everpoll("memory://")
    with pytest.raises(BadInput, match="by="):
        await app.queues["mail"].pause(by="x" * 1_000)
    await app.close()
