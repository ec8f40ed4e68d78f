"""A backoff never overflows, never shrinks, and its jitter, floor and deadline hold for every draw."""

import math
import random
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everpoll.policy import LONGEST_S, Backoff, growth, spread, spread_up

reproducible = settings(derandomize=True, deadline=None)

backoffs = st.builds(
    lambda initial, factor, room, jitter, steady: Backoff(initial, factor, initial * room, jitter, steady),
    initial=st.floats(0.001, 3600),
    factor=st.floats(1, 10),
    room=st.floats(1, 1000),
    jitter=st.floats(0, 1),
    steady=st.integers(0, 5),
)
numbers = st.integers(1, 3000) | st.just(10**9)
chances = st.floats(0, 1, exclude_max=True)


@dataclass
class Drawn:
    """A generator that gives one chance, and tells how often it was asked."""

    chance: float
    asked: int = 0

    def random(self) -> float:
        self.asked += 1
        return self.chance


@pytest.mark.parametrize("n", [2000, 10**9, 10**400])
def test_a_late_wait_is_the_cap_and_no_overflow(n: int) -> None:
    assert Backoff("1s", factor=2, cap="5m").wait_s(n) == 300


@pytest.mark.parametrize("n", [2000, 10**9, 10**400])
def test_without_a_cap_waits_stop_growing_at_ten_years(n: int) -> None:
    backoff = Backoff("1s")
    assert backoff.wait_s(n) == LONGEST_S
    assert backoff.delay(n, Drawn(0.999)) == LONGEST_S


@pytest.mark.parametrize(
    ("factor", "exponent", "expected"),
    [(2, 3, 8), (2, 0, 1), (1.5, 2, 2.25), (2, 2000, math.inf), (1, 10**400, 1), (2, 10**400, math.inf)],
)
def test_growth_is_a_power_or_infinity(factor: float, exponent: int, expected: float) -> None:
    assert growth(factor, exponent) == expected


@reproducible
@given(backoffs, numbers)
def test_waits_never_shrink_and_never_pass_the_cap(backoff: Backoff, n: int) -> None:
    assert backoff.initial_s <= backoff.wait_s(n) <= backoff.wait_s(n + 1) <= backoff.cap_s


@reproducible
@given(backoffs, numbers, chances)
def test_jitter_stays_around_the_capped_wait(backoff: Backoff, n: int, chance: float) -> None:
    wait_s = backoff.wait_s(n)
    delay_s = backoff.delay(n, Drawn(chance))
    assert delay_s == pytest.approx(wait_s + (2 * chance - 1) * backoff.jitter * wait_s)
    assert wait_s * (1 - backoff.jitter) <= delay_s <= wait_s * (1 + backoff.jitter)


def test_delays_fill_20_percent_on_either_side_of_the_cap() -> None:
    """At the cap, every delay lies from 24 to 36 s, both sides are used, and nothing compounds over looks."""
    rng = random.Random(4)
    backoff = Backoff("2s", factor=2, cap="30s", jitter=0.2)
    delays_s = [backoff.delay(n, rng) for n in range(5, 2005)]
    assert 24 <= min(delays_s) < 24.2
    assert 35.8 < max(delays_s) <= 36
    assert sum(delays_s) / len(delays_s) == pytest.approx(30, rel=0.01)


@pytest.mark.parametrize(("n", "wait_s"), [(1, 2), (2, 4), (3, 8), (4, 16), (5, 30)])
def test_bounds_of_each_look(n: int, wait_s: float) -> None:
    backoff = Backoff("2s", factor=2, cap="30s", jitter=0.2)
    assert backoff.delay(n, Drawn(0.0)) == pytest.approx(wait_s * 0.8)
    assert backoff.delay(n, Drawn(0.5)) == wait_s
    assert backoff.delay(n, Drawn(1.0)) == pytest.approx(wait_s * 1.2)


@reproducible
@given(backoffs, numbers, chances, st.floats(0, 1e8))
def test_a_delay_is_never_below_the_floor(backoff: Backoff, n: int, chance: float, floor_s: float) -> None:
    delay_s = backoff.delay(n, Drawn(chance), at_least_s=floor_s)
    assert delay_s >= floor_s
    assert delay_s <= max(floor_s, backoff.wait_s(n)) * (1 + backoff.jitter)
    assert backoff.delay(n, at_least_s=floor_s) == max(backoff.wait_s(n), floor_s)


def test_a_floor_is_not_clipped_by_the_cap_and_spreads_upward_only() -> None:
    backoff = Backoff("1s", cap="10s", jitter=0.2)
    delays_s = [backoff.delay(9, Drawn(chance), at_least_s=100) for chance in (0.0, 0.5, 1.0)]
    assert delays_s == pytest.approx([100, 110, 120])


def test_draws_that_fall_below_the_floor_do_not_gather_at_it() -> None:
    """A floor just below the wait: clients whose jitter goes under it are spread above it, not put on it."""
    backoff = Backoff("10s", jitter=0.2)
    delays_s = {backoff.delay(1, Drawn(chance / 100), at_least_s=9.5) for chance in range(1, 100)}
    assert len(delays_s) > 90
    assert min(delays_s) >= 9.5


@reproducible
@given(backoffs, numbers, chances, st.floats(0, 1e8), st.floats(-1000, 1e8))
def test_the_deadline_wins_over_everything(
    backoff: Backoff, n: int, chance: float, floor_s: float, left_s: float
) -> None:
    free_s = backoff.delay(n, Drawn(chance), at_least_s=floor_s)
    assert backoff.delay(n, Drawn(chance), at_least_s=floor_s, at_most_s=left_s) == max(0.0, min(free_s, left_s))


def test_no_server_can_ask_for_more_than_ten_years() -> None:
    assert Backoff("1s").delay(1, Drawn(0.9), at_least_s=1e300) == LONGEST_S


@pytest.mark.parametrize("floor_s", [0, 1, 100])
def test_one_delay_takes_one_draw(floor_s: float) -> None:
    """A seed replays a whole run only if every delay draws exactly once."""
    rng = Drawn(0.3)
    Backoff("10s", jitter=0.0).delay(1, rng, at_least_s=floor_s)
    assert rng.asked == 1


@reproducible
@given(st.floats(0, 1e8), st.floats(0, 1), chances)
def test_spread_goes_both_ways_and_spread_up_only_one(delay_s: float, jitter: float, chance: float) -> None:
    assert delay_s * (1 - jitter) <= spread(delay_s, jitter, chance) <= delay_s * (1 + jitter)
    assert delay_s <= spread_up(delay_s, jitter, chance) <= delay_s * (1 + jitter)
    assert spread(delay_s, jitter, 0.5) == spread_up(delay_s, jitter, 0.0) == delay_s
