"""Serving: the parts that the requests of one event loop share, made by the first request."""

import asyncio
import contextlib
import logging
from collections.abc import Coroutine, Iterator
from typing import Any

from everpoll.errors import BadInput, EverpollError
from everpoll.server.beats import BeatTokens
from everpoll.server.changes import Changes
from everpoll.server.feed_hub import FeedHub
from everpoll.server.metrics import Metrics
from everpoll.server.prober import Prober
from everpoll.server.problems import Problem
from everpoll.server.served import ServedApp
from everpoll.server.service_graph import ServiceGraphs
from everpoll.server.shutdown import ShutdownSignals
from everpoll.stores.contract import Store

logger = logging.getLogger("everpoll.server")


class Serving:
    """The streams, the hubs and the prober of one event loop."""

    def __init__(self, app: ServedApp, *, watches_signals: bool, is_alone: bool) -> None:
        self.app = app
        self._is_alone = is_alone
        self.event_loop = asyncio.get_running_loop()
        self.hub = FeedHub(app.store)
        self.changes = Changes(app, app.store, self.hub)
        self.prober = Prober(app.store)
        self.beats = BeatTokens(app.services)
        self.metrics = Metrics(app)
        self.graphs = ServiceGraphs(app)
        self._streams: set[asyncio.Task[None]] = set()
        self._works: set[asyncio.Task[None]] = set()
        self._is_closing = False
        self._signals = ShutdownSignals(self.end_streams) if watches_signals else None

    @property
    def needs_store(self) -> bool:
        """Whether health depends on the database: the app has work in it, or this process only serves HTTP."""
        return self._is_alone or self.app.needs_store

    async def store(self) -> Store:
        """Return the store, connected; an unusable address is an error of the server, not of the caller."""
        try:
            return await self.app.store()
        except BadInput as error:
            raise Problem(503, str(error)) from None

    @contextlib.contextmanager
    def streaming(self, pump: "asyncio.Task[None]") -> Iterator[None]:
        """Register a stream, so that the server ends it when it stops."""
        if self._signals is not None:
            self._signals.begin()
        if self._is_closing:
            pump.cancel()
        self._streams.add(pump)
        try:
            yield
        finally:
            self._streams.discard(pump)

    def background(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Run a coroutine in the background; it ends with the server."""
        task = self.event_loop.create_task(work)
        self._works.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._works.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, EverpollError):
            # The caller gets it as a problem, unless the action took too long for that.
            logger.warning("a bulk action ended early: %s", error)
        elif error is not None:
            logger.error("a bulk action failed: %s", error, exc_info=error)

    def end_streams(self) -> None:
        """End every stream, and each one that begins from now on: the server is about to close."""
        self._is_closing = True
        for pump in self._streams:
            pump.cancel()

    def close(self) -> None:
        """End all streams and background work."""
        self.end_streams()
        for task in self._works:
            task.cancel()
        self.prober.close()
        self.changes.close()
        self.hub.close()
        if self._signals is not None:
            self._signals.end()
