"""A virtual clock takes over any asyncio loop, one at a time, and gives it back in order."""

import asyncio
from typing import Any

import pytest

from everpoll.errors import EverpollError, NotRunning
from everpoll.testing import VirtualClock


def test_a_running_loop_is_under_virtual_time_inside_the_block() -> None:
    async def main() -> None:
        async with VirtualClock() as clock:
            await asyncio.sleep(3600)
            assert clock.now() == asyncio.get_running_loop().time() == 3600.0

    asyncio.run(main())


def test_the_loop_is_as_it_was_after_the_block() -> None:
    async def main() -> None:
        loop: Any = asyncio.get_running_loop()
        parts = ("_selector", "_clock_resolution", "call_at", "run_in_executor", "shutdown_default_executor", "close")
        before = {part: vars(loop).get(part) for part in parts}
        async with VirtualClock():
            await asyncio.sleep(1)
        assert {part: vars(loop).get(part) for part in parts} == before

    asyncio.run(main())


def test_loop_time_never_goes_backwards_on_leaving() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        for _ in range(50):
            async with VirtualClock(start=loop.time()) as clock:
                await asyncio.sleep(0.1)
            assert loop.time() >= clock.now()

    asyncio.run(main())


def test_timers_pending_over_the_borders_keep_their_order() -> None:
    fired: list[str] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(20_000, fired.append, "made before, due after")
        loop.call_later(5_000, fired.append, "made before, due inside")
        async with VirtualClock() as clock:
            loop.call_later(30_000, fired.append, "made inside, due after")
            await clock.advance(10_000)
            assert fired == ["made before, due inside"]
        loop.call_later(15_000, fired.append, "made between the clocks")
        async with VirtualClock(start=77) as clock:
            await clock.advance(20_000)

    asyncio.run(main())
    assert fired[1:] == ["made before, due after", "made between the clocks", "made inside, due after"]


def test_timers_of_before_are_due_after_the_rest_of_their_delay() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        event = asyncio.Event()
        loop.call_later(1000, event.set)
        async with VirtualClock() as clock:
            await event.wait()
            assert 0 < clock.now() <= 1000

    asyncio.run(main())


def test_a_clock_can_be_used_again_and_goes_on_from_where_it_was() -> None:
    clock = VirtualClock()

    async def main() -> None:
        for expected in (10.0, 20.0):
            async with clock:
                await asyncio.sleep(10)
                assert clock.now() == expected

    asyncio.run(main())
    clock.run(asyncio.sleep(10))
    assert clock.now() == 30.0


def test_a_second_clock_on_the_loop_is_refused() -> None:
    async def main() -> None:
        async with VirtualClock() as clock:
            with pytest.raises(EverpollError, match="already"):
                async with VirtualClock():
                    pass
            with pytest.raises(EverpollError, match="attached to"):
                async with clock:
                    pass
            await asyncio.sleep(1)
            assert clock.now() == 1.0

    asyncio.run(main())


def test_a_clock_serves_one_loop_at_a_time() -> None:
    clock = VirtualClock()
    loop = clock.new_event_loop()
    with pytest.raises(EverpollError, match="attached to"):
        clock.new_event_loop()
    loop.close()
    clock.new_event_loop().close()


def test_run_inside_a_running_loop_is_refused_with_advice() -> None:
    async def main() -> None:
        with pytest.raises(EverpollError, match="async with clock"):
            VirtualClock().run(asyncio.sleep(1))

    asyncio.run(main())


def test_a_loop_factory_gives_loops_under_the_clock() -> None:
    clock = VirtualClock()
    with asyncio.Runner(loop_factory=clock.new_event_loop) as runner:
        runner.run(asyncio.sleep(60))
        runner.run(asyncio.sleep(60))
        assert runner.get_loop().time() == clock.now() == 120.0


def test_a_loop_that_hides_its_timers_is_refused_with_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    class Foreign:
        """As uvloop's: no `_selector`."""

    async def main() -> None:
        with monkeypatch.context() as patched:
            patched.setattr("asyncio.get_running_loop", Foreign)
            with pytest.raises(EverpollError, match=r"Foreign .*clock\.run"):
                await VirtualClock().__aenter__()

    asyncio.run(main())


def test_errors_of_the_block_come_out_unchanged_and_the_loop_is_given_back() -> None:
    async def main() -> None:
        with pytest.raises(LookupError, match="mine"):
            async with VirtualClock():
                raise LookupError("mine")
        async with VirtualClock() as clock:
            await asyncio.sleep(5)
            assert clock.now() == 5.0

    asyncio.run(main())


def test_a_task_left_waiting_in_advance_is_told_so() -> None:
    async def main() -> None:
        async with VirtualClock() as clock:
            task = asyncio.create_task(clock.advance(100))
            await asyncio.sleep(1)
        with pytest.raises(NotRunning, match="was left"):
            await task

    asyncio.run(main())


def test_a_cancellation_from_outside_passes_through_the_block() -> None:
    async def body() -> None:
        async with VirtualClock():
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(1)

    async def main() -> None:
        with pytest.raises(asyncio.CancelledError):
            await asyncio.create_task(body())

    asyncio.run(main())
