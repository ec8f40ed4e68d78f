"""Virtual time: tasks wake in order, at exactly their time, and no real time passes."""

import asyncio
import math
import time
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everpoll.errors import BadDuration, BadInput, NotRunning
from everpoll.testing import VirtualClock

Log = list[tuple[str, float]]


def sleeper(clock: VirtualClock, log: Log) -> Callable[[str, float], Coroutine[Any, Any, None]]:
    async def sleep(name: str, delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        log.append((name, clock.now()))

    return sleep


async def tick(every_s: float, log: list[float]) -> None:
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(every_s)
        log.append(loop.time())


def test_sleepers_wake_in_the_order_of_their_due_times() -> None:
    clock, log = VirtualClock(), Log()
    sleep = sleeper(clock, log)

    async def main() -> None:
        await asyncio.gather(sleep("c", 3), sleep("a", 1), sleep("b", 2))

    clock.run(main())
    assert log == [("a", 1.0), ("b", 2.0), ("c", 3.0)]


def test_sleepers_of_one_instant_wake_in_the_order_they_fell_asleep() -> None:
    clock, log = VirtualClock(), Log()
    sleep = sleeper(clock, log)

    async def main() -> None:
        await asyncio.gather(*(sleep(str(number), 1) for number in range(100)))

    clock.run(main())
    assert [name for name, _ in log] == [str(number) for number in range(100)]


@settings(derandomize=True, deadline=None)
@given(st.lists(st.floats(min_value=0, max_value=1e9), max_size=30), st.floats(min_value=0, max_value=1e6))
def test_any_sleeps_wake_sorted_and_at_exactly_their_times(delays_s: list[float], start: float) -> None:
    clock = VirtualClock(start)
    woken: list[float] = []

    async def sleep(delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        woken.append(asyncio.get_running_loop().time())

    async def main() -> None:
        await asyncio.gather(*map(sleep, delays_s))

    clock.run(main())
    assert woken == sorted(start + delay_s for delay_s in delays_s)


@settings(derandomize=True, deadline=None)
@given(st.lists(st.floats(min_value=0, max_value=100), max_size=30), st.floats(min_value=0, max_value=100))
def test_any_advance_fires_exactly_what_is_due_by_then(delays_s: list[float], advance_s: float) -> None:
    clock, log = VirtualClock(), Log()
    sleep = sleeper(clock, log)

    async def main() -> None:
        tasks = [asyncio.create_task(sleep("", delay_s)) for delay_s in delays_s]
        await clock.settle()
        await clock.advance(advance_s)
        due = sorted(delay_s for delay_s in delays_s if delay_s <= advance_s + (1e-9 if advance_s else 0))
        assert [at for _, at in log] == due
        assert clock.now() == max([advance_s, *due])
        await asyncio.gather(*tasks)

    clock.run(main())


def test_advance_includes_what_is_due_at_the_very_target() -> None:
    clock = VirtualClock()
    calls: list[float] = []

    async def main() -> None:
        task = asyncio.create_task(tick(1.0, calls))
        await clock.settle()
        await clock.advance(2.0)
        assert calls == [1.0, 2.0]
        assert clock.now() == 2.0
        task.cancel()

    clock.run(main())


def test_advance_counts_tenths_that_do_not_add_up_in_binary() -> None:
    clock = VirtualClock()
    calls: list[float] = []

    async def main() -> None:
        asyncio.create_task(tick(0.1, calls))  # noqa: RUF006  # The clean-up of run() ends it.
        await clock.settle()
        for seconds in range(1, 101):
            await clock.advance(1.0)
            assert len(calls) == seconds * 10
        assert clock.now() == pytest.approx(100)

    clock.run(main())


def test_advance_returns_only_after_a_chain_of_tasks_has_settled() -> None:
    clock = VirtualClock()
    depth: list[int] = []

    async def spawn(left: int) -> None:
        depth.append(left)
        await asyncio.sleep(0)
        if left:
            await asyncio.create_task(spawn(left - 1))

    async def main() -> None:
        asyncio.get_running_loop().call_later(2, lambda: tasks.append(asyncio.create_task(spawn(50))))
        await clock.advance(2)
        assert len(depth) == 51
        assert tasks[0].done()

    tasks: list[asyncio.Task[None]] = []
    clock.run(main())


def test_tasks_spawned_during_an_advance_sleep_from_their_own_start() -> None:
    clock, log = VirtualClock(), Log()
    sleep = sleeper(clock, log)

    async def parent() -> None:
        await asyncio.sleep(1)
        await asyncio.gather(sleep("child", 1.5), sleep("late child", 5))

    async def main() -> None:
        task = asyncio.create_task(parent())
        await clock.advance(4)
        assert log == [("child", 2.5)]
        await task
        assert log[1:] == [("late child", 6.0)]

    clock.run(main())


def test_advance_reads_durations_and_refuses_what_is_none() -> None:
    clock = VirtualClock()

    async def main() -> None:
        for text in ("250ms", "1.75s", "1m", "1h30m", timedelta(days=1)):
            await clock.advance(text)
        assert clock.now() == 2 + 60 + 5400 + 86_400
        for wrong in ("", "5", "fast", "-1s", -1, math.nan, math.inf, True):
            with pytest.raises(BadDuration, match="advance="):
                await clock.advance(wrong)

    clock.run(main())


def test_settle_runs_what_can_run_and_moves_no_time() -> None:
    clock = VirtualClock(7.5)
    ran: list[str] = []

    async def main() -> None:
        asyncio.get_running_loop().call_soon(ran.append, "ready")
        asyncio.get_running_loop().call_later(1, ran.append, "later")
        await clock.settle()
        assert ran == ["ready"]
        assert clock.now() == 7.5

    clock.run(main())


def test_two_advances_at_once_return_in_the_order_of_their_targets() -> None:
    clock, log = VirtualClock(), Log()

    async def advance(name: str, seconds: float) -> None:
        await clock.advance(seconds)
        log.append((name, clock.now()))

    async def main() -> None:
        await asyncio.gather(advance("b", 5), advance("a", 2), advance("c", 5))

    clock.run(main())
    assert log == [("a", 2.0), ("b", 5.0), ("c", 5.0)]


def test_a_cancelled_advance_no_longer_stops_time() -> None:
    clock = VirtualClock()

    async def main() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3):
                await clock.advance(10)
        assert clock.now() == 3.0
        await asyncio.sleep(20)
        assert clock.now() == 23.0

    clock.run(main())


def test_time_moves_by_itself_while_a_test_only_awaits() -> None:
    clock = VirtualClock()

    async def main() -> float:
        event = asyncio.Event()
        asyncio.get_running_loop().call_later(3600, event.set)
        await event.wait()
        return clock.now()

    assert clock.run(main()) == 3600.0


def test_timeouts_end_what_is_slow_and_spare_what_is_fast() -> None:
    clock = VirtualClock()

    async def main() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(30):
                await asyncio.sleep(31)
        assert clock.now() == 30.0
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 10)
        assert clock.now() == 40.0
        assert await asyncio.wait_for(asyncio.sleep(9, "done"), 10) == "done"
        assert clock.now() == 49.0

    clock.run(main())


def test_a_cancelled_sleeper_does_not_stop_time_at_its_due_time() -> None:
    clock = VirtualClock()
    stops: list[float] = []

    async def main() -> None:
        task = asyncio.create_task(tick(5, stops))
        await clock.advance(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(100)
        assert stops == []
        assert clock.now() == 101.0

    clock.run(main())


def test_a_jump_fires_everything_late_and_in_order() -> None:
    clock, log = VirtualClock(), Log()
    sleep = sleeper(clock, log)

    async def main() -> None:
        tasks = [asyncio.create_task(sleep(name, delay_s)) for name, delay_s in (("b", 60), ("a", 1), ("c", 90_000))]
        await clock.settle()
        clock.jump("8h")
        assert clock.now() == 28_800.0
        assert log == []
        await clock.settle()
        assert log == [("a", 28_800.0), ("b", 28_800.0)]
        await asyncio.gather(*tasks)
        assert log[2:] == [("c", 90_000.0)]

    clock.run(main())


def test_times_are_exact_far_beyond_a_day_and_a_nanosecond_of_resolution() -> None:
    clock = VirtualClock()
    ten_years_s = 315_360_000.0

    async def main() -> None:
        for delay_s in (86_400 * 3.0, ten_years_s, ten_years_s, 0.1):
            due = clock.now() + delay_s
            await asyncio.sleep(delay_s)
            assert clock.now() == due
        asyncio.get_running_loop().call_later(86_400 * 400, lambda: None)
        await clock.advance(86_400 * 400)

    clock.run(main())


def test_timers_a_billionth_apart_do_not_fire_together() -> None:
    clock, log = VirtualClock(), Log()
    sleep = sleeper(clock, log)

    async def main() -> None:
        await asyncio.gather(sleep("b", 1 + 1e-12), sleep("a", 1))

    clock.run(main())
    assert log == [("a", 1.0), ("b", 1 + 1e-12)]


def test_a_hundred_thousand_sleepers_wake_in_order() -> None:
    clock = VirtualClock()
    woken: list[float] = []

    async def sleep(delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        woken.append(clock.now())

    async def main() -> None:
        await asyncio.gather(*(sleep(number * 7919 % 1000) for number in range(100_000)))

    clock.run(main())
    assert woken == sorted(woken)
    assert len(woken) == 100_000


def test_the_wall_clock_moves_along_and_jumps_alone() -> None:
    clock = VirtualClock(start=100)
    new_year = datetime(2030, 1, 1, tzinfo=UTC).timestamp()
    assert clock.wall() == new_year

    async def main() -> None:
        await asyncio.sleep(60)
        assert clock.wall() == new_year + 60
        clock.shift_wall(-3600)
        assert (clock.now(), clock.wall()) == (160.0, new_year - 3540)
        clock.set_wall(1_000_000_000)
        await asyncio.sleep(1)
        assert (clock.now(), clock.wall()) == (161.0, 1_000_000_001.0)

    clock.run(main())


def test_the_wall_clock_starts_where_it_is_told() -> None:
    assert VirtualClock(wall=5.0).wall() == 5.0
    assert VirtualClock(wall=datetime(1970, 1, 2, tzinfo=UTC)).wall() == 86_400.0
    with pytest.raises(BadInput, match="time zone"):
        VirtualClock(wall=datetime(2030, 1, 1))  # noqa: DTZ001  # The very mistake.
    with pytest.raises(BadInput, match="finite"):
        VirtualClock(start=math.inf)
    with pytest.raises(BadInput, match="patience"):
        VirtualClock(patience=0)


def test_run_hands_out_the_result_and_the_error_of_main() -> None:
    clock = VirtualClock()

    async def main() -> None:
        await asyncio.sleep(1)
        raise LookupError("from main")

    assert clock.run(asyncio.sleep(1, "result")) == "result"
    with pytest.raises(LookupError, match="from main"):
        clock.run(main())
    assert clock.now() == 2.0


def test_run_cleans_up_in_virtual_time_as_asyncio_does() -> None:
    clock = VirtualClock()
    cleaned: list[float] = []

    async def background() -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            await asyncio.sleep(5)
            cleaned.append(clock.now())

    async def main() -> asyncio.Task[None]:
        task = asyncio.create_task(background())
        await asyncio.sleep(1)
        return task

    assert clock.run(main()).cancelled()
    assert cleaned == [6.0]


def test_run_works_in_debug_mode() -> None:
    clock = VirtualClock()

    async def main() -> bool:
        await asyncio.sleep(100)
        return asyncio.get_running_loop().get_debug()

    assert clock.run(main(), debug=True)


def test_advance_without_an_event_loop_of_its_own_is_refused() -> None:
    with pytest.raises(NotRunning, match="not attached"):
        asyncio.run(VirtualClock().advance(1))


def test_real_clocks_are_left_alone() -> None:
    clock = VirtualClock()
    before = time.monotonic()
    clock.run(asyncio.sleep(1e9))
    assert clock.now() == 1e9
    assert time.monotonic() - before < 1e8


def test_the_clock_reads_as_a_plain_float_that_can_become_json() -> None:
    clock = VirtualClock()

    async def main() -> tuple[type, type]:
        await asyncio.sleep(1)
        return type(clock.now()), type(asyncio.get_running_loop().time())

    assert clock.run(main()) == (float, float)
