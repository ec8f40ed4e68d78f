"""A test that can never go on is told so: by an error that names who waits where, out of the block it owns."""

import asyncio
import math
from contextlib import suppress

import pytest

from everpoll.errors import EverpollError, NothingLeftToWait
from everpoll.testing import VirtualClock, timekeeper


def stuck_clock() -> VirtualClock:
    return VirtualClock(patience=0.01)


async def never() -> None:
    await asyncio.Event().wait()


def test_the_error_names_the_tasks_and_where_they_wait() -> None:
    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(never(), name="the consumer")

    with pytest.raises(NothingLeftToWait) as caught:
        stuck_clock().run(main())
    message = str(caught.value)
    assert f"the consumer: never waits at {__file__}:{never.__code__.co_firstlineno + 1}" in message
    assert "main waits at" in message
    assert "0.01 s (patience)" in message
    assert "hold()" in message


def test_the_list_of_tasks_is_bounded() -> None:
    async def main() -> None:
        await asyncio.gather(*(never() for _ in range(100)))

    with pytest.raises(NothingLeftToWait, match="and 81 more"):
        stuck_clock().run(main())


def test_sleeping_for_ever_is_waiting_for_nothing() -> None:
    with pytest.raises(NothingLeftToWait):
        stuck_clock().run(asyncio.sleep(math.inf))


def test_the_error_comes_out_of_the_block_and_the_test_goes_on() -> None:
    async def main() -> str:
        with pytest.raises(NothingLeftToWait):
            async with stuck_clock():
                await never()
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        await asyncio.sleep(0)
        return "went on"

    assert asyncio.run(main()) == "went on"


def test_the_clean_up_of_the_block_has_run_and_may_sleep() -> None:
    clock = stuck_clock()
    cleaned: list[float] = []

    async def main() -> None:
        try:
            await never()
        finally:
            await asyncio.sleep(5)
            cleaned.append(clock.now())

    with pytest.raises(NothingLeftToWait):
        clock.run(main())
    assert cleaned == [5.0]


def test_swallowing_the_cancellation_does_not_hide_the_error() -> None:
    async def main() -> None:
        with suppress(asyncio.CancelledError):
            await never()

    with pytest.raises(NothingLeftToWait):
        stuck_clock().run(main())


def test_getting_stuck_again_in_the_clean_up_ends_the_run() -> None:
    async def main() -> None:
        try:
            await never()
        finally:
            await never()

    with pytest.raises(NothingLeftToWait):
        stuck_clock().run(main())


def test_another_error_of_the_clean_up_is_seen_with_a_note() -> None:
    async def main() -> None:
        try:
            await never()
        finally:
            raise LookupError("in the clean-up")

    with pytest.raises(LookupError) as caught:
        stuck_clock().run(main())
    assert "virtual time stands still" in caught.value.__notes__[0]


def test_a_loop_without_an_owner_raises_out_of_its_runner() -> None:
    clock = stuck_clock()
    with asyncio.Runner(loop_factory=clock.new_event_loop) as runner, pytest.raises(NothingLeftToWait):
        runner.run(never())


def test_waiting_for_an_advance_is_not_being_stuck() -> None:
    clock = stuck_clock()

    async def main() -> None:
        task = asyncio.create_task(never())
        await clock.advance("1d")
        task.cancel()

    clock.run(main())
    assert clock.now() == 86_400.0


def test_a_task_that_never_lets_time_move_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timekeeper, "ROUNDS_LIMIT", 1000)
    clock = VirtualClock()

    polls: list[float] = []

    async def poll_every_0_s() -> None:
        while True:
            await asyncio.sleep(0)
            polls.append(clock.now())

    async def main() -> None:
        task = asyncio.create_task(poll_every_0_s(), name="the spinner")
        try:
            await clock.advance(1)
        finally:
            task.cancel()

    with pytest.raises(EverpollError, match=r"(?s)rounds of the loop moved no time.*the spinner"):
        clock.run(main())


def test_many_rounds_at_one_instant_are_fine_while_no_task_waits_for_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timekeeper, "ROUNDS_LIMIT", 100)

    async def main() -> None:
        for _ in range(1000):
            await asyncio.sleep(0)

    VirtualClock().run(main())
