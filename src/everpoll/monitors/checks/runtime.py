"""Runtime: creates the parts that look at services in one process, and starts and stops them."""

import logging
import os
from collections.abc import Callable, Mapping, Sequence

from everpoll.engine.meter import PollerHealth
from everpoll.engine.options import WorkerOptions
from everpoll.engine.work import WorkRegistry
from everpoll.engine.worker import Worker
from everpoll.http import HttpClient
from everpoll.monitors.alerts.channels import Channels
from everpoll.monitors.alerts.runtime import Alerts
from everpoll.monitors.checks.check import Checks
from everpoll.monitors.checks.fetching import Fetching
from everpoll.monitors.checks.known import KnownDependencies
from everpoll.monitors.checks.looking import Looking
from everpoll.monitors.checks.recorder import Recorder
from everpoll.monitors.checks.upkeep import Upkeep
from everpoll.monitors.events import ServiceEvent
from everpoll.stores.contract import Store

GATHER_S = 0.03
"""If more looks are due than slots are free, settlements wait up to this long, so that they share a statement. On
Postgres a look takes 46 us in the server with 0.03, and 60 us with 0.01."""
GATHERED_PER_S = 15_000
"""The waiting time is short enough for this many looks a second: three times what one core makes."""


class Runtime:
    """Belongs to one event loop, from `start` to `stop`."""

    def __init__(
        self,
        store: Store,
        per_host: int,
        channels: Channels,
        notify: Callable[[Sequence[ServiceEvent]], None] | None = None,
    ) -> None:
        self._store = store
        self._client = HttpClient(environment=os.environ)
        self._fetching = Fetching(per_host)
        self.recorder = Recorder(store)
        self._alerts = Alerts(store, channels, self._client)
        looking = Looking(self._client, self._fetching)
        self._checks = Checks(store, looking, self.recorder, KnownDependencies(store), self._alerts.rows, notify)
        self._upkeep = Upkeep(store)
        self._works = WorkRegistry(more_queues=self._alerts.queues)
        for work in (self._checks.work, self._upkeep.work, *self._alerts.works):
            self._works.add(work)
        self._worker: Worker | None = None

    async def start(self, label: str, slots: int, lease_s: float, keep_s: float | None) -> None:
        """Start a worker that looks at services, and drops history that is older than `keep_s`."""
        await self._upkeep.ensure()
        # At most half of the slots may wait for hosts; the other half stays free for looks at hosts that answer.
        self._fetching.most_in_all = max(1, slots // 2)
        options = WorkerOptions(
            slots=slots,
            lease_s=lease_s,
            keep_s=keep_s,
            gather_s=min(GATHER_S, slots / GATHERED_PER_S),
            lease_level=logging.DEBUG,
            label=f"{label} (services)",
        )
        worker = Worker(self._store, self._works, options)
        await worker.start()
        self._worker = worker

    async def stop(self, grace_s: float) -> None:
        """Stop the worker, then write the looks that wait to be recorded."""
        try:
            if self._worker is not None:
                await self._worker.stop(grace_s)
        finally:
            await self._alerts.close()
            await self.recorder.close()
            await self._client.close()

    @property
    def worker(self) -> Worker | None:
        """The worker that looks; None before the start."""
        return self._worker

    @property
    def alerts(self) -> Mapping[str, int]:
        """How many messages were sent, and how many failed."""
        return self._alerts.outcomes

    def health(self) -> PollerHealth | None:
        """Return the health of the worker."""
        return None if self._worker is None else self._worker.health()
