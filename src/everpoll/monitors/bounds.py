"""Bounds: cuts and escapes values of a remote so that they can be stored and printed.

Promises: a text has at most 2,000 characters and neither NUL nor lone surrogates, which are written out as `\\u0000`
and `\\ud800`; an object or a list has at most 500 values, 8 levels and 16,000 characters in all, and can be written as
JSON. Never raises for anything that `as_json` makes.
"""

import math
from typing import Any

import msgspec

from everpoll.monitors.report import MAX_TEXT

MAX_TREE_VALUES = 500
"""How many values of one object are kept, such as `contact` or `checkDetails`."""
MAX_TREE_DEPTH = 8
"""How many levels of one object are kept."""
MAX_TREE_CHARS = 16_000
"""How many characters of one object are kept, in keys and texts together."""

_ELLIPSIS = "…"
_QUOTED_CHARS = 60
_FLAT = {str, int, float, bool, type(None)}
# Within this many bytes of JSON no bound can be reached.
_SMALL_BYTES = min(MAX_TEXT, MAX_TREE_VALUES, MAX_TREE_CHARS)
_encode = msgspec.json.Encoder().encode
# The integers that every JSON library accepts; larger ones are kept as text.
_SMALLEST_INTEGER, _LARGEST_INTEGER = -(2**63), 2**64 - 1


def text(value: str) -> str:
    """Return the text within bounds."""
    if len(value) <= MAX_TEXT and value.isascii() and "\0" not in value:
        return value
    kept = value if len(value) <= MAX_TEXT else value[: MAX_TEXT - 1] + _ELLIPSIS
    kept = kept.encode("utf-8", "backslashreplace").decode("utf-8").replace("\0", "\\u0000")
    return kept if len(kept) <= MAX_TEXT else kept[: MAX_TEXT - 1] + _ELLIPSIS


def optional_text(value: object) -> str | None:
    """Return a text that is not blank within bounds; None for anything else."""
    if type(value) is not str or not value or value.isspace():
        return None
    if len(value) <= MAX_TEXT and value.isascii() and "\0" not in value:
        return value
    return text(value)


def name(value: object) -> str:
    """Return a name, trimmed and within bounds; "" for anything that cannot be one."""
    return text(value.strip()) if type(value) is str else ""


def quoted(value: object) -> str:
    """Return a value of a remote for a warning, with at most 60 of its characters."""
    if isinstance(value, str):
        cut = value if len(value) <= _QUOTED_CHARS else value[: _QUOTED_CHARS - 1] + _ELLIPSIS
        return f'"{text(cut)}"'
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, int) and not _SMALLEST_INTEGER <= value <= _LARGEST_INTEGER:
        return "a very large number"
    return text(str(value)[:_QUOTED_CHARS])


def latency_ms(value: object, unit_ms: float = 1.0) -> float | None:
    """Return a latency in milliseconds; None if it is not a number, not finite, 0 or negative."""
    if type(value) is not float and type(value) is not int:
        return None
    try:
        milliseconds = value * unit_ms
    except OverflowError:
        return None
    return milliseconds if 0 < milliseconds < math.inf else None


def tree(value: Any) -> tuple[Any, bool]:
    """Return a JSON value within bounds, and whether all of it was kept."""
    if type(value) is dict and _is_flat_and_small(value):
        return value, True
    copy = _Copy()
    return copy.of(value, MAX_TREE_DEPTH), copy.is_whole


def _is_flat_and_small(value: dict[str, Any]) -> bool:
    """Return True if the JSON of an object is within all bounds: quicker than checking every text."""
    kinds = set(map(type, value.values()))
    if not kinds <= _FLAT:
        return False
    if int in kinds and not all(
        _SMALLEST_INTEGER <= member <= _LARGEST_INTEGER for member in value.values() if type(member) is int
    ):
        return False
    try:
        written = _encode(value)
    except UnicodeError:
        return False
    return len(written) <= _SMALL_BYTES and b"\\u0000" not in written


class _Copy:
    """Copies one value, and counts what is left of its bounds."""

    __slots__ = ("_chars", "_values", "is_whole")

    def __init__(self) -> None:
        self._chars = MAX_TREE_CHARS
        self._values = MAX_TREE_VALUES
        self.is_whole = True

    def of(self, value: Any, depth: int) -> Any:
        if isinstance(value, dict | list):
            if depth == 0:
                self.is_whole = False
                return _ELLIPSIS
            return self._members(value, depth) if isinstance(value, dict) else self._items(value, depth)
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, int) and not _SMALLEST_INTEGER <= value <= _LARGEST_INTEGER:
            return self._text(str(value))
        return value

    def _members(self, value: dict[str, Any], depth: int) -> dict[str, Any]:
        kept = {}
        for key, member in value.items():
            if not self._has_room():
                break
            kept[self._text(key)] = self.of(member, depth - 1)
        return kept

    def _items(self, value: list[Any], depth: int) -> list[Any]:
        kept = []
        for item in value:
            if not self._has_room():
                break
            kept.append(self.of(item, depth - 1))
        return kept

    def _has_room(self) -> bool:
        self._values -= 1
        self.is_whole = self.is_whole and self._values >= 0 and self._chars > 0
        return self._values >= 0 and self._chars > 0

    def _text(self, value: str) -> str:
        kept = text(value)
        if len(kept) > self._chars:
            kept = kept[: max(self._chars - 1, 0)] + _ELLIPSIS
        self.is_whole = self.is_whole and len(value) <= MAX_TEXT and len(value) <= self._chars
        self._chars -= len(kept)
        return kept
