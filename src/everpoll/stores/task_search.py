"""Task search: by a text in the arguments, by the class of the last error, by the time of the enqueue.

A search is a text that stands in the JSON of the arguments, or `member:value`: `user:7` finds `{"user":7}` and
`{"user":"7"}` at any depth, and `order.id:7` finds `"id":7` after `"order":`. Capital letters count.

Promises: every store finds the same tasks, because each one compares the same pieces of text. Never parses arguments,
because a search reads thousands of them.
"""

import re
from collections.abc import Callable
from datetime import datetime

import msgspec

from everpoll.errors import BadInput
from everpoll.policy import flaw_of, shown
from everpoll.stores.contract import ERROR_SEARCH_LIMIT, SEARCH_LIMIT, TEXT_SEARCH_LIMIT, TaskFilter

SEARCH_CHARS = 200
CREATED_SLACK_S = 60.0
"""How much earlier and later a search by time starts and ends in the order of ids: parallel transactions may give ids
in another order than times."""

Needle = tuple[str, ...]
"""Pieces of text that must follow one another."""

_MEMBER = re.compile(r"([\w$-]+(?:\.[\w$-]+){0,4}):(?!//)(.+)", re.DOTALL)
_SCALAR = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?|true|false|null")
# Quotes inside JSON strings are escaped, so this finds only a member of the note.
ERROR_CLASS = r'"type":\s*"([A-Za-z_][A-Za-z0-9_.]{0,199})"'
_error_class = re.compile(ERROR_CLASS)


def checked(wanted: TaskFilter) -> TaskFilter:
    """Return the filter; raise `BadInput` if it is not valid."""
    for name in ("q", "error"):
        value = getattr(wanted, name)
        if value is not None and (flaw := flaw_of(value, SEARCH_CHARS)) is not None:
            raise BadInput(f"{name}={shown(value)} {flaw}: write a text of 1 to {SEARCH_CHARS} characters")
    for name in ("since", "until", "ended_since", "ended_until"):
        instant = getattr(wanted, name)
        if instant is not None and instant.tzinfo is None:
            raise BadInput(f"{name}={instant.isoformat()} has no time zone: write an aware datetime")
    return wanted


def is_of_ends(wanted: TaskFilter) -> bool:
    """Return True if only ended tasks can match."""
    return wanted.ended_since is not None or wanted.ended_until is not None


def created_before(wanted: TaskFilter) -> datetime | None:
    """Return an instant before which all matching tasks were enqueued, or None."""
    return min((one for one in (wanted.until, wanted.ended_until) if one is not None), default=None)


def searched(wanted: TaskFilter) -> int:
    """Return how many tasks of each table one page reads, if no index serves the filter."""
    if wanted.error is not None:
        return ERROR_SEARCH_LIMIT
    return SEARCH_LIMIT if wanted.q is None else TEXT_SEARCH_LIMIT


def needles(q: str) -> tuple[Needle, ...]:
    """Return the texts to search for: a task is found if its arguments have one of them."""
    found: list[Needle] = [(_json_text(q),)]
    if (member := _MEMBER.fullmatch(q)) is not None:
        *outer, name = member[1].split(".")
        before = [f'"{one}":' for one in outer]
        value = member[2]
        found.append((*before, f'"{name}":"{_json_text(value)}"'))
        if _SCALAR.fullmatch(value):
            found += [(*before, f'"{name}":{value}{end}') for end in ",}"]
    return tuple(found)


def is_found(wanted: tuple[Needle, ...], text: str) -> bool:
    """Return True if the text has one of them."""
    return any(_has(text, needle) for needle in wanted)


def condition(wanted: tuple[Needle, ...], column: str, position: str, bind: Callable[[str], str]) -> str:
    """Return the same condition as SQL; `position` is the database's function, `bind` returns a parameter's name."""
    return "(" + " or ".join(_condition(column, list(needle), position, bind) for needle in wanted) + ")"


def error_class(note: str | None) -> str | None:
    """Return the class of the error in a note of the trail, or None."""
    found = None if note is None else _error_class.search(note)
    return None if found is None else found[1]


def _condition(text: str, pieces: list[str], position: str, bind: Callable[[str], str]) -> str:
    first, *rest = pieces
    place = f"{position}({text}, {bind(first)})"
    if not rest:
        return f"{place} > 0"
    return f"({place} > 0 and {_condition(f'substr({text}, {place})', rest, position, bind)})"


def _has(text: str, needle: Needle) -> bool:
    start = 0
    for piece in needle:
        start = text.find(piece, start)
        if start < 0:
            return False
    return True


def _json_text(text: str) -> str:
    return msgspec.json.encode(text).decode()[1:-1]
