"""A trigger runs now, coalesces during a run, is awaited, resets the deadline, and respects an operator's pause."""

import asyncio

import pytest

from everpoll import Breaker, EverpollError, NotRunning, Outcome, Phase, Stop
from loops.stage import Stage, timers


def test_semantics_06_runs_now_and_resets_the_deadline() -> None:
    stage = Stage()
    runs = stage.runs(takes_s=2)

    async def scene() -> None:
        loop = stage.add(runs)
        async with stage.app:
            await stage.clock.advance(10)
            outcome = await loop.trigger()
            assert outcome == Outcome("ok")
            assert loop.state.next_due == 42.0
            assert timers() == 1
            await stage.clock.advance(31)

    stage.play(scene)
    assert runs.at == [10, 42]


def test_semantics_06_need_not_be_awaited() -> None:
    stage = Stage()
    runs = stage.runs(ValueError("not read"))

    async def scene() -> None:
        loop = stage.add(runs)
        async with stage.app:
            loop.trigger()
            await stage.clock.advance(1)
            assert loop.state.failures == 1

    stage.play(scene)


def test_mistake_06_moves_the_timer_respects_the_pause_and_can_be_awaited() -> None:
    stage = Stage()
    runs = stage.runs(takes_s=1)

    async def scene() -> None:
        loop = stage.add(runs)
        async with stage.app:
            await stage.clock.advance(29)
            assert (await loop.trigger()).ok
            await stage.clock.advance(5)
            assert runs.at == [29]
            loop.pause()
            assert await loop.trigger() == Outcome("skipped", "paused")
            assert runs.at == [29]

    stage.play(scene)


def test_edge_100_triggers_during_one_run() -> None:
    stage = Stage()
    runs = stage.runs(None, False, takes_s=5)

    async def scene() -> None:
        loop = stage.add(runs)
        async with stage.app:
            first = loop.trigger()
            await stage.clock.advance(1)
            others = [loop.trigger() for _ in range(100)]
            assert (await first).ok
            outcomes = await asyncio.gather(*others)
            assert {outcome.kind for outcome in outcomes} == {"failed"}
            await stage.clock.advance(1)

    stage.play(scene)
    assert runs.at == [0, 5]
    assert runs.most_at_once == 1


def test_edge_trigger_while_paused_by_an_operator() -> None:
    stage = Stage()
    runs = stage.runs()

    async def scene() -> None:
        loop = stage.add(runs)
        async with stage.app:
            loop.pause("operator")
            assert await loop.trigger() == Outcome("skipped", "paused")
            assert loop.state.skips == {"paused": 1}
            assert (await loop.trigger(force=True)).ok
            assert loop.state.phase is Phase.PAUSED
            await stage.clock.advance(100)

    stage.play(scene)
    assert runs.at == [0]


def test_edge_trigger_while_paused_because_hidden_runs() -> None:
    stage = Stage()
    runs = stage.runs()

    async def scene() -> None:
        loop = stage.add(runs)
        async with stage.app:
            loop.pause("hidden")
            assert (await loop.trigger()).ok
            await stage.clock.advance(100)
            assert loop.state.phase is Phase.PAUSED

    stage.play(scene)
    assert runs.at == [0]


def test_edge_trigger_while_open_is_the_probe() -> None:
    stage = Stage()
    runs = stage.runs(False, False, True)

    async def scene() -> None:
        loop = stage.add(runs, breaker=Breaker(1, "100s"))
        async with stage.app:
            await stage.clock.advance(30)
            assert (loop.state.phase, loop.state.next_due) == (Phase.OPEN, 130.0)
            await stage.clock.advance(10)
            assert (await loop.trigger()).kind == "failed"
            assert (loop.state.phase, loop.state.next_due) == (Phase.OPEN, 140.0)
            assert (await loop.trigger()).ok
            assert (loop.state.phase, loop.state.next_due) == (Phase.WAITING, 70.0)

    stage.play(scene)


def test_a_follow_up_that_is_paused_away_is_answered() -> None:
    stage = Stage()
    runs = stage.runs(takes_s=5)

    async def scene() -> None:
        loop = stage.add(runs)
        async with stage.app:
            first, second = loop.trigger(), loop.trigger()
            await stage.clock.advance(1)
            loop.pause()
            assert (await first).ok
            assert await second == Outcome("skipped", "paused")

    stage.play(scene)
    assert runs.at == [0]


def test_a_stopped_loop_says_so_even_while_paused() -> None:
    stage = Stage()

    async def scene() -> None:
        loop = stage.add(stage.runs(Stop("done")))
        async with stage.app:
            assert (await loop.trigger()).kind == "stopped"
            loop.pause("hidden")
            assert await loop.trigger() == Outcome("skipped", "stopped")
            assert loop.state.skips == {"stopped": 1}

    stage.play(scene)


def test_a_caller_that_waits_may_give_up() -> None:
    stage = Stage()
    runs = stage.runs(takes_s=5)

    async def scene() -> None:
        loop = stage.add(runs)
        async with stage.app:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(1):
                    await loop.trigger()
            await stage.clock.advance(10)
            assert loop.state.last_ok == 5.0

    stage.play(scene)


def test_before_the_start_and_after_the_end_it_is_an_error_that_says_what_to_do() -> None:
    stage = Stage()
    loop = stage.add(stage.runs())
    with pytest.raises(NotRunning, match=r"trigger loop 'prices'.*async with app"):
        loop.trigger()

    async def scene() -> None:
        async with stage.app:
            pass
        with pytest.raises(NotRunning, match="'prices'"):
            loop.trigger()

    stage.play(scene)


def test_a_removed_loop_refuses() -> None:
    stage = Stage()

    async def scene() -> None:
        loop = stage.add(stage.runs())
        async with stage.app:
            await loop.close()
            assert await loop.trigger(force=True) == Outcome("skipped", "closed")

    stage.play(scene)


def test_trigger_read_reset_and_destroy() -> None:
    stage = Stage()
    runs = stage.runs(False, False, False, True)

    async def scene() -> None:
        loop = stage.add(runs)
        async with stage.app:
            for _ in range(2):
                await loop.trigger()
            assert (loop.state.failures, loop.state.multiplier, loop.state.next_due) == (2, 4.0, 120.0)
            loop.reset()
            assert (loop.state.failures, loop.state.multiplier, loop.state.next_due) == (0, 1.0, 30.0)
            await loop.trigger()
            assert (await loop.trigger()).ok
            assert (loop.state.failures, loop.state.multiplier) == (0, 1.0)
            await stage.app.loops.close()
            assert (loop.state.phase, timers()) == (Phase.CLOSED, 0)

    stage.play(scene)


def test_40_000_triggers_during_one_run_share_one_future_and_one_run() -> None:
    stage = Stage()
    runs = stage.runs(takes_s=5)

    async def scene() -> None:
        loop = stage.add(runs)
        async with stage.app:
            loop.trigger()
            await stage.clock.advance(1)
            triggered = [loop.trigger() for _ in range(40_000)]
            assert len({id(one._future) for one in triggered}) == 1
            assert not triggered[0].done()
            assert (await triggered[0]).ok
            assert all(one.done() for one in triggered)

    stage.play(scene)
    assert runs.at == [0, 5]


def test_one_who_gives_up_waiting_does_not_take_the_answer_from_the_others() -> None:
    stage = Stage()

    async def scene() -> None:
        loop = stage.add(stage.runs(takes_s=5))
        async with stage.app:
            loop.trigger()
            first, second = loop.trigger(), loop.trigger()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(1):
                    await first
            assert (await second).ok
            assert (await first).ok

    stage.play(scene)


def test_a_run_that_awaits_its_own_trigger_is_told_instead_of_waiting_for_ever() -> None:
    stage = Stage()
    said: list[str] = []

    async def scene() -> None:
        async def look() -> None:
            if said:
                return
            try:
                await stage.app.loops["prices"].trigger()
            except EverpollError as error:
                said.append(str(error))

        loop = stage.add(look)
        async with stage.app:
            await stage.clock.advance(31)
            assert (loop.state.phase, loop.state.runs, loop.state.failures) == (Phase.WAITING, 2, 0)

    stage.play(scene)
    assert said == ["a loop cannot await its own trigger: that run begins when this one has ended"]


def test_a_run_may_trigger_itself_and_await_another_loop() -> None:
    stage = Stage()
    other = stage.runs(takes_s=3)
    at: list[float] = []

    async def scene() -> None:
        async def look() -> None:
            at.append(stage.clock.now())
            if len(at) == 1:
                stage.app.loops["prices"].trigger()
                assert (await stage.app.loops["other"].trigger()).ok

        stage.add(other, name="other")
        stage.add(look, 10)
        async with stage.app:
            await stage.clock.advance(15)

    stage.play(scene)
    assert (at, other.at) == ([10, 13], [10])


def test_from_another_thread_it_is_refused_with_what_to_do() -> None:
    stage = Stage()

    async def scene() -> None:
        loop = stage.add(stage.runs())
        async with stage.app:
            with pytest.raises(NotRunning, match=r"'prices'.*another thread.*call_soon_threadsafe"):
                await asyncio.to_thread(loop.trigger)
            assert (loop.state.phase, loop.state.runs) == (Phase.WAITING, 0)

    stage.play(scene)
