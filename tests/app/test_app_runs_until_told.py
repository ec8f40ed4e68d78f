"""`app.run` ends on SIGTERM, SIGINT or cancellation; a second signal does not wait; the handlers before come back."""

import asyncio
import os
import signal
import subprocess
import sys

import pytest

from everpoll import Everpoll, Phase
from everpoll.testing import VirtualClock

both = pytest.mark.parametrize("wanted", [signal.SIGTERM, signal.SIGINT])


class Slow:
    """A loop's function that tells when it began and how it ended."""

    def __init__(self) -> None:
        self.began = asyncio.Event()
        self.ended = ""

    async def __call__(self) -> None:
        self.began.set()
        try:
            await asyncio.sleep(5)
        except asyncio.CancelledError:
            self.ended = "canceled"
            raise
        self.ended = "done"


@both
def test_a_signal_ends_it_with_the_grace_period(wanted: signal.Signals) -> None:
    clock = VirtualClock()
    app = Everpoll(clock=clock)
    slow = Slow()
    app.loops.add(slow, 30, name="slow", first=0)

    async def scene() -> None:
        running = asyncio.ensure_future(app.run())
        await slow.began.wait()
        os.kill(os.getpid(), wanted)
        await running
        assert clock.now() == 5

    clock.run(scene())
    assert slow.ended == "done"
    assert app.loops["slow"].state.phase is Phase.CLOSED


@both
def test_a_second_signal_ends_it_at_once(wanted: signal.Signals) -> None:
    clock = VirtualClock()
    app = Everpoll(clock=clock)
    slow = Slow()
    app.loops.add(slow, 30, name="slow", first=0)

    async def scene() -> None:
        running = asyncio.ensure_future(app.run())
        await slow.began.wait()
        os.kill(os.getpid(), signal.SIGTERM)
        await clock.advance(1)
        os.kill(os.getpid(), wanted)
        await running
        assert clock.now() == 1

    clock.run(scene())
    assert slow.ended == "canceled"


def test_the_handlers_before_are_put_back() -> None:
    app = Everpoll()

    def mine(_number: int, _frame: object) -> None:
        raise AssertionError("not meant to be called")

    async def scene() -> None:
        before_int = signal.getsignal(signal.SIGINT)
        running = asyncio.ensure_future(app.run())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert signal.getsignal(signal.SIGTERM) is not mine
        os.kill(os.getpid(), signal.SIGTERM)
        await running
        assert signal.getsignal(signal.SIGTERM) is mine
        assert signal.getsignal(signal.SIGINT) is before_int

    before = signal.signal(signal.SIGTERM, mine)
    try:
        asyncio.run(scene())
    finally:
        signal.signal(signal.SIGTERM, before)


def test_cancellation_passes_through_after_the_grace_period() -> None:
    clock = VirtualClock()
    app = Everpoll(clock=clock)
    slow = Slow()
    app.loops.add(slow, 30, name="slow", first=0)

    async def scene() -> None:
        running = asyncio.ensure_future(app.run())
        await slow.began.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert (clock.now(), slow.ended) == (5, "done")

    clock.run(scene())


@pytest.mark.parametrize("signals", [1, 2])
def test_cancellation_while_it_closes_passes_through_and_leaves_no_task(signals: int) -> None:
    clock = VirtualClock()
    app = Everpoll(clock=clock)
    began = asyncio.Event()

    async def deaf() -> None:
        began.set()
        for _ in range(3):
            try:
                await asyncio.sleep(0.8)
            except asyncio.CancelledError:
                continue

    app.loops.add(deaf, 30, first=0)

    async def scene() -> None:
        running = asyncio.ensure_future(app.run())
        await began.wait()
        for _ in range(signals):
            os.kill(os.getpid(), signal.SIGTERM)
            await clock.advance(0.1)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert app.loops["deaf"].state.phase is Phase.CLOSED
        await clock.advance(5)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    clock.run(scene())


def test_run_works_outside_the_main_thread_and_ends_by_cancellation() -> None:
    app = Everpoll()
    seen: list[str] = []

    async def scene() -> None:
        @app.loop("1h", first=0, name="once")
        async def once() -> None:
            seen.append("ran")
            running.cancel()

        running = asyncio.ensure_future(app.run())
        with pytest.raises(asyncio.CancelledError):
            await running

    async def outside() -> None:
        await asyncio.to_thread(lambda: asyncio.run(scene()))

    asyncio.run(outside())
    assert seen == ["ran"]


@both
def test_as_a_program(wanted: signal.Signals) -> None:
    program = f"""
import asyncio, os, signal
from everpoll import Everpoll
app = Everpoll()

@app.loop("1h", first=0)
async def look():
    os.kill(os.getpid(), signal.{wanted.name})
    await asyncio.sleep(0)
    print("looked")

asyncio.run(app.run())
print("ended", app.loops["look"].state.phase)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["looked", "ended", "closed"]
    assert done.stderr == ""
