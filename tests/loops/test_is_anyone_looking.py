"""`pause_unless` asks off the event loop, and everything is shown again once it no longer asks."""

import asyncio
import threading

import pytest

from everpoll import Phase
from everpoll.loops.registry import LOOKING
from loops.stage import Blocking, Stage, turns


@pytest.mark.parametrize("closed_by", ["remove", "close"])
def test_removing_the_question_while_hidden_shows_every_loop_again(closed_by: str) -> None:
    stage = Stage()
    runs = stage.runs()

    async def scene() -> None:
        loop = stage.add(runs, 10)
        question = stage.app.loops.pause_unless(lambda: False)
        async with stage.app:
            await stage.clock.advance(15)
            assert (loop.state.phase, runs.at) == (Phase.PAUSED, [])
            await (stage.app.loops.remove(LOOKING) if closed_by == "remove" else question.close())
            assert (loop.state.phase, loop.state.pauses) == (Phase.WAITING, frozenset())
            late = stage.add(stage.runs(), name="late")
            assert late.state.phase is Phase.WAITING
            await stage.clock.advance(11)

    stage.play(scene)
    assert runs.at == [15, 25]


def test_removing_the_question_leaves_an_operators_pause_alone() -> None:
    stage = Stage()

    async def scene() -> None:
        loop = stage.add(stage.runs(), 10)
        stage.app.loops.pause_unless(lambda: False)
        async with stage.app:
            loop.pause()
            await stage.clock.advance(5)
            await stage.app.loops.remove(LOOKING)
            assert loop.state.pauses == {"operator"}

    stage.play(scene)


def test_a_plain_question_that_blocks_does_not_block_the_event_loop() -> None:
    stage, blocking = Stage(), Blocking()
    asked_by: list[threading.Thread] = []

    def looking() -> bool:
        asked_by.append(threading.current_thread())
        return blocking()

    async def scene() -> None:
        question = stage.app.loops.pause_unless(looking)
        async with stage.app:
            question.trigger()
            await turns()
            # Were it called on the event loop, nothing would get here before its patience is over.
            blocking.wait_until_entered()
            assert question.state.phase is Phase.RUNNING
            blocking.let_go.set()
            await stage.clock.advance(1)

    stage.play(scene)
    assert threading.main_thread() not in asked_by


def test_the_answer_may_be_awaited_whatever_kind_of_function_gives_it() -> None:
    async def not_looking() -> bool:
        return False

    def not_looking_later() -> object:
        return asyncio.sleep(0, result=False)

    for looking in (not_looking, not_looking_later):
        stage = Stage()
        runs = stage.runs()

        async def scene(stage: Stage = stage, runs: object = runs, looking: object = looking) -> None:
            loop = stage.add(runs, 10)  # type: ignore[arg-type]
            stage.app.loops.pause_unless(looking)  # type: ignore[arg-type]
            async with stage.app:
                await stage.clock.advance(15)
                assert loop.state.phase is Phase.PAUSED

        stage.play(scene)
        assert runs.at == []


def test_a_question_that_fails_lets_the_loops_run() -> None:
    stage = Stage()
    runs = stage.runs()
    answers: list[bool] = [False]

    async def looking() -> bool:
        return answers.pop()

    async def scene() -> None:
        stage.add(runs, 5)
        stage.app.loops.pause_unless(looking, every="10s")
        async with stage.app:
            await stage.clock.advance(9)
            assert runs.at == []
            await stage.clock.advance(1)
            assert stage.app.loops["everpoll.looking"].state.failures == 1
            await stage.clock.advance(1)

    stage.play(scene)
    assert runs.at == [10]
