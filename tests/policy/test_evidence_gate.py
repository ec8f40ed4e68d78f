"""The probe of the result waits for 5 s of run time and then comes at most every 15 s."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everpoll.policy import Gate

PROBE = Gate(after="5s", every="15s")


@pytest.mark.parametrize(
    ("last_at", "now", "due"),
    [
        (None, 100, False),
        (None, 104.9, False),
        (None, 105, True),
        (105, 119.9, False),
        (105, 120, True),
        (105, 500, True),
        (80, 104, False),
    ],
)
def test_when_the_gate_is_open(last_at: float | None, now: float, due: bool) -> None:
    assert PROBE.due(last_at, started_at=100, now=now) is due


def test_a_gate_without_figures_is_always_open() -> None:
    assert Gate().due(last_at=7, started_at=7, now=7)


def test_the_hint_is_when_it_opens() -> None:
    assert PROBE.hint_at(None, started_at=100) == 105
    assert PROBE.hint_at(105, started_at=100) == 120


@settings(derandomize=True, deadline=None)
@given(st.lists(st.floats(0, 40), max_size=50))
def test_passing_whenever_it_is_open_never_passes_too_often(steps: list[float]) -> None:
    now, last_at, passed_at = 100.0, None, []
    for later_s in steps:
        now += later_s
        if PROBE.due(last_at, 100.0, now):
            last_at = now
            passed_at.append(now)
    assert all(at >= 105 for at in passed_at)
    assert all(later - earlier >= 15 - 1e-9 for earlier, later in pairwise(passed_at))
