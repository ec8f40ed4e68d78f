"""The event in the feed when an attempt of a job fails, or a job is canceled: the note of the trail, in short.

Promises: one event for each failed attempt and each cancel, written with the settlement; none for what is done. The
error has a bound: its traceback, and the rest of its text, are in the trail.
"""

from typing import Any

from everpoll.policy.storable_texts import storable
from everpoll.stores.contract import NewEvent, encode
from everpoll.stores.operations import UNNUMBERED

ERROR_BYTES = 500
SHOWN_FIELDS = ("what", "attempt", "type", "error", "why")


def failure_event(note: dict[str, Any], seq: int = UNNUMBERED) -> tuple[NewEvent, ...]:
    """Return the event of a settlement with that note, under that number of the task's own."""
    body = {name: note[name] for name in SHOWN_FIELDS if name in note}
    if "error" in body:
        body["error"] = storable(str(body["error"]), ERROR_BYTES)
    return (NewEvent(seq, encode(body)),)
