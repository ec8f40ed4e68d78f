"""Pausing is a set of reasons, a loop keeps its own time through it, and stale loops come back 150 ms apart."""

import math
from typing import Any

import pytest

from everpoll import BadInput, Phase
from loops.stage import Stage, timers


def test_semantics_07_pause_is_a_set_of_reasons() -> None:
    stage = Stage()
    runs = stage.runs()

    async def scene() -> None:
        loop = stage.add(runs)
        async with stage.app:
            loop.pause("hidden")
            loop.pause("operator")
            loop.resume("hidden")
            await stage.clock.advance(100)
            assert (loop.state.phase, runs.at, timers()) == (Phase.PAUSED, [], 0)
            loop.resume("operator")
            await stage.clock.advance(0)
            assert runs.at == [100]

    stage.play(scene)


def test_semantics_07_stop_or_slow_down_when_hidden() -> None:
    stage = Stage()
    stops, slows = stage.runs(), stage.runs()

    async def scene() -> None:
        stage.add(stops, 10, "stops")
        stage.add(slows, 10, "slows", when_hidden=4)
        async with stage.app:
            stage.app.loops.pause("hidden")
            await stage.clock.advance(100)
            stage.app.loops.pause("operator")
            await stage.clock.advance(100)

    stage.play(scene)
    assert (stops.at, slows.at) == ([], [40, 80])


def test_semantics_07_a_run_under_way_goes_on() -> None:
    stage = Stage()
    runs = stage.runs(False, takes_s=5)

    async def scene() -> None:
        loop = stage.add(runs)
        async with stage.app:
            await stage.clock.advance(32)
            loop.pause()
            assert loop.state.phase is Phase.RUNNING
            await stage.clock.advance(10)
            assert (loop.state.phase, loop.state.failures, runs.canceled) == (Phase.PAUSED, 1, 0)

    stage.play(scene)


def test_semantics_08_stale_loops_shortest_interval_first_150_ms_apart() -> None:
    stage = Stage()
    by_name: dict[str, Any] = {}

    async def scene() -> None:
        for every in (40, 10, 30, 20, 1000):
            by_name[str(every)] = stage.runs()
            stage.add(by_name[str(every)], every, str(every))
        async with stage.app:
            stage.app.loops.pause("hidden")
            await stage.clock.advance(500)
            stage.app.loops.resume("hidden")
            await stage.clock.advance(0.6)

    stage.play(scene)
    at = {name: runs.at for name, runs in by_name.items()}
    assert at.pop("1000") == []
    for position, name in enumerate(("10", "20", "30", "40")):
        (instant,) = at[name]
        assert math.isclose(instant, 500 + position * 0.15)


def test_semantics_08_others_keep_their_time() -> None:
    stage = Stage()
    runs = stage.runs()

    async def scene() -> None:
        stage.add(runs)
        async with stage.app:
            await stage.clock.advance(10)
            stage.app.loops.pause()
            await stage.clock.advance(15)
            stage.app.loops.resume()
            await stage.clock.advance(10)

    stage.play(scene)
    assert runs.at == [30]


def test_mistake_01_a_60_s_poll_hidden_5_s_every_50_s_runs_every_60_s() -> None:
    stage = Stage()
    runs = stage.runs()

    async def scene() -> None:
        stage.add(runs, 60)
        async with stage.app:
            for _ in range(20):
                await stage.clock.advance(45)
                stage.app.loops.pause("hidden")
                await stage.clock.advance(5)
                stage.app.loops.resume("hidden")

    stage.play(scene)
    assert 15 <= len(runs.at) <= 16
    assert all(60 <= after - before <= 65 for before, after in zip(runs.at, runs.at[1:], strict=False))


def test_mistake_04_hiding_again_during_the_stagger() -> None:
    stage = Stage()
    runs = [stage.runs() for _ in range(10)]

    async def scene() -> None:
        for number, one in enumerate(runs):
            stage.add(one, 10 + number, str(number))
        async with stage.app:
            stage.app.loops.pause("hidden")
            await stage.clock.advance(100)
            stage.app.loops.resume("hidden")
            await stage.clock.advance(0.4)
            stage.app.loops.pause("hidden")
            await stage.clock.advance(100)

    stage.play(scene)
    assert [len(one.at) for one in runs] == [1, 1, 1, 0, 0, 0, 0, 0, 0, 0]


def test_mistake_05_flush_and_timer_do_not_both_run() -> None:
    stage = Stage()
    runs = stage.runs(takes_s=0.05)

    async def scene() -> None:
        stage.add(runs, 10)
        async with stage.app:
            stage.app.loops.pause("hidden")
            await stage.clock.advance(100)
            stage.app.loops.resume("hidden")
            stage.app.loops.resume("hidden")
            await stage.clock.advance(9)
            assert timers() == 1

    stage.play(scene)
    assert runs.at == [100]


def test_edge_1_000_pause_resume_cycles_leave_one_timer() -> None:
    stage = Stage()
    runs = stage.runs()

    async def scene() -> None:
        stage.add(runs)
        async with stage.app:
            for _ in range(1000):
                stage.app.loops.pause("hidden")
                assert timers() == 0
                stage.app.loops.resume("hidden")
                assert timers() == 1
            assert stage.app.loops._session is not None
            deadlines = stage.app.loops._session.deadlines
            assert (len(deadlines), len(deadlines._heap)) == (1, 1)
            await stage.clock.advance(31)

    stage.play(scene)
    assert runs.at == [30]


def test_edge_10_000_loops_resuming() -> None:
    stage = Stage()
    at: dict[int, list[float]] = {number: [] for number in range(10_000)}

    def recorder(number: int) -> Any:
        async def record() -> None:
            at[number].append(stage.clock.now())

        return record

    async def scene() -> None:
        for number in at:
            stage.add(recorder(number), 100_000 + number % 7, str(number))
        async with stage.app:
            stage.app.loops.pause("hidden")
            await stage.clock.advance(200_000)
            stage.app.loops.resume("hidden")
            await stage.clock.advance(10_000 * 0.15)

    stage.play(scene)
    order = sorted(at, key=lambda number: at[number])
    assert order == sorted(at, key=lambda number: (number % 7, number))
    assert all(len(instants) == 1 for instants in at.values())
    assert all(math.isclose(at[number][0], 200_000 + 0.15 * place) for place, number in enumerate(order))


def test_is_anyone_looking() -> None:
    stage = Stage()
    runs = stage.runs()
    looking = True

    async def scene() -> None:
        nonlocal looking
        stage.add(runs, 10)
        stage.app.loops.pause_unless(lambda: looking)
        async with stage.app:
            await stage.clock.advance(15)
            looking = False
            await stage.clock.advance(50)
            assert runs.at == [10]
            looking = True
            await stage.clock.advance(1)

    stage.play(scene)
    assert runs.at == [10, 66]


def test_pause_stops_every_timer() -> None:
    stage = Stage()

    async def scene() -> None:
        for number in range(100):
            stage.add(stage.runs(), 10 + number, str(number))
        async with stage.app:
            assert timers() == 1
            stage.app.loops.pause()
            assert timers() == 0

    stage.play(scene)


def test_paused_before_the_start() -> None:
    stage = Stage()
    runs = stage.runs()
    loop = stage.add(runs)
    loop.pause()

    async def scene() -> None:
        async with stage.app:
            await stage.clock.advance(100)
            assert loop.state.phase is Phase.PAUSED

    stage.play(scene)
    assert runs.at == []


@pytest.mark.parametrize("call", ["pause", "resume"])
def test_an_unknown_reason_is_refused_with_those_that_exist(call: str) -> None:
    stage = Stage()
    loop = stage.add(stage.runs())
    for target in (loop, stage.app.loops):
        with pytest.raises(BadInput, match=r"'asleep'.*'hidden', 'operator', 'shutdown'"):
            getattr(target, call)("asleep")


def test_a_loop_registered_while_all_are_paused_is_paused_too() -> None:
    stage = Stage()
    runs = stage.runs()

    async def scene() -> None:
        async with stage.app:
            stage.app.loops.pause("hidden")
            loop = stage.add(runs)
            await stage.clock.advance(100)
            assert (loop.state.phase, runs.at) == ("paused", [])
            stage.app.loops.resume("hidden")
            await stage.clock.advance(0)

    stage.play(scene)
    assert runs.at == [100]


@pytest.mark.parametrize("call", ["pause", "resume"])
def test_shutdown_is_no_reason_that_a_user_sets(call: str) -> None:
    stage = Stage()
    loop = stage.add(stage.runs())
    for target in (loop, stage.app.loops):
        with pytest.raises(BadInput, match=r"shutdown.*operator.*close the app"):
            getattr(target, call)("shutdown")
    assert loop.state.pauses == frozenset()
