"""The base follows how often the data changes: halved on a change, half as long again after three looks without one."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everpoll.policy import Adaptive

ADAPTIVE = Adaptive("5s", "60s")


@pytest.mark.parametrize(
    ("base_s", "unchanged", "changed", "expected"),
    [
        (40, 0, True, (20, 0)),
        (40, 2, True, (20, 0)),
        (8, 0, True, (5, 0)),
        (5, 0, True, (5, 0)),
        (40, 0, False, (40, 1)),
        (40, 1, False, (40, 2)),
        (40, 2, False, (60, 0)),
        (20, 2, False, (30, 0)),
        (60, 2, False, (60, 0)),
    ],
)
def test_the_next_base(base_s: float, unchanged: int, changed: bool, expected: tuple[float, int]) -> None:
    assert ADAPTIVE.next_base(base_s, unchanged, changed) == expected


def test_the_streak_starts_over_after_each_step() -> None:
    """Quiet data from 10 s: three looks at each base, then half as long again."""
    base_s, unchanged, bases_s = 10.0, 0, []
    for _ in range(9):
        base_s, unchanged = ADAPTIVE.next_base(base_s, unchanged, changed=False)
        bases_s.append(base_s)
    assert bases_s == [10, 10, 15, 15, 15, 22.5, 22.5, 22.5, 33.75]


@settings(derandomize=True, deadline=None)
@given(st.floats(5, 60), st.lists(st.booleans(), max_size=60))
def test_the_base_stays_within_its_bounds_and_moves_the_right_way(base_s: float, looks: list[bool]) -> None:
    unchanged = 0
    for changed in looks:
        before_s = base_s
        base_s, unchanged = ADAPTIVE.next_base(base_s, unchanged, changed)
        assert 5 <= base_s <= 60
        assert 0 <= unchanged < 3
        assert base_s <= before_s if changed else base_s >= before_s
