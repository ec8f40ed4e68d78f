"""`async with app` inside a program: again and again, on one event loop after the other, and with an error."""

import asyncio

import pytest

from everpoll import AlreadyRunning, BadInput, Everpoll, Phase
from everpoll.testing import VirtualClock


def test_twice_with_different_event_loops_in_real_time() -> None:
    app = Everpoll()
    looks: list[int] = []

    @app.loop("1h", first=0)
    async def look() -> None:
        looks.append(len(looks))

    async def main() -> None:
        async with app as same:
            assert same is app
            assert (await app.loops["look"].trigger()).ok

    asyncio.run(main())
    asyncio.run(main())
    assert looks == [0, 1]
    assert app.loops["look"].state.phase is Phase.CLOSED


def test_an_error_in_the_block_does_not_wait_for_the_grace_period() -> None:
    clock = VirtualClock()
    app = Everpoll(clock=clock)

    @app.loop("10s")
    async def slow() -> None:
        await asyncio.sleep(8)

    async def main() -> None:
        async with app:
            await clock.advance(12)
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        clock.run(main())
    assert clock.now() == 12


def test_the_end_of_the_block_waits_for_runs() -> None:
    clock = VirtualClock()
    app = Everpoll(clock=clock)
    ended: list[float] = []

    @app.loop("10s", jitter=0)
    async def slow() -> None:
        await asyncio.sleep(8)
        ended.append(clock.now())

    async def main() -> None:
        async with app:
            await clock.advance(12)

    clock.run(main())
    assert ended == [18]
    assert app.loops["slow"].next_due_at is None


def test_entering_twice_is_an_error_that_leaves_the_app_running() -> None:
    app = Everpoll()

    async def main() -> None:
        async with app:
            with pytest.raises(AlreadyRunning, match="runs already"):
                async with app:
                    raise AssertionError("not entered")

    asyncio.run(main())


def test_a_decorator_without_its_interval_is_refused() -> None:
    app = Everpoll()
    with pytest.raises(BadInput, match=r'write @app\.loop\(every="30s"\)'):
        app.loop(lambda: None)  # type: ignore[arg-type]  # that is the mistake


def test_queues_without_slots_are_explained() -> None:
    """A list of names is a likely mistake: the error shows what to write."""
    with pytest.raises(BadInput, match=r"queues=\['mail'\]: write the slots of each queue, as "):
        Everpoll("memory://", queues=["mail"])  # type: ignore[arg-type]
