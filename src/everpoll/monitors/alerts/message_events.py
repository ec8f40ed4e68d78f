"""Message events: what became of the messages to a channel, written with its mailbox.

Durable, as the events of services are. A failed try that is repeated is not an event.
"""

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from everpoll.stores.contract import NewEvent

MAX_LISTED = 100


class MessageEvent(Struct, frozen=True, kw_only=True, rename="camel", tag_field="kind"):
    """What every event of a channel has."""

    channel: str
    timestamp: float
    """Seconds since the epoch, by the store's clock."""
    notices: tuple[str, ...]
    """The ids of the first notices that it is about."""
    count: int
    """How many there are."""


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
    """Return the events as they are written, numbered up to `last`."""
    first = last - len(events) + 1
    return tuple(NewEvent(first + place, msgspec.json.encode(event).decode()) for place, event in enumerate(events))
