"""A loop never overlaps itself and keeps one timer, whatever is called during a run; late results are dropped."""

import asyncio

import pytest

from everpoll import Adaptive, EverpollWarning, Ok, Outcome, Phase, Stop
from loops.stage import Stage, timers


def test_a_slow_run_is_waited_for() -> None:
    stage = Stage()
    runs = stage.runs(takes_s=95)

    async def scene() -> None:
        loop = stage.add(runs, 10)
        async with stage.app:
            for _ in range(20):
                loop.trigger()
                await stage.clock.advance(20)

    stage.play(scene)
    assert runs.most_at_once == 1
    assert runs.at == [0, 95, 190, 285, 380]


def test_named_runners_each_with_its_own_state() -> None:
    stage = Stage()

    async def scene() -> None:
        good = stage.add(stage.runs(), 10, "good")
        bad = stage.add(stage.runs(*[False] * 3), 20, "bad")
        async with stage.app:
            await stage.clock.advance(60)
            assert (good.state.failures, good.state.multiplier, good.state.runs) == (0, 1.0, 6)
            assert (bad.state.failures, bad.state.multiplier, bad.state.runs) == (2, 4.0, 2)
            assert stage.app.loops["bad"] is bad
            assert list(stage.app.loops) == ["good", "bad"]

    stage.play(scene)


def test_registering_a_name_again_replaces_it_with_a_warning() -> None:
    stage = Stage()
    old, new = stage.runs(False), stage.runs()

    async def scene() -> None:
        stage.app.loops.add(old, 30, name="prices", jitter=0)
        async with stage.app:
            await stage.clock.advance(31)
            with pytest.warns(EverpollWarning, match="'prices' is registered already"):
                stage.app.loops.add(new, 10, name="prices", jitter=0)
            loop = stage.app.loops["prices"]
            assert (loop.state.failures, loop.state.next_due, len(stage.app.loops)) == (0, 41.0, 1)
            await stage.clock.advance(20)

    stage.play(scene)
    assert (old.at, new.at) == ([30], [41, 51])


def test_mistake_02_re_registering_during_a_failing_run_leaves_one_timer() -> None:
    stage = Stage()
    old, new = stage.runs(False, takes_s=0.5), stage.runs()

    async def scene() -> None:
        stage.add(old, 1)
        async with stage.app:
            await stage.clock.advance(1.2)
            loop = stage.add(new, 1)
            await stage.clock.advance(10)
            assert (loop.state.failures, loop.state.last_error, timers()) == (0, None, 1)

    stage.play(scene)
    assert len(old.at) == 1
    assert len(new.at) == 10


def test_mistake_03_closing_during_a_run_leaves_no_timer() -> None:
    stage = Stage()
    runs = stage.runs(False, takes_s=5)

    async def scene() -> None:
        loop = stage.add(runs)
        async with stage.app:
            await stage.clock.advance(31)
            await loop.close(grace="10s")
            assert (loop.state.phase, loop.state.in_flight, timers()) == (Phase.CLOSED, 0, 0)
            assert "prices" not in stage.app.loops
            await stage.clock.advance(1000)

    stage.play(scene)
    assert runs.at == [30]


def test_edge_re_register_during_a_run_waits_for_it() -> None:
    stage = Stage()
    old, new = stage.runs(takes_s=50), stage.runs(takes_s=1)

    async def scene() -> None:
        stage.add(old)
        async with stage.app:
            await stage.clock.advance(31)
            loop = stage.add(new, 10)
            await stage.clock.advance(48)
            assert (old.under_way, new.at, timers()) == (1, [], 0)
            await stage.clock.advance(1)
            assert (old.under_way, new.at, old.canceled) == (0, [80], 0)
            await stage.clock.advance(1)
            assert loop.state.last_ok == 81.0

    stage.play(scene)


def test_edge_re_register_during_a_run_tells_the_hook_that_began_it() -> None:
    stage = Stage()
    old_hook, new_hook = list[Outcome](), list[Outcome]()

    async def scene() -> None:
        stage.add(stage.runs(False, takes_s=5), on_outcome=old_hook.append)
        async with stage.app:
            await stage.clock.advance(31)
            stage.add(stage.runs(), on_outcome=new_hook.append)
            await stage.clock.advance(10)

    stage.play(scene)
    assert [outcome.kind for outcome in old_hook] == ["failed"]
    assert new_hook == []


def test_edge_re_register_during_a_run_does_not_compare_with_the_old_value() -> None:
    stage = Stage()
    adaptive = Adaptive("1s", "5m")

    async def scene() -> None:
        stage.add(stage.runs(Ok("old"), takes_s=5), adaptive=adaptive)
        async with stage.app:
            await stage.clock.advance(31)
            loop = stage.add(stage.runs(Ok("new")), adaptive=adaptive)
            await stage.clock.advance(31)
            assert (loop.state.runs, loop.state.base_s) == (2, 30.0)

    stage.play(scene)


def test_edge_re_register_during_a_run_that_has_not_begun() -> None:
    stage = Stage()
    old, new = stage.runs(), stage.runs(False)

    async def scene() -> None:
        loop = stage.add(old)
        async with stage.app:
            answer = loop.trigger()
            stage.add(new)
            assert (await answer).kind == "ok"
            assert (loop.state.failures, loop.state.last_ok) == (0, None)
            await stage.clock.advance(30)
            assert loop.state.failures == 1

    stage.play(scene)
    # What was begun with the old function ends with it; its result is dropped.
    assert (old.at, new.at) == ([0], [30])


def test_edge_re_register_during_a_run_while_its_condition_is_asked() -> None:
    stage = Stage()
    old, new = stage.runs(), stage.runs()

    async def slow_yes() -> bool:
        await asyncio.sleep(5)
        return True

    async def scene() -> None:
        stage.add(old, when=slow_yes)
        async with stage.app:
            await stage.clock.advance(31)
            stage.add(new)
            await stage.clock.advance(31)

    stage.play(scene)
    assert (old.at, new.at) == ([], [61])


def test_edge_reset_during_a_run() -> None:
    stage = Stage()
    runs = stage.runs(False, False, False, takes_s=5)

    async def scene() -> None:
        loop = stage.add(runs)
        async with stage.app:
            await loop.trigger()
            await loop.trigger()
            answer = loop.trigger()
            await stage.clock.advance(1)
            loop.reset()
            assert (loop.state.phase, loop.state.failures, timers()) == (Phase.RUNNING, 0, 0)
            await answer
            assert (loop.state.failures, loop.state.next_due, timers()) == (1, 75.0, 1)

    stage.play(scene)
    assert runs.most_at_once == 1


def test_edge_stop_during_a_run_with_triggers_waiting() -> None:
    stage = Stage()
    runs = stage.runs(Stop("sold out"), takes_s=5)

    async def scene() -> None:
        loop = stage.add(runs)
        async with stage.app:
            first = loop.trigger()
            await stage.clock.advance(1)
            second = loop.trigger()
            assert (await first).kind == "stopped"
            assert await second == Outcome("skipped", "stopped")
            await stage.clock.advance(1000)
            assert (loop.state.phase, loop.state.stop_reason, timers()) == (Phase.STOPPED, "sold out", 0)
            loop.reset()
            await stage.clock.advance(30)

    stage.play(scene)
    assert runs.at == [0, 1035]


def test_registered_while_the_app_runs() -> None:
    stage = Stage()
    runs = stage.runs()

    async def scene() -> None:
        async with stage.app:
            await stage.clock.advance(100)
            loop = stage.add(runs)
            assert loop.state.phase is Phase.WAITING
            await stage.clock.advance(31)

    stage.play(scene)
    assert runs.at == [130]


def test_a_loop_may_replace_and_trigger_itself() -> None:
    stage = Stage()
    new = stage.runs()

    async def scene() -> None:
        async def old() -> None:
            stage.add(new, 5)
            stage.app.loops["prices"].trigger()

        stage.add(old)
        async with stage.app:
            await stage.clock.advance(41)

    stage.play(scene)
    assert new.at == [30, 35, 40]
