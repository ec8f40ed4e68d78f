"""Plain functions run in threads: judged alike, never overlapping, even where one outlives its timeout or the close."""

import asyncio
import contextvars
import logging
import threading
from collections.abc import Callable
from functools import partial

import pytest

from everpoll import Outcome, Phase, Stop
from everpoll.engine.thread_call import ThreadCall
from everpoll.engine.threads import DaemonThreads
from everpoll.loops.registry import CANCEL_S
from loops.stage import Blocking, Stage, timers, turns


def test_edge_a_sync_function_runs_off_the_event_loop() -> None:
    stage = Stage()
    threads: list[threading.Thread] = []

    def look() -> None:
        threads.append(threading.current_thread())

    async def scene() -> None:
        loop = stage.add(look)
        async with stage.app:
            await stage.clock.advance(61)
            assert (loop.state.runs, loop.state.last_ok) == (2, 60.0)

    stage.play(scene)
    assert all(thread is not threading.main_thread() and thread.daemon for thread in threads)


@pytest.mark.parametrize(
    ("function", "kind", "reason"),
    [
        (lambda: None, "ok", None),
        (lambda: False, "failed", "returned False"),
        (lambda: 1 // 0, "failed", "ZeroDivisionError: integer division or modulo by zero"),
        (lambda: next(iter(())), "failed", "RuntimeError: the function raised StopIteration"),
        (lambda: Stop("done"), "stopped", "done"),
        (lambda: asyncio.sleep(5, result=False), "failed", "returned False"),
    ],
)
def test_edge_a_sync_function_is_judged_like_any_other(
    function: Callable[[], object], kind: str, reason: str | None
) -> None:
    stage = Stage()

    async def scene() -> None:
        loop = stage.add(function)
        async with stage.app:
            outcome = await loop.trigger()
            assert (outcome.kind, outcome.reason) == (kind, reason)

    stage.play(scene)


def test_edge_a_sync_function_sees_context_variables_and_may_be_a_partial() -> None:
    stage = Stage()
    who = contextvars.ContextVar("who", default="none")
    seen: list[str] = []

    def look(greeting: str) -> None:
        seen.append(f"{greeting} {who.get()}")

    async def scene() -> None:
        loop = stage.add(partial(look, "hello"))
        async with stage.app:
            who.set("operator")
            await loop.trigger()

    stage.play(scene)
    assert seen == ["hello operator"]


def test_a_thread_that_outlives_its_timeout_is_not_overlapped(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage()
    blocking = Blocking()

    async def scene() -> None:
        loop = stage.add(blocking, timeout="5s")
        async with stage.app:
            answer = loop.trigger()
            await turns()
            blocking.wait_until_entered()
            stage.clock.jump(100)
            await turns()
            assert (loop.state.phase, timers()) == (Phase.RUNNING, 0)
            second = loop.trigger()
            await turns()
            assert blocking.under_way == 1
            blocking.let_go.set()
            assert await answer == Outcome("failed", "timeout")
            assert (await second).ok

    with caplog.at_level(logging.WARNING):
        stage.play(scene)
    assert blocking.most_at_once == 1
    assert "loop 'prices': its thread goes on after timeout; no run until it ends" in caplog.messages


def test_a_thread_that_outlives_the_close_does_not_hold_it(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage()
    blocking = Blocking()

    async def scene() -> None:
        loop = stage.add(blocking)
        await stage.app.loops.start()
        loop.trigger()
        await turns()
        blocking.wait_until_entered()
        closing = asyncio.ensure_future(stage.app.loops.close(grace="10s"))
        await turns()
        stage.clock.jump(10)
        await turns()
        stage.clock.jump(CANCEL_S)
        await closing
        assert (loop.state.phase, blocking.under_way, timers()) == (Phase.CLOSED, 1, 0)
        await stage.app.loops.start()
        answer = loop.trigger()
        await turns()
        assert (loop.state.phase, blocking.most_at_once) == (Phase.RUNNING, 1)
        blocking.let_go.set()
        assert (await answer).ok
        await stage.app.loops.close()

    with caplog.at_level(logging.WARNING):
        stage.play(scene)
    assert blocking.most_at_once == 1
    assert "loop 'prices': its thread goes on after canceled; no run until it ends" in caplog.messages
    assert "loop 'prices' does not end after it was canceled; its run goes on in the background" in caplog.messages


def test_what_waits_for_a_thread_at_the_close_never_runs() -> None:
    stage = Stage()
    blocking = Blocking()
    late: list[int] = []

    async def scene() -> None:
        blocked = [stage.add(blocking, name=str(number)) for number in range(32)]
        waiting = stage.add(lambda: late.append(1), name="waiting")
        await stage.app.loops.start()
        for loop in blocked:
            loop.trigger()
        await turns()
        for _ in blocked:
            blocking.wait_until_entered()
        waiting.trigger()
        await turns()
        closing = asyncio.ensure_future(stage.app.loops.close(grace=0))
        await turns()
        blocking.let_go.set()
        await closing
        assert waiting.state.in_flight == 0

    stage.play(scene)
    assert late == []


def test_re_registered_during_a_thread() -> None:
    stage = Stage()
    blocking = Blocking()
    new = stage.runs()

    async def scene() -> None:
        loop = stage.add(blocking)
        async with stage.app:
            loop.trigger()
            await turns()
            blocking.wait_until_entered()
            stage.add(new, 10)
            follow_up = loop.trigger()
            await turns()
            assert new.at == []
            blocking.let_go.set()
            assert (await follow_up).ok
            assert (len(new.at), loop.state.runs) == (1, 2)

    stage.play(scene)


def fill_every_thread(stage: Stage, blocking: Blocking) -> None:
    """Let 32 loops block each thread that there is; to be followed by turns, and `wait_until_all_entered`."""
    for number in range(32):
        stage.add(blocking, 1000, f"busy {number}").trigger()


async def wait_until_all_entered(blocking: Blocking) -> None:
    await turns()
    for _ in range(32):
        blocking.wait_until_entered()


def test_what_waits_for_a_thread_never_begins_after_its_removal() -> None:
    stage, blocking, late = Stage(), Blocking(), list[int]()

    async def scene() -> None:
        async with stage.app:
            fill_every_thread(stage, blocking)
            await wait_until_all_entered(blocking)
            waiting = stage.add(lambda: late.append(1), name="waiting")
            answer = waiting.trigger()
            await turns()
            removing = asyncio.ensure_future(stage.app.loops.remove("waiting"))
            await turns()
            assert (removing.done(), "waiting" in stage.app.loops) == (True, False)
            assert (await answer).kind == "canceled"
            blocking.let_go.set()
            await stage.clock.advance(100)

    stage.play(scene)
    assert late == []


def test_what_waits_for_a_thread_never_begins_after_its_timeout() -> None:
    stage, blocking, ran_at = Stage(), Blocking(), list[float]()

    async def scene() -> None:
        async with stage.app:
            fill_every_thread(stage, blocking)
            await wait_until_all_entered(blocking)
            waiting = stage.add(lambda: ran_at.append(stage.clock.now()), name="waiting", timeout="5s")
            answer = waiting.trigger()
            await turns()
            stage.clock.jump(5)
            assert await answer == Outcome("failed", "timeout")
            assert (waiting.state.phase, waiting.state.next_due) == (Phase.WAITING, 65.0)
            blocking.let_go.set()
            await stage.clock.advance(59)
            assert ran_at == []
            await stage.clock.advance(1)

    stage.play(scene)
    assert ran_at == [65]


def test_a_call_that_was_withdrawn_never_begins() -> None:
    calls: list[int] = []
    call = ThreadCall(lambda: calls.append(1), DaemonThreads())
    assert call.withdraw()
    call()
    assert (calls, call.withdraw()) == ([], True)


def test_a_call_that_has_begun_cannot_be_withdrawn_and_tells_when_it_is_over() -> None:
    blocking, reported = Blocking(), list[str]()
    call = ThreadCall(blocking, DaemonThreads())
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    blocking.wait_until_entered()
    assert not call.withdraw()
    call.when_over(lambda: reported.append("during"))
    assert reported == []
    blocking.let_go.set()
    thread.join()
    call.when_over(lambda: reported.append("after"))
    assert (reported, call.withdraw()) == (["during", "after"], True)
