"""Cursors: the place where the next page of a list begins. Opaque to clients; each is valid for its list only."""

import base64
import binascii
from typing import Any

import msgspec

from everpoll.server.problems import Problem, bad_argument

LONGEST = 2_000


def write(kind: str, *place: str | int) -> str:
    """Return the cursor of a place in a list."""
    return base64.urlsafe_b64encode(msgspec.json.encode([kind, *place])).decode().rstrip("=")


def read_number(kind: str, cursor: str | None) -> int | None:
    """Return the number after which the next page begins; None: the list begins."""
    if cursor is None:
        return None
    place = _read(kind, cursor)
    if len(place) != 1 or not isinstance(place[0], int) or not 0 <= place[0] < 2**63:
        raise _unknown()
    return place[0]


def read_text(kind: str, cursor: str | None) -> str | None:
    """Return the name after which the next page begins; None: the list begins."""
    if cursor is None:
        return None
    place = _read(kind, cursor)
    if len(place) != 1 or not isinstance(place[0], str):
        raise _unknown()
    return place[0]


def _read(kind: str, cursor: str) -> list[Any]:
    if len(cursor) > LONGEST or not cursor.isascii():
        raise _unknown()
    try:
        parts = msgspec.json.decode(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)), type=list[Any])
    except (binascii.Error, ValueError, msgspec.MsgspecError, RecursionError):
        raise _unknown() from None
    if not parts or parts[0] != kind:
        raise _unknown()
    return parts[1:]


def _unknown() -> Problem:
    return bad_argument("after", "is not a cursor of this list: pass `after` of its last page")
