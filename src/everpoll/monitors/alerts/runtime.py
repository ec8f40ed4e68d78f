"""Alerts of one process: creates the parts that work on incidents and mailboxes, and closes them."""

import os
from collections.abc import Mapping

from everpoll.engine.threads import DaemonThreads
from everpoll.engine.work import Work
from everpoll.http import Client
from everpoll.monitors.alerts.channel import Tools
from everpoll.monitors.alerts.channels import Channels
from everpoll.monitors.alerts.delivery import Deliveries
from everpoll.monitors.alerts.incident_rows import IncidentRows
from everpoll.monitors.alerts.incident_work import IncidentWork
from everpoll.monitors.alerts.mailbox import queue_of
from everpoll.monitors.alerts.outbox import Outbox
from everpoll.monitors.alerts.situation_reader import SituationReader
from everpoll.stores.contract import Store

THREADS = 8
"""For mail servers and plain functions: a mailbox sends one letter at a time."""


class Alerts:
    """Belongs to one event loop, until `close`. Looks open and close incidents through `rows`."""

    def __init__(
        self, store: Store, channels: Channels, client: Client, environment: Mapping[str, str] = os.environ
    ) -> None:
        self._threads = DaemonThreads(THREADS, "everpoll-alerts")
        self._outbox = Outbox(store, channels)
        self._situation_reader = SituationReader(store)
        self.rows = IncidentRows(store)
        self._deliveries = Deliveries(store, channels, Tools(client, environment, self._threads))
        self.works: tuple[Work, ...] = (
            IncidentWork(store, self._outbox, self._situation_reader).work,
            self._deliveries.work,
        )
        self._channels = channels

    def queues(self) -> list[str]:
        """Return the queues of the mailboxes that this process can deliver."""
        return [queue_of(name) for name in self._channels.names]

    @property
    def outcomes(self) -> Mapping[str, int]:
        """How many messages were sent, and how many failed."""
        return self._deliveries.outcomes

    async def close(self) -> None:
        """Stop running deliveries and reads; call it once the worker has stopped."""
        await self._outbox.close()
        await self._situation_reader.close()
        self._threads.shutdown(wait=False)
