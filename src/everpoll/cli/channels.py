"""Makes a channel of each table `[channels.NAME]` in a configuration file."""

from typing import Any

from everpoll.app import Everpoll
from everpoll.monitors.alerts.channel_config import channels_of


def add_channels(app: Everpoll, tables: dict[str, Any]) -> None:
    """Give the app the channels that these tables describe, by name."""
    for name, one in channels_of(tables).items():
        app.services.channel(name, one.channel, one.group_s)
