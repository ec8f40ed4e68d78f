"""Positions in the feed of events: opaque texts for callers, numbers for all three stores."""

from everpoll.errors import BadInput

POSITION_DIGITS = 18
"""All such numbers have a place among 63 bits."""


def place_in_feed(position: str) -> int:
    """Return the number that a position of the feed stands for; `BadInput` for any other text."""
    if not (position.isascii() and position.isdigit() and len(position) <= POSITION_DIGITS):
        raise BadInput(f"{position!r} is not a position of this store's events: pass on what `events` has answered")
    return int(position)
