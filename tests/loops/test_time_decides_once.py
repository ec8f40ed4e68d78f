"""One deadline, monotonic: from the completion, or on the grid of a fixed rate; the wall clock only shows."""

from datetime import UTC, datetime, timedelta
from random import Random

from everpoll import Everpoll
from everpoll.testing import VirtualClock
from loops.stage import Stage, timers


def test_semantics_02_fixed_delay_counts_from_the_completion() -> None:
    stage = Stage()
    runs = stage.runs(takes_s=12)

    async def scene() -> None:
        stage.add(runs)
        async with stage.app:
            await stage.clock.advance(130)

    stage.play(scene)
    assert runs.at == [30, 72, 114]


def test_semantics_02_fixed_rate_keeps_phase_and_counts_missed_ticks() -> None:
    stage = Stage()
    runs = stage.runs(takes_s=25)

    async def scene() -> None:
        loop = stage.add(runs, 10, fixed_rate=True)
        async with stage.app:
            await stage.clock.advance(75)
            assert loop.state.missed_ticks == 4

    stage.play(scene)
    assert runs.at == [10, 40, 70]


def test_semantics_02_fixed_rate_with_jitter_runs_once_a_tick() -> None:
    clock = VirtualClock()
    app = Everpoll(clock=clock, rng=Random(7))
    at: list[float] = []

    @app.loop("10s", fixed_rate=True, jitter=0.4, name="grid")
    async def grid() -> None:
        at.append(clock.now())

    async def scene() -> None:
        async with app:
            await clock.advance(10_004.5)

    clock.run(scene())
    assert [round(instant / 10) for instant in at] == list(range(1, 1001))
    assert all(abs(instant - 10 * tick) <= 4 for tick, instant in enumerate(at, 1))
    assert app.loops["grid"].state.missed_ticks == 0


def test_semantics_02_the_first_delay_may_be_chosen() -> None:
    stage = Stage()
    runs = stage.runs()

    async def scene() -> None:
        stage.add(runs, first="0s")
        async with stage.app:
            await stage.clock.advance(31)

    stage.play(scene)
    assert runs.at == [0, 30]


def test_edge_wall_clock_jumps_move_what_is_shown_and_decide_nothing() -> None:
    stage = Stage()
    runs = stage.runs()

    async def scene() -> None:
        loop = stage.add(runs)
        async with stage.app:
            await stage.clock.advance(10)
            before = loop.next_due_at
            assert before == datetime(2030, 1, 1, 0, 0, 30, tzinfo=UTC)
            for jump_s in (86_400.0, -7 * 86_400.0, 3600.0):
                stage.clock.shift_wall(jump_s)
                shown = loop.next_due_at
                assert shown == before + timedelta(seconds=jump_s)
                before = shown
                assert loop.state.next_due == 30.0
            await stage.clock.advance(19)
            assert runs.at == []
            await stage.clock.advance(1)
            assert runs.at == [30]

    stage.play(scene)


def test_the_wall_clock_still_shows_the_last_success_after_the_end() -> None:
    stage = Stage()

    async def scene() -> None:
        loop = stage.add(stage.runs())
        assert loop.last_ok_at is None
        async with stage.app:
            await stage.clock.advance(50)
        await stage.clock.advance(50)
        assert loop.last_ok_at == datetime(2030, 1, 1, 0, 0, 30, tzinfo=UTC)
        assert loop.next_due_at is None

    stage.play(scene)


def test_edge_8_h_suspended_fixed_delay() -> None:
    stage = Stage()
    runs = stage.runs()

    async def scene() -> None:
        stage.add(runs)
        async with stage.app:
            await stage.clock.advance(1)
            stage.clock.jump("8h")
            await stage.clock.advance(45)

    stage.play(scene)
    assert runs.at == [28_801, 28_831]


def test_edge_8_h_suspended_fixed_rate() -> None:
    stage = Stage()
    runs = stage.runs()

    async def scene() -> None:
        loop = stage.add(runs, 10, fixed_rate=True)
        async with stage.app:
            await stage.clock.advance(1)
            stage.clock.jump("8h")
            await stage.clock.advance(20)
            assert loop.state.missed_ticks == 2879
            assert timers() == 1

    stage.play(scene)
    assert runs.at == [28_801, 28_810, 28_820]


def test_semantics_02_float_noise_costs_a_fixed_rate_no_tick() -> None:
    stage = Stage()
    runs = stage.runs(False, False, False)

    async def scene() -> None:
        stage.add(runs, 0.1, fixed_rate=True)
        async with stage.app:
            await stage.clock.advance(1.65)

    stage.play(scene)
    assert [round(instant, 6) for instant in runs.at] == [0.1, 0.3, 0.7, 1.5, 1.6]
