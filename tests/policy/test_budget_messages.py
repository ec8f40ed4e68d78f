"""A spent budget says which one it was, its figure and the actual one; time left never exceeds the budget."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everpoll.policy import Budget

BUDGET = Budget("29m", looks=120)


@pytest.mark.parametrize(
    ("elapsed_s", "looks", "message"),
    [
        (0, 0, None),
        (1739.9, 119, None),
        (1740, 3, "time budget of 29m is spent: 29m since the start"),
        (1770, 3, "time budget of 29m is spent: 29m30s since the start"),
        (600, 120, "budget of 120 looks is spent: 120 looks since the start"),
        (600, 121, "budget of 120 looks is spent: 121 looks since the start"),
        # The clock from the persisted start counts.
        (1740, 120, "time budget of 29m is spent: 29m since the start"),
    ],
)
def test_what_is_spent_and_when(elapsed_s: float, looks: int, message: str | None) -> None:
    assert BUDGET.spent(elapsed_s, looks) == message


def test_looks_are_unlimited_unless_a_number_is_given() -> None:
    assert Budget("29m").spent(0, 10**9) is None


@pytest.mark.parametrize(("elapsed_s", "left_s"), [(0, 1740), (1730, 10), (1740, 0), (1770, 0), (-3600, 1740)])
def test_what_remains_is_from_0_to_the_whole_budget(elapsed_s: float, left_s: float) -> None:
    """The last delay is clamped to it, so no look happens at 1770 s; a clock set back an hour adds nothing."""
    assert BUDGET.remaining_s(elapsed_s) == left_s


@settings(derandomize=True, deadline=None)
@given(st.floats(-1e6, 1e6))
def test_a_budget_is_spent_exactly_when_nothing_remains(elapsed_s: float) -> None:
    assert (BUDGET.spent(elapsed_s, 0) is not None) == (BUDGET.remaining_s(elapsed_s) == 0)
