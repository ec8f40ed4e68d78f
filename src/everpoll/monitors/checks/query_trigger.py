"""Query trigger: tells a process without services when to query the store for services of other processes.

Promises: if the store pushes, the process queries it after an enqueue anywhere, at most every QUERY_S, and every
SAFETY_S as the safety net. Without push, it queries every QUERY_S.
"""

import asyncio

from everpoll.drivers.wake import Wake
from everpoll.stores.contract import Store

QUERY_S = 1.0
SAFETY_S = 60.0


class QueryTrigger:
    """Sets an event when the store should be queried."""

    def __init__(self, reason: asyncio.Event) -> None:
        self._reason = reason
        self._store: Store | None = None
        self._asked_at = float("-inf")
        self._timer: asyncio.TimerHandle | None = None

    @property
    def rest_s(self) -> float:
        """How long to wait for a wake-up at most."""
        return SAFETY_S if self._store is not None and self._store.has_push else QUERY_S

    async def begin(self, store: Store) -> None:
        """Listen to the store, and note that it is queried now. Call this before each query."""
        if self._store is None:
            await store.listen(self._woken)
            self._store = store
        self._asked_at = asyncio.get_running_loop().time()

    async def stop(self) -> None:
        """Stop listening."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        store, self._store = self._store, None
        if store is not None:
            await store.unlisten(self._woken)

    def _woken(self, _wake: Wake) -> None:
        event_loop = asyncio.get_running_loop()
        wait_s = self._asked_at + QUERY_S - event_loop.time()
        if wait_s <= 0:
            self._reason.set()
        elif self._timer is None:
            self._timer = event_loop.call_later(wait_s, self._ring)

    def _ring(self) -> None:
        self._timer = None
        self._reason.set()
