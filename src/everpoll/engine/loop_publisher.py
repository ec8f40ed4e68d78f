"""Loop publisher: publishes the loops of a process that has no worker, by the heartbeat of a worker without queues.

Promises: starts beside the app and never keeps it from running: a database that is away is tried again in the
background, and neither fails the start nor makes the app unhealthy. Leases nothing. Ends with the app.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Self

from everpoll.drivers.repeated_warnings import RepeatedWarnings, event_loop_time
from everpoll.engine.options import WorkerOptions
from everpoll.engine.publishing import Cards
from everpoll.engine.settler import OUTAGE
from everpoll.engine.work import WorkRegistry
from everpoll.engine.worker import Worker
from everpoll.errors import EverpollError, StoreUnavailable
from everpoll.policy import human
from everpoll.stores.contract import Store

logger = logging.getLogger("everpoll.engine")

STARTING_S = 1.0
"""How long the end of an app waits for a start that is under way."""


class LoopPublisher:
    """Shows the loops of one app to other processes. `close` closes the store, if this object opened it."""

    def __init__(
        self,
        open_store: Callable[[], Awaitable[Store]],
        close: Callable[[], Awaitable[None]] | None,
        cards: Cards,
        options: WorkerOptions,
    ) -> None:
        self._open = open_store
        self._close = close
        self._cards = cards
        self._options = options
        self._worker: Worker | None = None
        self._starting: asyncio.Task[None] | None = None

    @classmethod
    def on_own_store(cls, store: Store, migrate: bool, cards: Cards, options: WorkerOptions) -> Self:
        """Open the store to publish, and close it afterwards."""

        async def opened() -> Store:
            await store.open(migrate=migrate)
            return store

        return cls(opened, store.close, cards, options)

    def start(self) -> None:
        """Begin to publish, as soon as the database can be reached."""
        self._starting = asyncio.get_running_loop().create_task(self._start(), name="everpoll-show-loops")

    async def stop(self) -> None:
        """Publish a last time, and sign off. Repeatable."""
        starting, self._starting = self._starting, None
        if starting is None:
            return
        # A start that is about to succeed gets this time: a process that ends at once still shows its loops.
        await asyncio.wait({starting}, timeout=STARTING_S)
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        try:
            if self._worker is not None:
                await self._worker.stop(0)
        finally:
            if self._close is not None:
                await self._close()

    async def _start(self) -> None:
        failures, warnings = 0, RepeatedWarnings(logger, "publishing loops", event_loop_time)
        while True:
            try:
                worker = Worker(await self._open(), WorkRegistry(), self._options, loops=self._cards)
                await worker.start()
            except StoreUnavailable as error:
                failures += 1
                delay_s = OUTAGE.delay(failures)
                text = "cannot publish the loops of this process: %s; trying again in %s"
                warnings.failed(error, text, error, human(delay_s))
                await asyncio.sleep(delay_s)
            except EverpollError as error:
                logger.warning("cannot publish the loops of this process: %s", error)
                return
            else:
                self._worker = worker
                warnings.works()
                return
