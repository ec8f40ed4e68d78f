"""A condition that says no skips the run and touches nothing else; one that raises is a failure of the loop."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from everpoll import Breaker, Phase
from loops.stage import Stage

Answers = Callable[[list[object]], Callable[[], bool | Awaitable[bool]]]


def plain(answers: list[object]) -> Callable[[], bool]:
    def when() -> bool:
        answer = answers.pop(0) if answers else True
        if isinstance(answer, BaseException):
            raise answer
        return bool(answer)

    return when


def slow(answers: list[object]) -> Callable[[], Awaitable[bool]]:
    ask = plain(answers)

    async def when() -> bool:
        await asyncio.sleep(1)
        return ask()

    return when


both = pytest.mark.parametrize("condition", [plain, slow])


@both
def test_semantics_05_a_skip_is_counted_with_its_reason(condition: Answers) -> None:
    stage = Stage()
    runs = stage.runs()

    async def scene() -> None:
        loop = stage.add(runs, when=condition([False, 0, ""]))
        async with stage.app:
            await stage.clock.advance(100)
            assert loop.state.skips == {"condition": 3}
            assert (loop.state.runs, loop.state.failures, loop.state.last_completed) == (0, 0, None)
            await stage.clock.advance(30)
            assert len(runs.at) == loop.state.runs == 1

    stage.play(scene)


@both
def test_mistake_09_a_skip_does_not_reset_the_backoff(condition: Answers) -> None:
    stage = Stage()

    async def scene() -> None:
        loop = stage.add(stage.runs(False, False), when=condition([True, True, False]))
        async with stage.app:
            await stage.clock.advance(300)
            assert loop.state.skips == {"condition": 1}
            assert (loop.state.failures, loop.state.multiplier) == (2, 4.0)

    stage.play(scene)


@both
def test_mistake_08_a_condition_that_raises_is_a_failure(condition: Answers) -> None:
    stage = Stage()
    runs = stage.runs()

    async def scene() -> None:
        loop = stage.add(runs, when=condition([RuntimeError("who asks?"), KeyError("x")]))
        async with stage.app:
            await stage.clock.advance(35)
            assert (loop.state.failures, loop.state.last_error) == (1, "condition: RuntimeError: who asks?")
            await stage.clock.advance(60)
            assert (loop.state.failures, loop.state.phase) == (2, Phase.WAITING)
            assert runs.at == []
            await stage.clock.advance(125)
            assert len(runs.at) == 1
            assert loop.state.failures == 0

    stage.play(scene)


def test_mistake_08_a_condition_that_keeps_raising_waits_for_each_cooldown() -> None:
    stage = Stage()
    asked: list[float] = []

    def when() -> bool:
        asked.append(stage.clock.now())
        raise RuntimeError("broken")

    async def scene() -> None:
        loop = stage.add(stage.runs(), when=when, breaker=Breaker(2, "100s"))
        async with stage.app:
            await stage.clock.advance(400)
            assert loop.state.phase is Phase.OPEN

    stage.play(scene)
    assert asked == [30, 90, 190, 290, 390]


def test_a_plain_condition_that_raises_cancellation_is_a_failure_too() -> None:
    stage = Stage()
    runs = stage.runs()

    async def scene() -> None:
        loop = stage.add(runs, when=plain([asyncio.CancelledError()]))
        async with stage.app:
            await stage.clock.advance(95)
            assert loop.state.last_error == "condition: CancelledError"

    stage.play(scene)
    assert runs.at == [90]


def test_a_plain_condition_that_returns_a_coroutine_is_told_how_to_be_written() -> None:
    stage = Stage()

    async def scene() -> None:
        async def asleep() -> bool:
            return True

        def forgot_to_await() -> object:
            return asleep()

        loop = stage.add(stage.runs(), when=forgot_to_await)
        async with stage.app:
            await stage.clock.advance(30)
            assert "async def" in (loop.state.last_error or "")

    stage.play(scene)


@both
def test_a_trigger_does_not_ask(condition: Answers) -> None:
    stage = Stage()

    async def scene() -> None:
        loop = stage.add(stage.runs(), when=condition([False] * 5))
        async with stage.app:
            assert (await loop.trigger()).ok
            assert loop.state.skips == {}

    stage.play(scene)


def test_a_condition_may_do_anything_to_its_own_loop() -> None:
    stage = Stage()
    runs = stage.runs()

    async def scene() -> None:
        acts: list[Callable[[], object]] = []

        def when() -> bool:
            if acts:
                acts.pop(0)()
            return True

        loop = stage.add(runs, when=when)
        acts += [loop.trigger, loop.pause, loop.reset]
        async with stage.app:
            await stage.clock.advance(31)
            assert runs.at == [30]
            await stage.clock.advance(100)
            assert loop.state.phase == "paused"
            loop.resume()
            await stage.clock.advance(0)
            assert loop.state.phase == "waiting"
            await stage.clock.advance(30)

    stage.play(scene)
    assert runs.at == [30, 161]
    assert runs.most_at_once == 1


def test_an_optional_condition_skips_without_touching_the_backoff() -> None:
    stage = Stage()
    runs = stage.runs(False)
    looking = True

    async def scene() -> None:
        nonlocal looking
        loop = stage.add(runs, when=lambda: looking)
        async with stage.app:
            await stage.clock.advance(30)
            looking = False
            await stage.clock.advance(120)
            assert (loop.state.failures, loop.state.skips) == (1, {"condition": 2})
            looking = True
            await stage.clock.advance(60)
            assert loop.state.failures == 0

    stage.play(scene)
    assert runs.at == [30, 210]


@both
def test_the_hook_hears_of_runs_only_whatever_kind_of_condition_decides(condition: Answers) -> None:
    stage, heard = Stage(), list[str]()

    async def scene() -> None:
        loop = stage.add(
            stage.runs(),
            when=condition([False, RuntimeError("who asks?"), True]),
            on_outcome=lambda outcome: heard.append(outcome.kind),
        )
        async with stage.app:
            await stage.clock.advance(31)
            assert loop.state.skips == {"condition": 1}
            await stage.clock.advance(31)
            assert loop.state.failures == 1
            await stage.clock.advance(62)

    stage.play(scene)
    assert heard == ["ok"]


def test_an_async_condition_that_hangs_is_ended_by_the_timeout() -> None:
    stage = Stage()
    runs = stage.runs()

    async def hangs() -> bool:
        await asyncio.Event().wait()
        return True

    async def scene() -> None:
        loop = stage.add(runs, when=hangs, timeout="5s")
        async with stage.app:
            await stage.clock.advance(36)
            assert (loop.state.phase, loop.state.last_error) == ("waiting", "condition: TimeoutError")

    stage.play(scene)
    assert runs.at == []


def test_an_async_condition_that_suppresses_its_timeout_has_failed_all_the_same() -> None:
    stage = Stage()
    runs = stage.runs()

    async def deaf() -> bool:
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            await asyncio.sleep(1)
        return True

    async def scene() -> None:
        loop = stage.add(runs, when=deaf, timeout="5s")
        async with stage.app:
            await stage.clock.advance(37)
            assert (loop.state.failures, loop.state.last_error) == (1, "condition: TimeoutError")

    stage.play(scene)
    assert runs.at == []


@pytest.mark.parametrize("deaf_s", [0.0, 5.0])
@pytest.mark.parametrize("ends", ["close", "remove"])
def test_a_condition_that_suppresses_cancellation_starts_nothing_after_the_end(deaf_s: float, ends: str) -> None:
    stage = Stage()
    runs = stage.runs()

    async def deaf() -> bool:
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            await asyncio.sleep(deaf_s)
        return True

    async def scene() -> None:
        loop = stage.add(runs, when=deaf)
        async with stage.app:
            await stage.clock.advance(31)
            await (stage.app.loops.close(grace=0) if ends == "close" else loop.close())
            await stage.clock.advance(100)
            assert (loop.state.phase, loop.state.in_flight) == (Phase.CLOSED, 0)

    stage.play(scene)
    assert runs.at == []


@pytest.mark.parametrize("kind", ["future", "task"])
def test_a_plain_condition_that_returns_a_future_is_a_failure_not_a_yes(kind: str) -> None:
    stage = Stage()
    runs = stage.runs()

    async def scene() -> None:
        async def no() -> bool:
            return False

        def when() -> object:
            return asyncio.ensure_future(no()) if kind == "task" else asyncio.get_running_loop().create_future()

        loop = stage.add(runs, when=when)
        async with stage.app:
            await stage.clock.advance(31)
            assert loop.state.failures == 1
            assert "async def" in (loop.state.last_error or "")

    stage.play(scene)
    assert runs.at == []
