"""Push by Supabase Realtime, which reconnects after every failure. See `drivers/postgrest/realtime.py`.

Promises: `has_push` is true only while a subscription is confirmed. The look after a new connection finds what was
missed in between.
Never raises if Realtime is away; never gives up. A bare PostgREST server has no Realtime: its rows are polled.
"""

import asyncio
import logging
import random

import aiohttp

from everpoll.drivers.postgrest.http import Link
from everpoll.drivers.postgrest.realtime import Channel
from everpoll.drivers.push import PushTask
from everpoll.drivers.repeated_warnings import RepeatedWarnings, event_loop_time
from everpoll.drivers.wake import OnWake
from everpoll.errors import EverpollError
from everpoll.policy import Backoff, human
from everpoll.tables.contract import Finding
from everpoll.tables.mapping import Table
from everpoll.tables.supabase.functions import schema_of

logger = logging.getLogger("everpoll.tables")

FIRST_S = 3.0
"""How long a starting worker waits for push; after that it polls, and push may come later."""
RETRY = Backoff("500ms", cap="30s", jitter=0.2)


class Realtime(PushTask):
    """Wakes the listeners of this process; one connection serves all."""

    def __init__(self, link: Link, table: Table) -> None:
        super().__init__(self._listen, "everpoll-realtime")
        self._link = link
        self._table = table
        self._rng = random.Random()  # noqa: S311 - jitter needs no secret

    async def add(self, on_wake: OnWake, patience_s: float | None = FIRST_S) -> None:
        """Wake this listener, too; return once it is known whether Realtime answers, or after a moment."""
        if self._link.address.realtime is None:
            logger.info("table %s: a bare PostgREST server has no push: polling", self._table.name)
            return
        await super().add(on_wake, patience_s)

    async def inspect(self) -> Finding:
        """Subscribe once, and return whether Realtime confirmed it."""
        url = self._link.address.realtime
        if url is None:
            detail = "a bare PostgREST server has no push: rows are polled for"
            return Finding(what="push", is_fit=False, is_needed=False, detail=detail)
        try:
            async with aiohttp.ClientSession() as session, self._channel(session, url) as channel:
                await channel.join()
        except (EverpollError, aiohttp.ClientError, TimeoutError, OSError) as error:
            detail = f"Realtime does not tell of changes, so rows are polled for: {self._words(error)}"
            return Finding(what="push", is_fit=False, is_needed=False, detail=detail)
        return Finding(what="push", is_fit=True, detail="Realtime tells of inserts and changes")

    async def _listen(self) -> None:
        url = self._link.address.realtime
        assert url is not None, "without Realtime nothing is added"
        failures, warnings = 0, RepeatedWarnings(logger, f"table {self._table.name}: Realtime", event_loop_time)
        async with aiohttp.ClientSession() as session:
            while True:
                try:
                    async with self._channel(session, url) as channel:
                        await channel.join()
                        failures = 0
                        warnings.works()
                        self.confirm()
                        # The first time, too: it may have come later than the first look.
                        self.wake()
                        await channel.listen(self.wake)
                except Exception as error:  # noqa: BLE001 - whatever it is, the next connection may work
                    failures += 1
                    wait_s = RETRY.delay(failures, self._rng)
                    said = self._words(error)
                    what = "table %s: Realtime: %s; polling instead, next try in %s"
                    warnings.failed(error, what, self._table.name, said, human(wait_s))
                    self.fail()
                    await asyncio.sleep(wait_s)

    def _channel(self, session: aiohttp.ClientSession, url: str) -> Channel:
        table = self._table
        where = {"schema": schema_of(table), "table": table.parts[-1], "filter": f"{table.status}=eq.{table.queued}"}
        return Channel(self._link, session, url, where)

    def _words(self, error: Exception) -> str:
        said = "no answer in time" if isinstance(error, TimeoutError) else str(error) or type(error).__name__
        if isinstance(error, aiohttp.WSServerHandshakeError):
            # Its own text quotes the address, and the address carries the key.
            said = f"the server answered {error.status} instead of opening a WebSocket"
        return self._link.key.masked(said)
