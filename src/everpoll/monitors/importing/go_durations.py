"""Durations as Go writes them ("1h30m", "1.5s"; a plain number is nanoseconds), and as everpoll writes them."""

import re

_PART = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h)")
_SECONDS_IN = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_MAX_CHARS = 64


def go_seconds(value: object) -> float:
    """Return a duration in seconds; raise ValueError if it is not one."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**18:
        return value / 1e9
    text = value.strip() if isinstance(value, str) else ""
    if not text or len(text) > _MAX_CHARS:
        raise ValueError("not a duration")
    if text == "0":
        return 0.0
    total, position = 0.0, 0
    while position < len(text):
        part = _PART.match(text, position)
        if part is None:
            raise ValueError(f"{text!r} is not a duration")
        total += float(part[1]) * _SECONDS_IN[part[2]]
        position = part.end()
    return total


def duration_text(seconds: float) -> str:
    """Return a duration exactly to the millisecond, in the largest unit that it is whole in."""
    milliseconds = round(seconds * 1000)
    for unit, size in (("h", 3_600_000), ("m", 60_000), ("s", 1_000)):
        if milliseconds and milliseconds % size == 0:
            return f"{milliseconds // size}{unit}"
    return f"{milliseconds}ms"
