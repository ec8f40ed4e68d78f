"""Positions in the feed of events: opaque texts for callers, numbers for all three stores."""

from everpoll.errors import BadInput

POSITION_DIGITS = 18
"""Numbers with this many digits fit into 63 bits."""


def place_in_feed(position: str) -> int:
    """Return the number of a position of the feed; raise `BadInput` for any other text."""
    if not (position.isascii() and position.isdigit() and len(position) <= POSITION_DIGITS):
        raise BadInput(f"{position!r} is not a position of this store's events: pass a position that `events` returned")
    return int(position)
