"""Plain functions run in threads: judged alike, never overlapping, even where one outlives its timeout or the close."""

import asyncio
import contextvars
import logging
import threading
from collections.abc import Callable
from functools import partial

import pytest
from stage import Stage, timers

from everpoll import Outcome, Phase, Stop
from everpoll.loops.registry import CANCEL_S

PATIENCE_S = 30.0


class Blocking:
    """A plain function that waits in its thread until it is let go."""

    def __init__(self) -> None:
        self.entered = threading.Semaphore(0)
        self.let_go = threading.Event()
        self.under_way = 0
        self.most_at_once = 0
        self._lock = threading.Lock()

    def __call__(self) -> bool:
        with self._lock:
            self.under_way += 1
            self.most_at_once = max(self.most_at_once, self.under_way)
        self.entered.release()
        assert self.let_go.wait(PATIENCE_S)
        with self._lock:
            self.under_way -= 1
        return True

    def wait_until_entered(self) -> None:
        assert self.entered.acquire(timeout=PATIENCE_S)


async def turns(count: int = 20) -> None:
    """Let the event loop go round, where time stands still because a thread works."""
    for _ in range(count):
        await asyncio.sleep(0)


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
    who = contextvars.ContextVar("who", default="nobody")
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
    assert "loop 'prices' does not end: it was canceled and is left behind" in caplog.messages


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
