"""The prober: queries the database regularly, so that an outage shows even if the poller rests and no request comes.

Promises: once started, it queries every EVERY_S; a query without an answer within ANSWER_S is an error. After
UNHEALTHY_ERRORS in a row the server is not healthy, which takes less than 20 s; the first answer makes it
healthy again.
"""

import asyncio
from collections.abc import Awaitable, Callable

from msgspec import Struct

from everpoll.engine.meter import UNHEALTHY_ERRORS
from everpoll.stores.contract import Store

EVERY_S = 1.5
ANSWER_S = 1.5


class StoreHealth(Struct, frozen=True, kw_only=True):
    """Whether the database answers."""

    healthy: bool
    consecutive_errors: int
    last_error: str | None


class Prober:
    """Queries the store of one app."""

    def __init__(self, store: Callable[[], Awaitable[Store]]) -> None:
        self._store = store
        self._errors = 0
        self._last_error: str | None = None
        self._asking: asyncio.Task[None] | None = None
        self._first = asyncio.Event()

    def start(self) -> None:
        """Start querying."""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.get_running_loop().create_task(self._run(), name="everpoll-prober")

    async def begin(self) -> None:
        """Start querying; return once the first answer has come, or is late."""
        self.start()
        await self._first.wait()

    def close(self) -> None:
        """Stop querying."""
        if self._asking is not None:
            self._asking.cancel()
        self._asking = None

    def health(self) -> StoreHealth:
        """Return the health by the last answers."""
        healthy = self._errors < UNHEALTHY_ERRORS
        return StoreHealth(healthy=healthy, consecutive_errors=self._errors, last_error=self._last_error)

    @property
    def is_answered(self) -> bool:
        """Whether the last query was answered."""
        return self._first.is_set() and self._errors == 0

    async def _run(self) -> None:
        opening: asyncio.Future[Store] | None = None
        while True:
            try:
                if opening is None or (opening.done() and (opening.cancelled() or opening.exception() is not None)):
                    opening = asyncio.ensure_future(self._store())
                async with asyncio.timeout(ANSWER_S):
                    # Not canceled: migrating a schema may take longer, and must not start again each time.
                    store = await asyncio.shield(opening)
                    await store.events(None, 1)
                self._errors, self._last_error = 0, None
            except TimeoutError:
                self._failed("the database does not answer")
            except Exception as error:  # noqa: BLE001 - whatever it is, the database gave no answer
                self._failed(str(error) or type(error).__name__)
            self._first.set()
            await asyncio.sleep(EVERY_S)

    def _failed(self, error: str) -> None:
        self._errors += 1
        self._last_error = error
