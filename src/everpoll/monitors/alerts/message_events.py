"""Message events: whether a channel's messages were delivered, written with its mailbox.

They are durable, like the events of services. A failed try that is repeated is not an event.
"""

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from everpoll.stores.contract import NewEvent

MAX_LISTED = 100


class MessageEvent(Struct, frozen=True, kw_only=True, rename="camel", tag_field="kind"):
    """The fields of every event of a channel."""

    channel: str
    timestamp: float
    """Seconds since the epoch, by the store's clock."""
    notices: tuple[str, ...]
    """The ids of the first MAX_LISTED notices."""
    count: int
    """How many notices the event is about."""


class MessageDelivered(MessageEvent, frozen=True, kw_only=True, tag="message:delivered"):
    """The receiver has the message."""

    message_id: str


class MessageUnclear(MessageEvent, frozen=True, kw_only=True, tag="message:unclear"):
    """The receiver may have the message, and it is not sent again."""

    error: str


class MessageGivenUp(MessageEvent, frozen=True, kw_only=True, tag="message:given_up"):
    """The notices could not be delivered for a day."""

    error: str | None


def numbered(events: Sequence[MessageEvent], last: int) -> tuple[NewEvent, ...]:
    """Return the events in the form that is stored, numbered up to `last`."""
    first = last - len(events) + 1
    return tuple(NewEvent(first + place, msgspec.json.encode(event).decode()) for place, event in enumerate(events))
