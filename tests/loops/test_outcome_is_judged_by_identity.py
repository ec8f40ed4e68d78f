"""What a function returns is judged by identity: None and True succeed, False and exceptions fail, 0 and "" do not."""

import logging
from typing import Any

import pytest

from everpoll import Failed, Ok, Outcome, Phase, Snooze, Stop
from everpoll.loops.outcome import ERROR_TEXT_LIMIT
from loops.stage import Stage


def outcome_of(answer: object, **options: Any) -> tuple[Outcome, Any]:
    stage, got = Stage(), list[tuple[Outcome, Any]]()

    async def scene() -> None:
        loop = stage.add(stage.runs(answer), **options)
        async with stage.app:
            got.append((await loop.trigger(), loop.state))

    stage.play(scene)
    return got[0]


@pytest.mark.parametrize("answer", [None, True, Ok(), Ok(False), Ok(0)])
def test_semantics_01_success(answer: object) -> None:
    outcome, state = outcome_of(answer)
    assert outcome.ok
    assert (state.failures, state.last_ok, state.next_due) == (0, 0.0, 30.0)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (False, "returned False"),
        (ValueError("no route"), "ValueError: no route"),
        (KeyError(), "KeyError"),
        (TimeoutError("its own"), "TimeoutError: its own"),
        (Failed("quota"), "quota"),
    ],
)
def test_semantics_01_failure(answer: object, reason: str) -> None:
    outcome, state = outcome_of(answer)
    assert (outcome.kind, outcome.reason) == ("failed", reason)
    assert (state.failures, state.multiplier, state.last_error, state.next_due) == (1, 2.0, reason, 60.0)


@pytest.mark.parametrize("answer", [0, "", [], {}, 0.0, 1, "False", object()])
def test_semantics_01_any_other_value_is_a_success(answer: object) -> None:
    outcome, state = outcome_of(answer)
    assert outcome.ok
    assert state.failures == 0


def test_semantics_01_its_own_timeout_is_a_failure_of_that_name() -> None:
    stage = Stage()

    async def scene() -> None:
        loop = stage.add(stage.runs(takes_s=60), timeout="5s")
        async with stage.app:
            await stage.clock.advance(35)
            assert (loop.state.failures, loop.state.last_error, loop.state.next_due) == (1, "timeout", 95.0)

    stage.play(scene)


def test_semantics_01_snooze_and_stop() -> None:
    outcome, state = outcome_of(Snooze("5s"))
    assert (outcome.kind, state.failures, state.next_due, state.last_ok) == ("snoozed", 0, 5.0, None)
    outcome, state = outcome_of(Stop("sold out"))
    assert (outcome.kind, outcome.reason, state.phase) == ("stopped", "sold out", Phase.STOPPED)


def test_a_wrong_return_warns_once_names_the_loop_and_says_what_to_return(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage()

    async def scene() -> None:
        stage.add(stage.runs(0, "x", []))
        async with stage.app:
            await stage.clock.advance(90)

    with caplog.at_level(logging.WARNING):
        stage.play(scene)
    (reported,) = caplog.messages
    assert "'prices'" in reported
    assert "None or True" in reported
    assert "Failed(reason)" in reported


def test_what_is_kept_of_an_error_is_limited() -> None:
    outcome, _ = outcome_of(ValueError("x" * 10_000))
    assert outcome.reason is not None
    assert len(outcome.reason) == ERROR_TEXT_LIMIT


def test_30_s_becomes_60_120_240_240() -> None:
    stage = Stage()
    runs = stage.runs(False, ValueError(), False, False, False)

    async def scene() -> None:
        stage.add(runs)
        async with stage.app:
            await stage.clock.advance(930)

    stage.play(scene)
    assert runs.at == [30, 90, 210, 450, 690, 930]


def test_a_success_resets_both_and_the_base_holds_from_that_moment() -> None:
    stage = Stage()
    runs = stage.runs(False, False, True)

    async def scene() -> None:
        loop = stage.add(runs)
        async with stage.app:
            await stage.clock.advance(210)
            assert (loop.state.failures, loop.state.multiplier, loop.state.next_due) == (0, 1.0, 240.0)
            await stage.clock.advance(60)

    stage.play(scene)
    assert runs.at == [30, 90, 210, 240, 270]


def test_a_result_that_cannot_even_be_shown_is_a_success_too() -> None:
    class Unshowable:
        def __repr__(self) -> str:
            raise ValueError("no")

    outcome, state = outcome_of(Unshowable())
    assert outcome.ok
    assert state.last_ok == 0.0
