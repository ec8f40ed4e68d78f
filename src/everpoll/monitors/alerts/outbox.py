"""Outbox: puts notices into the mailboxes of their channels.

Promises: when `hand_over` returns, each notice is in the mailbox of its channel once, however often it is handed over.
Notices of many incidents are written together, a few times a second, because a mailbox is one row. If the store cannot
be reached, `hand_over` raises `StoreUnavailable`; the caller then hands the notices over again.
"""

import asyncio
import logging
import random
from collections.abc import Sequence

from everpoll.monitors.alerting import Notice
from everpoll.monitors.alerts import mailbox
from everpoll.monitors.alerts.channels import Channels
from everpoll.monitors.alerts.mailbox import KIND, MAILBOX, MAX_PENDING, Mail
from everpoll.stores.contract import NewTask, Store, encode
from everpoll.stores.operations import Revision

logger = logging.getLogger("everpoll.monitors")

LINGER_S = 0.2
"""How long a batch waits for more notices of its channel."""
COLLISION_S = 0.05
"""How long to wait at most after another process has written the same mailbox."""


class Outbox:
    """Writes to all mailboxes, for one process and one event loop."""

    def __init__(self, store: Store, channels: Channels) -> None:
        self._store = store
        self._channels = channels
        self._missed: set[str] = set()
        self._collecting: dict[str, tuple[list[Notice], asyncio.Task[None]]] = {}
        self._writing: set[asyncio.Task[None]] = set()
        self._turns: dict[str, asyncio.Lock] = {}
        self._rng = random.Random()  # noqa: S311 - jitter needs no secure randomness

    async def hand_over(self, notices: Sequence[Notice]) -> None:
        """Put each notice into the mailbox of its channel."""
        batches = {self._joined(notice) for notice in notices}
        # Shielded: if one caller is canceled, the notices of the others in its batch are still written.
        await asyncio.gather(*(asyncio.shield(batch) for batch in batches))

    async def close(self) -> None:
        """Cancel the batches under way; incidents hand over again the notices that were not written."""
        writing = list(self._writing)
        for batch in writing:
            batch.cancel()
        await asyncio.gather(*writing, return_exceptions=True)

    def _joined(self, notice: Notice) -> "asyncio.Task[None]":
        """Add the notice to a batch and return the batch."""
        self._warn_if_missing(notice.channel)
        collecting = self._collecting.get(notice.channel)
        if collecting is None:
            notices: list[Notice] = []
            batch = asyncio.get_running_loop().create_task(self._write(notice.channel, notices))
            self._writing.add(batch)
            batch.add_done_callback(self._ended)
            collecting = self._collecting[notice.channel] = (notices, batch)
        collecting[0].append(notice)
        return collecting[1]

    def _warn_if_missing(self, channel: str) -> None:
        if channel not in self._missed and self._channels.get(channel) is None:
            self._missed.add(channel)
            logger.warning(
                "channel %r is not registered in this process: its alerts wait for a process that has it",
                channel,
            )

    def _ended(self, batch: "asyncio.Task[None]") -> None:
        self._writing.discard(batch)
        if not batch.cancelled():
            batch.exception()  # retrieved here, because no caller may be left that waits for it

    async def _write(self, channel: str, notices: list[Notice]) -> None:
        async with self._turns.setdefault(channel, asyncio.Lock()):
            try:
                await asyncio.sleep(LINGER_S)
            finally:
                del self._collecting[channel]
            while not await self._put(channel, notices):  # noqa: ASYNC110 - another process is what it waits for
                await asyncio.sleep(self._rng.random() * COLLISION_S)

    async def _put(self, channel: str, notices: Sequence[Notice]) -> bool:
        """Append to the mailbox, or create it; return False if another process changed it first."""
        row = await self._store.find(KIND, channel)
        if row is None:
            [made] = await self._store.enqueue([_new_task(channel, notices)])
            return made.is_new
        if row.ended_at is not None:
            # It ended because its workers died several times. Its notices must not get lost.
            await self._store.retry(row.id, encode({"what": "retry", "why": "a mailbox never ends"}))
            return False
        appended = mailbox.append(row.args, notices)
        if appended.dropped:
            logger.error("channel %r: %d notices are dropped: %d wait already", channel, appended.dropped, MAX_PENDING)
        if not appended.new:
            return True
        revision = Revision(KIND, channel, encode(appended.args), expects=encode(row.args))
        return (await self._store.revise([revision]))[0] is not None


def _new_task(channel: str, notices: Sequence[Notice]) -> NewTask:
    return NewTask(
        name=MAILBOX,
        kind=KIND,
        queue=mailbox.queue_of(channel),
        key=channel,
        args=encode(mailbox.append(None, notices).args),
        memory=mailbox.write(Mail()).decode(),
        cancels_itself=True,
        indexed=True,
    )
