"""Push: a trigger of the user's table notifies, and workers listen. Without a trigger they poll, and log that once.

    no trigger ──found──▶ listening ──proven──▶ has_push
        ▲                     │
        └── gone, disabled ───┘      the catalog is asked once a minute

Promises: `has_push` is true only while the trigger exists and notifications have been seen to arrive. A trigger that
is added later is found. Rows that this process hands back wake its listeners directly.
"""

import asyncio
import logging

from everpoll.drivers.postgres.connections import Connections
from everpoll.drivers.postgres.lane import Lane
from everpoll.drivers.postgres.listener import Listener
from everpoll.drivers.push import PushTask
from everpoll.errors import EverpollError
from everpoll.tables.postgres.ddl import TRIGGER
from everpoll.tables.postgres.shape import Relation

logger = logging.getLogger("everpoll.tables")

RECHECK_S = 60.0
# Disabled ('D') and replica-only ('R') triggers do not notify. The trigger's argument, ended by a zero byte, is the
# channel. It is right even if the table was renamed, or the trigger was created without its schema.
CHANNEL_OF = """select convert_from(trim(trailing '\\x00'::bytea from tgargs), 'UTF8') from pg_trigger
    where tgrelid = $1::bigint::oid and tgname = $2 and tgenabled in ('O', 'A') and tgnargs = 1"""


async def push_channel(lane: Lane, relation: Relation) -> str | None:
    """Read the channel that the table's trigger notifies; None: such a trigger is missing or disabled."""
    channel: str | None = await lane.value(CHANNEL_OF, relation.oid, TRIGGER)
    return channel


class Push(PushTask):
    """The listeners of one table in one process."""

    def __init__(self, connections: Connections, lane: Lane, relation: Relation) -> None:
        super().__init__(self._watch, "everpoll-table-push")
        self._connections = connections
        self._lane = lane
        self._relation = relation
        self._channel: str | None = None
        self._listener: Listener | None = None
        self._was_looked = False
        self.recheck_s = RECHECK_S
        # An outage is over: look now, with or without a trigger.
        connections.connector.reach.subscribe(lambda: self.from_thread(self.wake))

    @property
    def has_push(self) -> bool:
        """See the contract."""
        return self._listener is not None and self._listener.has_push

    async def ask_for_room(self) -> None:
        """Tell the other processes that this one has no connection for its heartbeat, where there is a trigger."""
        if self._listener is not None:
            await self._listener.ask_for_room()

    async def _watch(self) -> None:
        try:
            while True:
                await self._look()
                self.confirm()
                await asyncio.sleep(self.recheck_s)
        finally:
            await self._hear(None)

    async def _look(self) -> None:
        name = self._relation.name
        try:
            channel = await push_channel(self._lane, self._relation)
        except EverpollError as error:
            logger.debug("table %s: cannot look for its trigger: %s", name, error)
            return
        except Exception:
            logger.exception("table %s: cannot look for its trigger", name)
            return
        if channel != self._channel:
            await self._hear(channel)
        elif self._was_looked:
            return
        self._was_looked = True
        if channel is None:
            logger.info(
                "table %s has no trigger that tells of new rows: they are found by polling; `everpoll tables ddl` "
                "prints one",
                name,
            )
        else:
            logger.info("table %s: its trigger tells of new rows", name)
            # Rows inserted before this listener started have woken no worker.
            self.wake()

    async def _hear(self, channel: str | None) -> None:
        """Listen on this channel and no other; None: on none."""
        listener, self._listener, self._channel = self._listener, None, channel
        if listener is not None:
            await listener.close()
        if channel is not None:
            self._listener = Listener(self._connections, self._lane, channel)
            await self._listener.add(self.wake)
