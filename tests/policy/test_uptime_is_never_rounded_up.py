"""Uptime is a share of known time, rounded down: 100 means that no look found the service down."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everpoll.policy import Rollup, Uptime, uptime_of
from everpoll.policy.rollup import HealthWord
from everpoll.policy.uptime import Ahead, ahead_of

DAY_MS = 86_400_000
HOUR_MS = 3_600_000
TIMES_MS = st.integers(0, 5 * 365 * DAY_MS)


@given(TIMES_MS, TIMES_MS, TIMES_MS, TIMES_MS)
def test_a_hundred_only_without_downtime(up_ms: int, degraded_ms: int, down_ms: int, unknown_ms: int) -> None:
    rollup = Rollup(up_ms=up_ms, degraded_ms=degraded_ms, down_ms=down_ms, unknown_ms=unknown_ms)
    found = uptime_of(rollup, 5 * 365 * DAY_MS)
    known_ms = up_ms + degraded_ms + down_ms
    if known_ms == 0:
        assert found == Uptime(None, 0.0)
        return
    assert found.percent is not None
    assert (found.percent == 100) == (down_ms == 0)
    exact = 100 * (up_ms + degraded_ms) / known_ms
    assert found.percent <= exact + 1e-9
    assert found.percent == pytest.approx(exact, abs=1.1e-4)
    assert 0 <= found.covered <= 1


def test_one_second_in_a_year_is_seen() -> None:
    rollup = Rollup(up_ms=365 * DAY_MS - 1_000, down_ms=1_000)
    assert uptime_of(rollup, 365 * DAY_MS) == Uptime(99.9999, 1.0)


def test_a_gap_of_ours_lowers_what_is_covered_and_not_the_uptime() -> None:
    """Our database was away for six hours, and our line was broken for six others."""
    rollup = Rollup(up=1_440, up_ms=DAY_MS // 2, unknown=720, unknown_ms=DAY_MS // 4)
    assert uptime_of(rollup, DAY_MS) == Uptime(100.0, 0.5)


def test_an_outage_counts_by_its_length_and_not_by_its_looks() -> None:
    """An hour of a day, during which a breaker let through a look every five minutes only."""
    rollup = Rollup(up=2_760, up_ms=23 * 3_600_000, down=12, down_ms=3_600_000)
    found = uptime_of(rollup, DAY_MS)
    assert found.percent == pytest.approx(100 * 23 / 24, abs=1e-4)


def test_an_empty_range_covers_nothing() -> None:
    assert uptime_of(Rollup(up_ms=5), 0).covered == 0.0


def test_the_last_look_may_reach_beyond_the_range() -> None:
    assert uptime_of(Rollup(up_ms=DAY_MS + 30_000), DAY_MS) == Uptime(100.0, 1.0)


@pytest.mark.parametrize("status", ["up", "degraded", "down", "unknown"])
def test_what_is_still_to_come_is_not_covered(status: HealthWord) -> None:
    """The last look stands for an hour, of which nothing has passed yet."""
    rollup = Rollup(up_ms=2 * HOUR_MS, down_ms=HOUR_MS, unknown_ms=HOUR_MS)
    now = 1_900_000_000.0
    ahead = ahead_of(status, now, now + 3_600, now)
    assert ahead == Ahead(status, HOUR_MS)
    known_hours = 3 if status == "unknown" else 2
    assert uptime_of(rollup, DAY_MS, ahead) == Uptime(66.6666, known_hours * 10_000 // 24 / 10_000)


def test_a_service_that_has_just_gone_down_does_not_show_100() -> None:
    """Nothing of the time that its failed look stands for has passed."""
    found = uptime_of(Rollup(up_ms=23 * HOUR_MS, down_ms=HOUR_MS), DAY_MS, Ahead("down", HOUR_MS))
    assert found.percent == pytest.approx(100 * 23 / 24, abs=1e-4)


def test_a_look_whose_time_has_passed_is_known_whole() -> None:
    assert ahead_of("up", 100.0, 130.0, 130.0).ms == 0
    assert ahead_of("up", 100.0, 130.0, 500.0).ms == 0
    assert ahead_of("up", 100.0, 130.0, 120.0).ms == 10_000
