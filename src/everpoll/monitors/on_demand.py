"""Services on demand: the services of an app, loaded when the first one is used.

Most programs have no services, and the code that looks at them takes 5 MB. Until this process registers a service, a
standby waits for the first one of another process.
"""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from everpoll.engine.meter import PollerHealth
from everpoll.engine.options import WorkerOptions
from everpoll.engine.worker import Worker
from everpoll.monitors.standby import Standby
from everpoll.stores.contract import Store

if TYPE_CHECKING:
    from everpoll.monitors.services import Services


class ServicesOnDemand:
    """Loads `Services` at the first use. `has_work` tells whether the app has other work in its database."""

    def __init__(
        self,
        store: Callable[[], Awaitable[Store]],
        wall: Callable[[], float],
        options: Callable[[], WorkerOptions],
        has_work: Callable[[], bool],
    ) -> None:
        self._store = store
        self._wall = wall
        self._options = options
        self._has_work = has_work
        self._services: Services | None = None
        self._standby = Standby(store, self._start)

    def __len__(self) -> int:
        return 0 if self._services is None else len(self._services)

    @property
    def worker(self) -> Worker | None:
        """The worker that looks at services; None: there is none now."""
        return None if self._services is None else self._services.worker

    def here(self) -> "Services":
        """Return the services of this app; the first call loads the code."""
        if self._services is None:
            from everpoll.monitors.services import Services  # noqa: PLC0415

            self._services = Services(self._store, self._wall, self._options().label)
            self._standby.start_now()
        return self._services

    async def start(self) -> None:
        """Look at the services of this process, or wait for the first one."""
        if self._services is not None:
            await self._start()
        else:
            self._standby.start(finds_others=self._has_work())

    async def _start(self) -> None:
        services, options = self.here(), self._options()
        # An app with only loops needs no database, so it does not look for services in one.
        finds_others = self._has_work() or services.is_set_up
        await services.start(options.lease_s, options.keep_s, finds_others=finds_others)

    async def stop(self, grace_s: float) -> None:
        """Stop looking, within the grace period."""
        await self._standby.stop()
        if self._services is not None:
            await self._services.stop(grace_s)

    def forget(self) -> None:
        """Drop everything that belongs to an earlier event loop."""
        self._standby.forget()
        if self._services is not None:
            self._services.forget()

    def health(self) -> PollerHealth | None:
        """Return the health of the worker that looks at services; None: there is none."""
        return None if self._services is None else self._services.health()
