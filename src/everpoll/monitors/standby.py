"""Standby: a process without services waits for the first one, its own or that of another process.

    waiting ──a service in the store, or one registered here──▶ begin() ──▶ over
       └──stop──▶ over

Promises: `begin` is called within two seconds after there is a service, and again until it succeeds. The code that
looks at services is not loaded before that: it takes 5 MB, and most programs have no services.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from everpoll.monitors.checks.query_trigger import QUERY_S, QueryTrigger
from everpoll.monitors.presence import Presence
from everpoll.stores.contract import Store

logger = logging.getLogger("everpoll.monitors")


class Standby:
    """Waits for the first service of one app."""

    def __init__(self, store: Callable[[], Awaitable[Store]], begin: Callable[[], Awaitable[None]]) -> None:
        self._store = store
        self._begin = begin
        self._waiting: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._is_wanted = False

    def start(self, *, finds_others: bool) -> None:
        """Start waiting; with `finds_others=False`, services of other processes are not queried.

        May be called again.
        """
        if self._waiting is None:
            self._is_wanted = False
            self._changed = asyncio.Event()
            following = self._wait(finds_others)
            self._waiting = asyncio.get_running_loop().create_task(following, name="everpoll-services-standby")

    def start_now(self) -> None:
        """Begin now, because this process has services. After `start`, only the event loop's thread may call this."""
        self._is_wanted = True
        self._changed.set()

    async def stop(self) -> None:
        """Stop waiting."""
        waiting = self._waiting
        self.forget()
        if waiting is not None and waiting is not asyncio.current_task():
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)

    def forget(self) -> None:
        """Drop everything that belongs to an earlier event loop."""
        self._waiting = None

    async def _wait(self, finds_others: bool) -> None:
        query_trigger, presence = QueryTrigger(self._changed), Presence()
        rest_s = 0.0 if finds_others else None
        try:
            while True:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(rest_s):
                        await self._changed.wait()
                self._changed.clear()
                try:
                    if self._is_wanted or (finds_others and await self._is_any(query_trigger, presence)):
                        await query_trigger.stop()
                        await self._begin()
                        return
                    rest_s = query_trigger.rest_s if finds_others else None
                except Exception as error:  # noqa: BLE001 - whatever it is, the next try may succeed
                    logger.warning("cannot look for services: %s; trying again", error)
                    rest_s = QUERY_S
        finally:
            await query_trigger.stop()

    async def _is_any(self, query_trigger: QueryTrigger, presence: Presence) -> bool:
        store = await self._store()
        await query_trigger.begin(store)
        return await presence.is_any(store)
