"""Backoff gives every sequence of waits that the requirements print."""

import pytest

from everpoll.policy import Backoff

SEQUENCES = [
    # The document prints 16.87 and 25.31.
    pytest.param(
        Backoff("5s", factor=1.5, cap="30s", steady=2), [5, 5, 7.5, 11.25, 16.875, 25.3125, 30, 30], id="empty polls"
    ),
    pytest.param(Backoff("1s", cap="10s", steady=0), [2, 4], id="tries of a look"),
    pytest.param(Backoff("2s", factor=2, cap="30s", jitter=0.2), [2, 4, 8, 16, 30, 30], id="looks of a watch"),
    # Six tries have five waits between them.
    pytest.param(Backoff("1.5s", cap="8s"), [1.5, 3, 6, 8, 8], id="readiness"),
    pytest.param(
        Backoff("1s", factor=2, cap="5m"), [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300], id="failing services"
    ),
    pytest.param(Backoff("30s", cap="240s", steady=0), [60, 120, 240, 240], id="failing loops"),
]


@pytest.mark.parametrize(("backoff", "waits_s"), SEQUENCES)
def test_waits_are_those_of_the_requirement(backoff: Backoff, waits_s: list[float]) -> None:
    assert [backoff.wait_s(n) for n in range(1, len(waits_s) + 1)] == waits_s


@pytest.mark.parametrize(("backoff", "waits_s"), SEQUENCES)
def test_a_delay_without_a_generator_is_the_bare_wait(backoff: Backoff, waits_s: list[float]) -> None:
    assert [backoff.delay(n) for n in range(1, len(waits_s) + 1)] == waits_s


@pytest.mark.parametrize("steady", [0, 1, 2])
def test_before_any_wait_it_is_the_initial_one(steady: int) -> None:
    assert Backoff("30s", steady=steady).wait_s(0) == 30


def test_a_factor_of_1_never_grows() -> None:
    assert {Backoff("3s", factor=1).wait_s(n) for n in (1, 2, 1000, 10**9)} == {3.0}
