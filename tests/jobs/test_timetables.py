"""The times of a timetable are the same instants in every process, over every clock change."""

from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everpoll import BadInput
from everpoll.jobs.timetable import BATCH, LATE_S, Due, Missed, Timetable, due, timetable_of
from jobs.walked_times import utc, walked

BERLIN = ZoneInfo("Europe/Berlin")
ZONES = ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe")
EXPRESSIONS = (
    "30 2 * * *",
    "*/30 2 * * *",
    "15 * * * *",
    "*/20 * * * *",
    "0 0 1 * *",
    "45 1,2,3 * * MON-FRI",
    "0 */2 * * *",
)
CLOCK_CHANGES = [
    ("Europe/Berlin", 3, 29),
    ("Europe/Berlin", 10, 25),
    ("America/New_York", 3, 8),
    ("America/New_York", 11, 1),
    ("Australia/Lord_Howe", 4, 5),  # by half an hour
    ("Australia/Lord_Howe", 10, 4),
    ("America/Havana", 3, 8),  # at midnight
    ("America/Havana", 11, 1),
]
"""Zone, month and day of the clock changes of 2026."""
HOUR_S, DAY_S = 3600.0, 86_400.0
SOME_DAY = datetime(2026, 6, 1, tzinfo=UTC).timestamp()


def berlin(cron: str, start: datetime, count: int) -> list[str]:
    found = timetable_of("a test", cron, None, "Europe/Berlin").times(start.timestamp())
    return [datetime.fromtimestamp(time, BERLIN).strftime("%d. %H:%M%z") for time in islice(found, count)]


@pytest.mark.parametrize("cron", ["30 2 * * *", "30 2,5 * * *"])
def test_a_slot_in_the_gap_comes_right_after_it(cron: str) -> None:
    assert berlin(cron, datetime(2026, 3, 28, 12, tzinfo=BERLIN), 1) == ["29. 03:00+0200"]


def test_several_slots_in_the_gap_are_one() -> None:
    found = berlin("*/30 2 * * *", datetime(2026, 3, 28, 12, tzinfo=BERLIN), 3)
    assert found == ["29. 03:00+0200", "30. 02:00+0200", "30. 02:30+0200"]


@pytest.mark.parametrize("cron", ["30 2 * * *", "*/30 2 * * *"])
def test_a_doubled_slot_comes_once(cron: str) -> None:
    found = berlin(cron, datetime(2026, 10, 24, 12, tzinfo=BERLIN), 4)
    assert [time for time in found if time.startswith("25. 02:30")] == ["25. 02:30+0200"]


def test_an_hourly_slot_comes_in_both_of_two_equal_hours() -> None:
    found = berlin("30 * * * *", datetime(2026, 10, 25, 1, tzinfo=BERLIN), 4)
    assert found == ["25. 01:30+0200", "25. 02:30+0200", "25. 02:30+0100", "25. 03:30+0100"]


def a_field(low: int, high: int) -> st.SearchStrategy[str]:
    number = st.integers(low, high)
    steps = st.integers(1, high).map(lambda step: f"*/{step}")
    chosen = st.lists(number, min_size=1, max_size=3, unique=True).map(lambda some: ",".join(map(str, some)))
    spans = st.tuples(number, number).map(lambda pair: f"{min(pair)}-{max(pair)}")
    return st.sampled_from(["*"]) | steps | chosen | spans


@settings(max_examples=50)
@given(
    minute=a_field(0, 59),
    hour=a_field(0, 4) | a_field(0, 23),
    day=st.sampled_from(["*", "*/2", "1-8", "25-31"]),
    weekday=st.sampled_from(["*", "0", "7", "MON-FRI"]),
    change=st.sampled_from(CLOCK_CHANGES),
)
def test_slots_around_clock_changes_are_those_that_the_documentation_says(
    minute: str, hour: str, day: str, weekday: str, change: tuple[str, int, int]
) -> None:
    cron = f"{minute} {hour} {day} * {weekday}"
    zone, month, date = change
    begin, end = utc(2026, month, date) - DAY_S, utc(2026, month, date) + 2 * DAY_S
    timetable = timetable_of("a test", cron, None, zone)
    times = walked([cron], zone, begin, end)[cron]
    assert list(takewhile(lambda time: time <= end, timetable.times(begin))) == times
    # A schedule goes on from any of them, also in the middle of a repeated hour.
    for place in range(0, len(times) - 1, 1 + len(times) // 50):
        assert timetable.after(times[place]) == times[place + 1]


def test_slots_of_an_interval_are_multiples_since_the_epoch() -> None:
    every = timetable_of("a test", None, "5m", "UTC")
    assert list(islice(every.times(1_000.0), 3)) == [1_200.0, 1_500.0, 1_800.0]
    assert (every.latest(1_000.0, 1_799.0), every.latest(1_500.0, 1_799.0)) == (1_500.0, None)


def test_slots_are_the_same_from_wherever_one_begins_to_count() -> None:
    """The schedule goes on from its last time, a restart from any instant in between: they must agree."""
    start = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
    for zone in ZONES:
        for cron in EXPRESSIONS:
            timetable = timetable_of("a test", cron, None, zone)
            for day in range(0, 366, 61):
                begin = start + day * DAY_S
                walked = list(islice(timetable.times(begin), 40))
                assert walked == sorted(set(walked)), (zone, cron)
                for before, after in zip([begin, *walked], walked, strict=False):
                    assert timetable.after(before) == after, (zone, cron, before)
                    assert timetable.latest(begin, after) == after, (zone, cron, after)


@given(last_s=st.integers(0, 10**6), passed_s=st.integers(-(10**4), 10**6), every_s=st.integers(1, 10**5))
def test_whatever_is_missed_the_schedule_moves_on_and_repeats_nothing(last_s: int, passed_s: int, every_s: int) -> None:
    last, now = SOME_DAY + last_s, SOME_DAY + last_s + passed_s
    timetable = Timetable(every_s=float(every_s))
    policies: tuple[Missed, ...] = ("skip", "once", "all")
    for missed in policies:
        decided = due(timetable, missed, last, now)
        assert all(last < time <= now for time in decided.times)
        assert decided.last >= last
        assert decided.next_at > decided.last
        assert decided.next_at > now or missed == "all"


def test_missed_slots() -> None:
    hourly = Timetable(cron="0 * * * *")
    last, now = SOME_DAY, SOME_DAY + 5 * HOUR_S + 600
    five = tuple(SOME_DAY + hour * HOUR_S for hour in range(1, 6))
    assert due(hourly, "all", last, now) == Due(five, five[-1], SOME_DAY + 6 * HOUR_S)
    assert due(hourly, "once", last, now) == Due(five[-1:], five[-1], SOME_DAY + 6 * HOUR_S)
    assert due(hourly, "skip", last, now) == Due((), five[-1], SOME_DAY + 6 * HOUR_S)
    assert due(hourly, "skip", last, five[-1] + LATE_S) == Due(five[-1:], five[-1], SOME_DAY + 6 * HOUR_S)


def test_many_missed_slots_come_in_portions() -> None:
    minutely = Timetable(cron="* * * * *")
    decided = due(minutely, "all", SOME_DAY, SOME_DAY + DAY_S)
    assert len(decided.times) == BATCH
    assert decided.next_at == SOME_DAY + 60 * (BATCH + 1)


def test_a_slot_of_long_ago_is_found() -> None:
    """The latest of one time a year, months after it."""
    yearly = timetable_of("a test", "0 12 1 1 *", None, "UTC")
    new_year = datetime(2026, 1, 1, 12, tzinfo=UTC)
    assert yearly.latest(0.0, (new_year + timedelta(days=200)).timestamp()) == new_year.timestamp()


@pytest.mark.parametrize(
    ("cron", "every", "tz", "says"),
    [
        (None, None, "UTC", "either a cron expression"),
        ("* * * * *", "5m", "UTC", "either a cron expression"),
        ("* * * *", None, "UTC", "must have 5 fields"),
        ("61 * * * *", None, "UTC", "not a valid cron expression"),
        ("* * 31 2 *", None, "UTC", "cron expression|never comes"),
        ("* * * * *", None, "Mars/Olympus", "not a known time zone"),
        ("* * * * *", None, "../etc/passwd", "not a known time zone"),
        (5, None, "UTC", "not a cron expression"),
        (None, "100ms", "UTC", "at least 1s"),
        (None, "5m", "Europe/Berlin", "has no meaning with every="),
    ],
)
def test_what_is_no_timetable_is_refused_at_once(cron: object, every: str | None, tz: str, says: str) -> None:
    with pytest.raises(BadInput, match=says):
        timetable_of("schedule 'x'", cron, every, tz)
