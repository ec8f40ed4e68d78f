"""Whatever a function, its result or its condition is made of: the run is counted and the loop goes on."""

import asyncio
import logging
from typing import Any

import pytest

from everpoll import Adaptive, Loop, Ok, Phase
from loops.stage import Stage


class Ambiguous:
    def __bool__(self) -> bool:
        raise ValueError("ambiguous")


class Proxy:
    @property  # type: ignore[misc]  # Read-only: reading is what fails.
    def __class__(self) -> Any:
        raise RuntimeError("unbound proxy")


class Unreadable(Exception):
    def __str__(self) -> str:
        raise SystemError("no text")

    __repr__ = __str__


class Canceling(Exception):
    def __str__(self) -> str:
        raise asyncio.CancelledError


class Incomparable:
    def __eq__(self, other: object) -> bool:
        raise ValueError("no order")

    __ne__ = __eq__
    __hash__ = None  # type: ignore[assignment]


def played(stage: Stage, loop: Loop, seconds: float) -> None:
    """Let it run, and let nothing reach the event loop's handler of uncaught errors."""
    uncaught: list[Any] = []

    async def scene() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: uncaught.append(context))
        async with stage.app:
            await stage.clock.advance(seconds)
            assert loop.state.phase is Phase.WAITING

    stage.play(scene)
    assert uncaught == []


@pytest.mark.parametrize("in_thread", [False, True])
@pytest.mark.parametrize(
    ("error", "answer"),
    [
        (Unreadable(), "Unreadable: (its text cannot be read)"),
        (Canceling(), "Canceling: (its text cannot be read)"),
    ],
)
def test_an_exception_that_cannot_be_printed_is_a_failure(error: Exception, answer: str, in_thread: bool) -> None:
    stage = Stage()

    def plain() -> None:
        raise error

    async def slow() -> None:
        raise error

    loop = stage.add(plain if in_thread else slow)
    played(stage, loop, 95)
    assert (loop.state.failures, loop.state.runs, loop.state.last_error) == (2, 2, answer)


@pytest.mark.parametrize("in_thread", [False, True])
def test_a_result_whose_class_cannot_be_read_is_a_failure(in_thread: bool) -> None:
    stage = Stage()

    async def slow() -> object:
        return Proxy()

    loop = stage.add(Proxy if in_thread else slow, name="prices")
    played(stage, loop, 31)
    assert (loop.state.failures, loop.state.last_error) == (1, "RuntimeError: unbound proxy")


def test_a_result_that_is_too_long_to_print_is_a_success_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage()
    loop = stage.add(stage.runs(10**5000, 10**5000))
    with caplog.at_level(logging.WARNING):
        played(stage, loop, 61)
    assert (loop.state.failures, loop.state.runs, loop.state.last_ok) == (0, 2, 60.0)
    assert len([message for message in caplog.messages if "says nothing" in message]) == 1


def test_values_that_cannot_be_compared_are_a_success() -> None:
    stage = Stage()
    loop = stage.add(stage.runs(Ok(Incomparable()), Ok(Incomparable())), adaptive=Adaptive("1s", "5m"))
    played(stage, loop, 61)
    assert (loop.state.failures, loop.state.runs, loop.state.base_s) == (0, 2, 15.0)


@pytest.mark.parametrize("kind", ["plain", "async"])
def test_a_condition_whose_answer_is_neither_yes_nor_no_is_a_failure(kind: str) -> None:
    stage = Stage()
    runs = stage.runs()

    async def slow() -> object:
        return Ambiguous()

    loop = stage.add(runs, when=Ambiguous if kind == "plain" else slow)
    played(stage, loop, 95)
    assert (runs.at, loop.state.failures, loop.state.last_error) == ([], 2, "condition: ValueError: ambiguous")


@pytest.mark.parametrize("kind", ["plain", "async"])
@pytest.mark.parametrize("error", [Unreadable(), Canceling()])
def test_a_condition_whose_error_cannot_be_printed_is_a_failure(error: Exception, kind: str) -> None:
    stage = Stage()

    def plain() -> bool:
        raise error

    async def slow() -> bool:
        raise error

    loop = stage.add(stage.runs(), when=plain if kind == "plain" else slow)
    played(stage, loop, 95)
    assert loop.state.failures == 2
    assert (loop.state.last_error or "").endswith("(its text cannot be read)")
