"""Durations: "250ms", "30s", "1h30m", a number of seconds or a timedelta, read into seconds and written for people.

Promises: the result is a finite float from 0 to ten years, and text is read exactly ("1.005s" is 1.005). Any other
value raises `BadDuration` with the parameter's name, the value, what is wrong and what is accepted.
Never guesses a unit, and reads text of any length in linear time.
"""

import math
import re
from datetime import timedelta
from fractions import Fraction
from typing import TypeAlias

from everpoll.errors import BadDuration
from everpoll.policy.figures import shown

Duration: TypeAlias = str | int | float | timedelta

# Ten years. A due time is stored as a date, so a wait must never leave the calendar.
LONGEST_S = 315_360_000.0

_ACCEPTED = '"250ms", "30s", "5m", "2h", "1d", a number of seconds or a timedelta'
_SECONDS_IN = {
    "d": Fraction(86_400),
    "h": Fraction(3_600),
    "m": Fraction(60),
    "s": Fraction(1),
    "ms": Fraction(1, 1000),
}
# Enough for every unit with a dozen digits; a longer text is not parsed.
_LONGEST_TEXT_CHARS = 64
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?|\.[0-9]+)\s*([^\s0-9.]*)\s*")


def seconds(value: Duration, *, name: str = "duration", positive: bool = False) -> float:
    """Return the duration in seconds; `name` is the parameter that error messages name."""
    try:
        return _within_bounds(_amount(value), positive)
    except ValueError as wrong:
        raise BadDuration(f"{name}={shown(value)}: {wrong}; write {_ACCEPTED}") from None


def human(seconds: float) -> str:
    """Return the shortest readable form: "250ms", "16.9s", "1m30s", "2d4h"; "never" beyond the longest duration.

    Three digits below a minute, whole seconds below a day, whole minutes from there: never 1 % off.
    """
    if math.isnan(seconds):
        return "unknown"
    if abs(seconds) > LONGEST_S:
        return "never"
    if seconds < 0:
        return "-" + human(-seconds)
    milliseconds, whole = _three_digits(seconds * 1000), _three_digits(seconds)
    if milliseconds == 0:
        return "0s"
    if milliseconds < 1000:
        return f"{milliseconds:g}ms"
    return f"{whole:g}s" if whole < 60 else _in_parts(seconds)


def _amount(value: object) -> float | Fraction:
    if isinstance(value, str):
        return _parsed(value.strip())
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    raise ValueError(f"{type(value).__name__} is not a duration")


def _parsed(text: str) -> Fraction:
    if not text:
        raise ValueError("empty")
    if len(text) > _LONGEST_TEXT_CHARS:
        raise ValueError(f"{len(text)} characters are too long")
    if text.startswith("-"):
        raise ValueError("negative")
    total, position, previous = Fraction(0), 0, ""
    while position < len(text):
        part = _PART.match(text, position)
        if part is None:
            raise ValueError(f"cannot read {text[position:]!r}")
        amount, unit = part.groups()
        total += Fraction(amount) * _size(amount, unit, previous)
        position, previous = part.end(), unit
    return total


def _size(amount: str, unit: str, previous: str) -> Fraction:
    if not unit:
        raise ValueError(f"no unit after {amount!r}")
    if unit not in _SECONDS_IN:
        raise ValueError(f"unknown unit {unit!r}")
    # "5m5m" and "30s1h" are typing errors more often than sums.
    if previous and _SECONDS_IN[unit] >= _SECONDS_IN[previous]:
        raise ValueError(f"{unit!r} after {previous!r}, units go from large to small")
    return _SECONDS_IN[unit]


def _within_bounds(amount: float | Fraction, positive: bool) -> float:
    if isinstance(amount, float) and math.isnan(amount):
        raise ValueError("not a number")
    if amount < 0:
        raise ValueError("negative")
    if amount > LONGEST_S:
        raise ValueError("longer than ten years")
    if positive and amount == 0:
        raise ValueError("must be longer than 0")
    return float(amount) + 0.0  # Adding 0.0 turns -0.0 into 0.0, which reads better wherever it is shown.


def _three_digits(amount: float) -> float:
    # Three decimals at most as well, because ":g" would write smaller amounts with an exponent.
    return round(float(f"{amount:.3g}"), 3)


def _in_parts(seconds: float) -> str:
    left = round(seconds) if seconds < 86_400 else round(seconds / 60) * 60
    text = ""
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)):
        amount, left = divmod(left, size)
        text += f"{amount}{unit}" if amount else ""
    return text
