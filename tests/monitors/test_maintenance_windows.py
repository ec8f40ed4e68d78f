"""Maintenance windows: once or weekly, in the time of a zone, also over midnight and when clocks change."""

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everpoll.errors import BadInput
from everpoll.monitors.maintenance import Window, maintained_until, once, weekly

reproducible = settings(derandomize=True, deadline=None, max_examples=200)


def at(text: str, zone: str = "Europe/Berlin") -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()


def minutes(window: Window, day: str, zone: str = "Europe/Berlin") -> float:
    """How many minutes a window is open on one local day."""
    begin = at(f"{day}T00:00", zone)
    end = (datetime.fromisoformat(f"{day}T00:00") + timedelta(days=1)).replace(tzinfo=ZoneInfo(zone)).timestamp()
    return sum(window.active_until(begin + minute * 60) is not None for minute in range(int(end - begin) // 60))


def test_a_window_once_is_open_from_its_start_to_its_end() -> None:
    start, end = datetime(2030, 5, 1, 22, tzinfo=UTC), datetime(2030, 5, 2, 1, tzinfo=UTC)
    window = once(start, end, reason="move")
    assert window.active_until(start.timestamp() - 1) is None
    assert window.active_until(start.timestamp()) == end.timestamp()
    assert window.active_until(end.timestamp() - 1) == end.timestamp()
    assert window.active_until(end.timestamp()) is None


def test_a_weekly_window_is_open_on_its_days_in_the_time_of_its_zone() -> None:
    window = weekly(["sat", "sun"], "02:00", "2h", "Europe/Berlin")
    assert window.active_until(at("2030-06-01T01:59")) is None
    assert window.active_until(at("2030-06-01T02:00")) == at("2030-06-01T04:00")
    assert window.active_until(at("2030-06-02T03:59")) == at("2030-06-02T04:00")
    assert window.active_until(at("2030-06-03T02:30")) is None
    assert minutes(window, "2030-06-01") == 120


def test_a_weekly_window_reaches_over_midnight() -> None:
    window = weekly("sun", "23:00", "3h", "Europe/Berlin")
    assert window.active_until(at("2030-06-03T01:00")) == at("2030-06-03T02:00")
    assert window.active_until(at("2030-06-03T02:00")) is None


def test_a_window_of_a_whole_week_is_always_open() -> None:
    window = weekly("mon", "08:00", "7d")
    for day in range(14):
        assert window.active_until(at("2030-06-01T12:00") + day * 86_400) is not None


@pytest.mark.parametrize(
    "day",
    [
        "2030-03-31",  # clocks go from 02:00 to 03:00: 02:30 does not exist
        "2030-10-27",  # clocks go from 03:00 to 02:00: 02:30 comes twice
    ],
)
def test_where_clocks_change_a_window_covers_both_readings_of_its_time(day: str) -> None:
    window = weekly("sun", "02:30", "1h", "Europe/Berlin")
    assert minutes(window, day) == 120
    assert minutes(window, "2030-06-02") == 60


def test_windows_that_touch_count_as_one() -> None:
    windows = [
        weekly("sun", "02:00", "1h", "Europe/Berlin"),
        weekly("sun", "03:00", "1h", "Europe/Berlin", services=["billing"]),
        weekly("sun", "03:30", "2h", "Europe/Berlin", services=["shop"]),
    ]
    now = at("2030-06-02T02:30")
    assert maintained_until(windows, "billing", now) == at("2030-06-02T04:00")
    assert maintained_until(windows, "web", now) == at("2030-06-02T03:00")
    assert maintained_until(windows, "billing", at("2030-06-02T05:00")) is None
    assert maintained_until([], "billing", now) is None


def test_windows_that_never_end_are_looked_through_so_far() -> None:
    always = [weekly("mon", "00:00", "7d")]
    until = maintained_until(always, "billing", at("2030-06-02T02:30"))
    assert until is not None
    assert until > at("2030-06-09T00:00")


@reproducible
@given(
    st.sampled_from(("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu")),
    st.integers(0, 23 * 60),
    st.integers(1, 72),
    st.integers(0, 400 * 24 * 3600),
)
def test_an_open_window_began_on_one_of_its_days(zone: str, minute: int, hours: int, offset_s: int) -> None:
    window = weekly(["wed", "sat"], f"{minute // 60:02}:{minute % 60:02}", f"{hours}h", zone)
    now = at("2030-01-01T00:00", "UTC") + offset_s
    until = window.active_until(now)
    if until is None:
        return
    assert now < until <= now + hours * 3_600 + 7_200
    begun = datetime.fromtimestamp(until - hours * 3_600, ZoneInfo(zone))
    assert begun.strftime("%a") in {"Wed", "Sat"}


def test_windows_survive_json() -> None:
    for window in (weekly(["mon", "fri"], "22:30", "90m", "Asia/Tokyo", ["a"], "patch day"), Window()):
        assert msgspec.json.decode(msgspec.json.encode(window), type=Window) == window


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"days": "someday"}, "write some of mon, tue"),
        ({"days": []}, "write some of mon, tue"),
        ({"at": "2am"}, 'write "02:00"'),
        ({"at": "24:00"}, "must be from"),
        ({"lasting": "8d"}, "must be at most 7d"),
        ({"zone": "Mars/Base"}, "is not a known time zone"),
        ({"zone": "../etc/passwd"}, "is not a known time zone"),
        ({"zone": 7}, "is not a known time zone"),
        ({"services": "billing"}, "write at most 1,000 names"),
        ({"reason": 7}, "must be text of at most 500"),
    ],
)
def test_bad_windows_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput) as caught:
        weekly(**{"days": "sun", "at": "02:00", "lasting": "2h"} | options)
    assert words in str(caught.value)


def test_a_window_once_needs_two_instants_in_order() -> None:
    aware, naive = datetime(2030, 5, 1, tzinfo=UTC), datetime(2030, 5, 2)  # noqa: DTZ001 - the subject
    with pytest.raises(BadInput, match="with a time zone"):
        once(aware, naive)
    with pytest.raises(BadInput, match="must be later than"):
        once(aware, aware)
