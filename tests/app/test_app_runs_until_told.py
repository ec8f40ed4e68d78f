"""`app.run` ends on SIGTERM, SIGINT or cancellation; a second signal does not wait; the handlers before come back."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

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


@pytest.mark.parametrize("turns", [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 20])
async def test_a_second_signal_hands_back_what_is_unfinished_however_soon_it_comes(tmp_path: Path, turns: int) -> None:
    """It cancels the close. Some senders, such as timeout(1), signal the process and then its group."""
    app = Everpoll(f"sqlite:///{tmp_path / 'tasks.db'}")
    began = asyncio.Event()

    @app.job()
    async def work() -> None:
        began.set()
        await asyncio.Event().wait()

    app.service("billing", "http://127.0.0.1:9/health", every="1h")
    await app.__aenter__()
    task = await work.enqueue()
    await began.wait()
    closing = asyncio.create_task(app.close("1h"))
    for _ in range(1 + turns):
        await asyncio.sleep(0)
    closing.cancel()
    await asyncio.wait({closing})
    later = Everpoll(app.url)
    info = await later.task(task.id).info()
    assert (info.state, info.attempt) == ("queued", 0)
    workers = await (await later.store()).workers()
    assert len(workers) == 2
    assert not [one for one in workers if one.stopped_at is None], "the worker of services has signed off, too"
    await later.close()


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
