"""Whatever the history says, a learned cadence stays within the bounds of its fallback, and it never raises."""

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everpoll import Backoff
from everpoll.watches.end_curve import FEWEST
from everpoll.watches.learned_plan import CAPS, Plan, planned, waited_s
from everpoll.watches.past_runs import PastRun, tenth

HALF = type("Half", (Random,), {"random": lambda _self: 0.5})()
"""A chance that leaves every wait as it is."""
ANY = st.floats(allow_nan=True, allow_infinity=True)
"""Any float: not a number, negative, infinite, the smallest and the largest."""
TIMES = st.one_of(st.floats(0, 10), st.floats(0, 5_000), st.floats(0, 1e308), st.sampled_from([0.0, 60.0, math.inf]))
MARKS = st.tuples(st.floats(0, 1, exclude_min=True), st.floats(0.001, 10_000))


@st.composite
def past_runs(draw: st.DrawFn) -> PastRun:
    if draw(st.integers(0, 5)) == 0:
        marks = draw(st.lists(st.tuples(ANY, ANY), max_size=4))
        return PastRun(draw(ANY), draw(ANY), tuple(marks))
    low, high = sorted((draw(TIMES), draw(TIMES)))
    return PastRun(low, high, tuple(draw(st.lists(MARKS, max_size=4))))


@st.composite
def backoffs(draw: st.DrawFn) -> Backoff:
    initial = draw(st.floats(0.1, 60))
    cap = draw(st.one_of(st.none(), st.floats(initial, 3_600)))
    return Backoff(initial, draw(st.floats(1, 3)), cap, 0, draw(st.integers(0, 3)))


def _drawn(seed: int, size: int, spread: float) -> list[PastRun]:
    rng = Random(seed)
    ends = [60 * rng.lognormvariate(0, spread) for _ in range(size)]
    return [PastRun(end * rng.random(), end) for end in ends]


HISTORIES = st.one_of(
    st.lists(past_runs(), max_size=40),
    st.builds(
        _drawn,
        st.integers(0, 1_000),
        st.integers(FEWEST, 200),
        st.floats(0, 2),
    ),
)


@given(
    backoffs(),
    HISTORIES,
    st.sampled_from([None, 1.0, 0.5, 0.05]),
    st.lists(st.floats(0, 1, exclude_min=True), max_size=12),
)
def test_no_look_comes_before_that_of_the_fallback_and_no_gap_is_too_long(
    fallback: Backoff, history: list[PastRun], looks: float | None, shares: list[float]
) -> None:
    plan = planned(fallback, looks, 1.0, history)
    at_s, marks = 0.0, list[tuple[float, float]]()
    for number in range(30):
        wait_s, why = plan.next_look(number, at_s, marks, HALF)
        own_s = fallback.wait_s(number + 1)
        cap_s = own_s if fallback.cap_s > 3_600 else fallback.cap_s
        assert 0 < wait_s <= max(CAPS * cap_s, at_s / 2) * (1 + 1e-9)
        assert at_s + wait_s >= sum(fallback.wait_s(n + 1) for n in range(number + 1)) * (1 - 1e-9)
        assert why
        at_s += wait_s
        if number < len(shares) and (not marks or tenth(shares[number]) > tenth(marks[-1][0])):
            marks.append((shares[number], at_s))


@given(
    backoffs(),
    HISTORIES,
    st.sampled_from([None, 1.0, 0.5]),
    st.integers(0, 1_000_000),
    ANY,
    st.lists(st.tuples(ANY, ANY), max_size=3),
)
def test_whatever_a_run_has_shown_there_is_a_wait_and_a_reason(
    fallback: Backoff,
    history: list[PastRun],
    looks: float | None,
    number: int,
    elapsed_s: float,
    marks: list[tuple[float, float]],
) -> None:
    wait_s, why = planned(fallback, looks, 1.0, history).next_look(number, elapsed_s, marks, HALF)
    assert 0 < wait_s < math.inf
    assert why


@given(backoffs(), st.integers(0, 60))
def test_when_the_nth_look_of_a_backoff_comes(backoff: Backoff, looks: int) -> None:
    assert waited_s(backoff, looks) == pytest.approx(sum(backoff.wait_s(n + 1) for n in range(looks)), rel=1e-6)


def test_after_many_looks_that_others_asked_for_it_waits_as_the_fallback_does() -> None:
    fallback = Backoff("2s", cap="30s", jitter=0)
    plan: Plan = planned(fallback, None, 1.0, _drawn(1, 50, 0.3))
    wait_s, _ = plan.next_look(100, 20.0, (), HALF)
    assert wait_s == 30
