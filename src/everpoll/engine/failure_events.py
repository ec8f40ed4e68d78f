"""The event in the feed when an attempt of a job fails, or a job is canceled: a short form of the note in the trail.

Promises: one event for each failed attempt and each cancel, written with the settlement; none for a job that is done.
The text of the error is cut: the trail has the rest of it, and its traceback.
"""

from typing import Any

from everpoll.policy.storable_texts import storable
from everpoll.stores.contract import NewEvent, encode
from everpoll.stores.operations import UNNUMBERED

ERROR_BYTES = 500
SHOWN_FIELDS = ("what", "attempt", "type", "error", "why")


def failure_event(note: dict[str, Any], seq: int = UNNUMBERED) -> tuple[NewEvent, ...]:
    """Return the event of a settlement with that note; `seq` is its number among the task's own events."""
    body = {name: note[name] for name in SHOWN_FIELDS if name in note}
    if "error" in body:
        body["error"] = storable(str(body["error"]), ERROR_BYTES)
    return (NewEvent(seq, encode(body)),)
