"""A duration is read exactly, refused with a useful message, and written so that people and everpoll can read it."""

import math
import time
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everpoll.errors import BadDuration
from everpoll.policy import LONGEST_S, Duration, human, seconds

reproducible = settings(derandomize=True, deadline=None)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("250ms", 0.25),
        ("35ms", 0.035),
        ("30s", 30),
        ("5m", 300),
        ("2h", 7200),
        ("1d", 86_400),
        ("1.5s", 1.5),
        ("1.005s", 1.005),
        (".5s", 0.5),
        ("1h30m", 5400),
        ("1d2h3m4s5ms", 93_784.005),
        ("  1 h  30 m ", 5400),
        ("\t5 s\n", 5),
        ("0s", 0),
        ("3650d", LONGEST_S),
        (0, 0),
        (-0.0, 0),
        (7, 7),
        (0.25, 0.25),
        (timedelta(minutes=5), 300),
        (timedelta(milliseconds=250), 0.25),
    ],
)
def test_what_is_accepted(value: Duration, expected: float) -> None:
    result = seconds(value)
    assert result == expected
    assert type(result) is float
    assert math.copysign(1, result) == 1


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("", "empty"),
        ("   ", "empty"),
        ("5 parsecs", "unknown unit 'parsecs'"),
        ("5M", "unknown unit 'M'"),
        ("30", "no unit after '30'"),
        ("1h30", "no unit after '30'"),
        ("s", "cannot read 's'"),
        ("nan", "cannot read 'nan'"),
        ("1h and 5m", "cannot read 'and 5m'"),
        ("5m5m", "units go from large to small"),
        ("30s1h", "units go from large to small"),
        ("1.2.3s", "no unit after '1.2'"),
        ("1e3s", "unknown unit 'e'"),
        ("٣s", "cannot read"),
        ("-5s", "negative"),
        ("3651d", "longer than ten years"),
        ("9" * 40 + "d", "longer than ten years"),
        (-1, "negative"),
        (math.nan, "not a number"),
        (math.inf, "longer than ten years"),
        (-math.inf, "negative"),
        (10**400, "longer than ten years"),
        pytest.param(10**5000, "longer than ten years", id="too long to print"),
        (LONGEST_S * 1.01, "longer than ten years"),
        (timedelta(seconds=-1), "negative"),
        (timedelta.max, "longer than ten years"),
        (True, "bool is not a duration"),
        (None, "NoneType is not a duration"),
        (b"5s", "bytes is not a duration"),
        ([5], "list is not a duration"),
    ],
)
def test_what_is_refused(value: Duration, problem: str) -> None:
    with pytest.raises(BadDuration) as caught:
        seconds(value)
    assert problem in str(caught.value)


def test_the_message_names_the_parameter_and_says_what_to_write() -> None:
    with pytest.raises(BadDuration) as caught:
        seconds("5 parsecs", name="every")
    assert str(caught.value) == (
        "every='5 parsecs': unknown unit 'parsecs'; "
        'write "250ms", "30s", "5m", "2h", "1d", a number of seconds or a timedelta'
    )


@pytest.mark.parametrize("value", [0, "0s", -0.0, timedelta(0)])
def test_zero_is_refused_only_where_it_makes_no_sense(value: Duration) -> None:
    assert seconds(value) == 0
    with pytest.raises(BadDuration, match=r"every=.*: must be longer than 0"):
        seconds(value, name="every", positive=True)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("9" * 1_000_000, id="digits"),
        pytest.param(" " * 1_000_000, id="spaces"),
        pytest.param("5" + " " * 1_000_000 + "x", id="a gap"),
        pytest.param("1." * 500_000, id="points"),
        pytest.param("1s" * 500_000, id="parts"),
        pytest.param("x" * 1_000_000, id="letters"),
    ],
)
def test_a_megabyte_of_text_is_refused_at_once_and_not_repeated(text: str) -> None:
    """Text from outside can neither stall the reader nor flood a log; a backtracking pattern would take minutes."""
    before = time.thread_time()
    with pytest.raises(BadDuration) as caught:
        seconds(text)
    assert time.thread_time() - before < 10, "of CPU: a machine that stands still changes nothing"
    assert len(str(caught.value)) < 300


@reproducible
@given(st.text() | st.from_regex(r"\s*[0-9.]{1,9}\s*(ms|s|m|h|d|x)?([0-9.]{1,3}(ms|s|m))?\s*"))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        assert 0 <= seconds(text) <= LONGEST_S
    except BadDuration as refusal:
        assert str(refusal).startswith("duration=")  # noqa: PT017 - either answer is right, as long as it is one of both


@reproducible
@given(st.floats() | st.integers() | st.timedeltas())
def test_any_number_is_read_or_refused(value: float | timedelta) -> None:
    amount = value.total_seconds() if isinstance(value, timedelta) else value
    if 0 <= amount <= LONGEST_S:
        assert seconds(value) == amount
    else:
        with pytest.raises(BadDuration):
            seconds(value)


@pytest.mark.parametrize(
    ("amount_s", "text"),
    [
        (0, "0s"),
        (1e-9, "0s"),
        (0.0015, "1.5ms"),
        (0.25, "250ms"),
        (0.9996, "1s"),
        (1.25, "1.25s"),
        (16.875, "16.9s"),
        (30, "30s"),
        (59.97, "1m"),
        (60, "1m"),
        (90, "1m30s"),
        (3600, "1h"),
        (3661, "1h1m1s"),
        (86_399.7, "1d"),
        (100_000, "1d3h47m"),
        (LONGEST_S, "3650d"),
        (math.inf, "never"),
        (1e300, "never"),
        (math.nan, "unknown"),
        (-90, "-1m30s"),
    ],
)
def test_how_people_read_it(amount_s: float, text: str) -> None:
    assert human(amount_s) == text


@reproducible
@given(st.floats(0.001, LONGEST_S))
def test_what_people_read_is_a_duration_within_1_percent(amount_s: float) -> None:
    assert seconds(human(amount_s)) == pytest.approx(amount_s, rel=0.01)


@reproducible
@given(st.floats())
def test_any_number_can_be_shown_briefly(amount_s: float) -> None:
    assert 1 <= len(human(amount_s)) <= 20
