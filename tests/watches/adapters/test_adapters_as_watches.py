"""An adapter is a watch in three lines: its look, its start and its cancel are handed to `app.watch` as they are."""

import asyncio
import threading
from typing import Any

import pytest

from everpoll import Backoff, Breaker, Budget, Everpoll, RunCanceled, RunFailed
from everpoll.watches.adapters import Request
from everpoll.watches.adapters.google import GoogleOperation
from everpoll.watches.adapters.http202 import Http202
from everpoll.watches.adapters.openai_batch import OpenAIBatch
from everpoll.watches.adapters.sql_row import Call
from everpoll.watches.adapters.waiter import WaiterOperation
from watches.adapters.fake_server import Answer, Asked, Paths, by_path, scripted, serving

SOON = Backoff("10ms", factor=1, jitter=0)
BUDGET = Budget("1m")


async def test_http_202_with_a_remote_that_is_busy_moves_on_and_ends() -> None:
    paths: Paths = {
        "POST /reports": scripted(Answer(503), Answer(202, None, {"Location": "/ops/1"})),
        "GET /ops/1": scripted(Answer(404), Answer(202, None, {"Location": "/ops/2"})),
        "GET /ops/2": scripted(Answer(500), Answer(202), Answer(303, None, {"Location": "/results/1"})),
        "GET /results/1": Answer(200, {"rows": 3}),
    }
    with serving(by_path(paths)) as fake:
        app = Everpoll("memory://")
        report = Http202()

        @app.watch(every=SOON, budget=BUDGET)
        async def reports(op: dict[str, Any], w: Any) -> Any:
            return await report.look(w.handle, w.memory)

        reports.start(report.start)

        async with app:
            run = await reports.begin({"url": f"{fake.url}/reports", "json": {"year": 2026}}, id="run-42")
            assert await run.result(timeout="30s") == {"rows": 3}
    starts = [asked for asked in fake.asked if asked.method == "POST"]
    assert len(starts) == 2
    assert starts[0].headers["idempotency-key"] == starts[1].headers["idempotency-key"]
    assert fake.paths().count("GET /ops/1") == 2


async def test_a_remote_to_which_nothing_was_sent_was_not_told_to_cancel() -> None:
    """Without `cancel_method` the adapter sends nothing: the run ends as canceled, and says what was done."""
    with serving(by_path({"GET /ops/1": Answer(202)})) as fake:
        app = Everpoll("memory://")
        report = Http202()

        @app.watch(every=SOON, budget=BUDGET, breaker=Breaker(3, "1m"))
        async def reports(op: dict[str, Any], w: Any) -> Any:
            return await report.look(w.handle, w.memory)

        reports.cancel(lambda op, handle: report.cancel(handle))

        async with app:
            run = await reports.begin({}, id="run-42", handle=f"{fake.url}/ops/1")
            await run.cancel("not needed")
            with pytest.raises(RunCanceled, match="no request was sent to the remote: this Http202 has no"):
                await run.result(timeout="30s")
            info = await run.info()
            assert "was told" not in str(info.log)
    assert set(fake.paths()) <= {"GET /ops/1"}


async def test_a_run_that_is_canceled_cancels_the_operation_of_google() -> None:
    canceled = threading.Event()
    looked = threading.Event()

    def answer(asked: Asked) -> Answer:
        if asked.path.endswith(":cancel"):
            canceled.set()
            return Answer(200, {})
        if asked.method == "GET":
            looked.set()
        if canceled.is_set():
            return Answer(200, {"name": "operations/1", "done": True, "error": {"code": 1, "message": "canceled"}})
        return Answer(200, {"name": "operations/1"})

    with serving(answer) as fake:
        app = Everpoll("memory://")
        speech = GoogleOperation(fake.url)

        @app.watch(every=SOON, budget=BUDGET)
        async def recognize(op: dict[str, Any], w: Any) -> Any:
            return await speech.look(w.handle, w.memory)

        recognize.start(lambda op, key: speech.start(Request(f"{fake.url}/v1/speech", json=op), key))
        recognize.cancel(lambda op, handle: speech.cancel(handle))

        async with app:
            run = await recognize.begin({"uri": "gs://a/b"}, id="run-1")
            assert await asyncio.to_thread(looked.wait, 30)
            await run.cancel()
            with pytest.raises(RunCanceled):
                await run.result(timeout="30s")
    assert canceled.is_set()


async def test_a_batch_that_was_refused_fails_with_the_reason() -> None:
    refused = {"id": "batch_1", "status": "failed", "errors": {"data": [{"message": "no such model", "line": 2}]}}
    with serving(lambda asked: Answer(200, refused)) as fake:
        app = Everpoll("memory://")
        batch = OpenAIBatch("sk-test-12345678", base_url=fake.url)

        @app.watch(every=SOON, budget=BUDGET)
        async def nightly(op: dict[str, Any], w: Any) -> Any:
            return await batch.look(w.handle, w.memory)

        nightly.start(batch.start)
        nightly.adopt(lambda op, key: batch.adopt(key))

        async with app:
            run = await nightly.begin({"input_file_id": "f", "endpoint": "/v1/responses"}, id="run-1")
            with pytest.raises(RunFailed, match="line 2: no such model"):
                await run.result(timeout="30s")


async def test_waiters_and_functions_need_no_start() -> None:
    states = iter(["CREATING", "CREATING", "ACTIVE"])

    def describe(*, Name: str) -> dict[str, str]:  # noqa: N803 - botocore's way of writing
        return {"Status": next(states)}

    active = {"state": "success", "matcher": "path", "argument": "Status", "expected": "ACTIVE"}
    table = WaiterOperation({"delay": 0, "maxAttempts": 9, "acceptors": [active]}, describe)
    number = Call(lambda handle: handle * 2, done=lambda value: value == 42)
    app = Everpoll("memory://")

    @app.watch(every=SOON, budget=BUDGET)
    async def tables(op: str, w: Any) -> Any:
        return await table.look({"Name": op}, w.memory)

    @app.watch(every=SOON, budget=BUDGET)
    async def numbers(op: int, w: Any) -> Any:
        return await number.look(op, w.memory)

    async with app:
        first, second = await tables.begin("orders", id="a"), await numbers.begin(21, id="b")
        assert await first.result(timeout="30s") == {"Status": "ACTIVE"}
        assert await second.result(timeout="30s") == 42
