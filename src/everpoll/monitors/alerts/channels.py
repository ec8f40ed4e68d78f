"""Channels: the channels that this process can send to, by name.

Promises: `Alert(to=[…])` refers to channels by these names. Registering a name again replaces the channel. The mailbox
of a channel has a queue of its own; only processes that have the channel lease from it.
"""

import logging
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from everpoll.errors import BadInput
from everpoll.monitors.alerting import GROUP_S, Message, is_channel_name
from everpoll.monitors.alerts.channel import Channel
from everpoll.monitors.alerts.function_channel import FunctionChannel
from everpoll.policy import Duration, human, seconds, shown

logger = logging.getLogger("everpoll.monitors")

LONGEST_GROUP_S = 3_600.0


class RegisteredChannel(NamedTuple):
    """A channel, and how long it collects notices for one message."""

    channel: Channel
    group_s: float


class Channels:
    """The channels that `app.services.channel` has registered."""

    def __init__(self) -> None:
        self._channels: dict[str, RegisteredChannel] = {}

    def add(self, name: str, channel: Channel | Callable[[Message], Any], group: Duration | None = None) -> None:
        """Register a channel: a `Webhook`, a `Slack`, an `Email`, or any function that takes a `Message`.

        Notices that come within `group` (default: a minute) of each other are one message.
        """
        self._channels[name] = registered(name, channel, group)

    def get(self, name: str) -> RegisteredChannel | None:
        """Return a channel; None: this process does not have it."""
        return self._channels.get(name)

    @property
    def names(self) -> list[str]:
        """The names of all channels."""
        return list(self._channels)

    def warn_of_missing(self, alerts: Iterable[tuple[str, Iterable[str]]]) -> None:
        """Log once each channel that a service alerts and this process does not have; `alerts` has (service, names)."""
        known = set(self._channels)
        for service, names in alerts:
            for name in names:
                if name not in known:
                    known.add(name)
                    text = "service %r alerts the channel %r, which this process does not have: its alerts wait"
                    logger.warning(text, service, name)


def registered(name: Any, channel: Any, group: Duration | None) -> RegisteredChannel:
    """Check the name, the channel and the group that the user gave, and return them as one value."""
    if not is_channel_name(name):
        raise BadInput(f'channel {shown(name)}: its name must be 1 to 100 printable characters; write "ops"')
    if not isinstance(channel, Channel):
        if not callable(channel):
            raise BadInput(
                f"channel {name!r}: {type(channel).__name__} is not a channel; write Webhook(…), Slack(…), Email(…) or "
                "a function that takes a Message"
            )
        channel = FunctionChannel(channel)
    group_s = GROUP_S if group is None else seconds(group, name=f"channel {name!r}: group")
    if group_s > LONGEST_GROUP_S:
        raise BadInput(f"channel {name!r}: group={shown(group)}: must be at most {human(LONGEST_GROUP_S)}")
    return RegisteredChannel(channel, group_s)
