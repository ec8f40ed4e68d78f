"""Figures: checks the numbers that users pass to policies.

Promises: a number that is accepted is finite and within its bounds; any other value raises `BadInput` with the
parameter's name, the value and what to write instead. Never rounds, never converts text.
"""

import math
import sys

from everpoll.errors import BadInput

_SHOWN_CHARS = 80


def number(value: float, *, name: str, accepted: str, at_least: float, at_most: float = math.inf) -> float:
    """Return the value as a float, within its bounds; `accepted` completes the sentence "write …"."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _refusal(name, value, "not a number", accepted)
    # NaN fails every comparison, and infinity is above the largest float, so both are refused here.
    if not at_least <= value <= min(at_most, sys.float_info.max):
        raise _refusal(name, value, "out of range", accepted)
    return float(value)


def whole_number(value: int, *, name: str, accepted: str, at_least: int) -> int:
    """Return the value, an int of at least the bound; `accepted` completes the sentence "write …"."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise _refusal(name, value, "not a whole number", accepted)
    if value < at_least:
        raise _refusal(name, value, "too small", accepted)
    return value


def shown(value: object) -> str:
    """Return a value as error messages show it: its repr, cut to a length that fits a log."""
    try:
        text = repr(value[: _SHOWN_CHARS + 1] if isinstance(value, str) else value)
    except Exception:  # noqa: BLE001 - an int of more than 4300 digits, or a user's repr that raises
        text = f"<{type(value).__name__} too long to print>"
    return text if len(text) <= _SHOWN_CHARS else text[: _SHOWN_CHARS - 3] + "..."


def _refusal(name: str, value: object, problem: str, accepted: str) -> BadInput:
    return BadInput(f"{name}={shown(value)}: {problem}; write {accepted}")
