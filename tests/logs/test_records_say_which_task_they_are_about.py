"""What a handler writes through `logging` carries the fields of its task: in jobs, threads, looks, rows and loops."""

import asyncio
import logging
import logging.handlers
import queue
from collections.abc import Iterator

import pytest

from everpoll import Budget, Everpoll
from everpoll.logs import TaskFields, task_fields
from everpoll.testing import drain
from everpoll.watches import Done

shop = logging.getLogger("shop")


class Kept(logging.Handler):
    """Keeps the records that it gets, with the fields that the filter has found."""

    def __init__(self) -> None:
        super().__init__()
        self.addFilter(TaskFields())
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    def about(self, message: str) -> list[tuple[object, ...]]:
        names = ("task_kind", "task_name", "task_id", "task_attempt")
        found = [one for one in self.records if one.getMessage() == message]
        return [tuple(getattr(one, name) for name in names) for one in found]


@pytest.fixture
def kept() -> Iterator[Kept]:
    handler = Kept()
    shop.addHandler(handler)
    shop.setLevel(logging.INFO)
    yield handler
    shop.removeHandler(handler)


def test_a_record_of_a_job_has_its_id_name_attempt_queue_and_worker(kept: Kept) -> None:
    """An async job: one that never suspends, and one that does."""
    app = Everpoll("memory://")

    @app.job(queue="mail")
    async def send(pauses: bool) -> None:
        if pauses:
            await asyncio.sleep(0)
        shop.info("sent")

    async def main() -> None:
        async with app:
            for pauses in (False, True):
                await (await send.enqueue(pauses)).result(timeout="30s")
            shop.info("outside")
            assert task_fields() == {}

    asyncio.run(main())
    assert kept.about("sent") == [("job", "send", 1, 1), ("job", "send", 2, 1)]
    first, outside = kept.records[0], kept.records[-1]
    worker = app.worker_options.label
    assert [getattr(first, one) for one in ("task", "task_queue", "task_worker")] == ["send#1", "mail", worker]
    assert (outside.getMessage(), outside.__dict__["task"], outside.__dict__["task_id"]) == ("outside", "-", None)


def test_a_record_of_a_thread_and_of_an_asyncio_task_has_them_too(kept: Kept) -> None:
    """A task that outlives a job which never suspended stays with that job, whatever ran in the same place later."""
    app, left = Everpoll("memory://"), set[asyncio.Task[None]]()

    @app.job
    def plain() -> None:
        shop.info("from a thread")

    @app.job
    async def spawning() -> None:
        async def later() -> None:
            await asyncio.sleep(0.01)
            shop.info("from a task")

        left.add(asyncio.create_task(later()))

    @app.job
    async def other() -> None:
        pass

    async def main() -> None:
        await plain.enqueue()
        await spawning.enqueue()
        await other.enqueue_many([()] * 20)
        await drain(app)
        await asyncio.gather(*left)
        await app.close()

    asyncio.run(main())
    assert kept.about("from a thread") == [("job", "plain", 1, 1)]
    assert kept.about("from a task") == [("job", "spawning", 2, 1)]


def test_a_record_of_a_look_names_its_run_and_one_of_a_shared_call_its_watch(kept: Kept) -> None:
    """A call for many runs is about none of them alone."""
    app = Everpoll("memory://")

    @app.watch(every="1s", budget=Budget("1m"))
    async def query(op: int) -> Done:
        shop.info("looked")
        return Done(op)

    @app.watch(every="1s", budget=Budget("1m"))
    async def batched(op: int) -> Done:
        return Done(op)

    @batched.look_many
    async def look_many(asked: list[tuple[int, object]]) -> list[Done]:
        shop.info("looked at many")
        return [Done(op) for op, _ in asked]

    async def main() -> None:
        async with app:
            run = await query.begin(1, id="run-1")
            await run.result(timeout="30s")
            await (await batched.begin(2, id="run-2")).result(timeout="30s")

    asyncio.run(main())
    assert kept.about("looked") == [("watch", "query", 1, 1)]
    assert kept.records[0].__dict__["task_key"] == "query:run-1"
    assert kept.about("looked at many") == [("watch", "batched", None, None)]


def test_a_record_of_a_loop_names_the_loop_and_its_condition_does_too(kept: Kept) -> None:
    """A loop has no task: its kind and its name are all that is known."""
    app = Everpoll("memory://")

    def wanted() -> bool:
        shop.info("asked")
        return True

    @app.loop(every="1h", when=wanted, first="0s")
    def prices() -> None:
        shop.info("ran")

    async def main() -> None:
        async with app:
            await app.loops["prices"].trigger()

    asyncio.run(main())
    assert set(kept.about("ran")) == {("loop", "prices", None, None)}
    assert set(kept.about("asked")) <= {("loop", "prices", None, None)}


def test_a_record_keeps_its_fields_behind_a_queue() -> None:
    """A `QueueHandler` formats in another thread, in which no task runs."""
    app, waiting = Everpoll("memory://"), queue.SimpleQueue[logging.LogRecord]()
    handler = logging.handlers.QueueHandler(waiting)
    handler.addFilter(TaskFields())
    shop.addHandler(handler)

    @app.job
    async def send() -> None:
        shop.warning("sent")

    async def main() -> None:
        await send.enqueue()
        await drain(app)
        await app.close()

    try:
        asyncio.run(main())
    finally:
        shop.removeHandler(handler)
    assert waiting.get(timeout=10).__dict__["task"] == "send#1"
