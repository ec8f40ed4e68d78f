"""Push: a trigger of the user's table tells, we listen; where there is none, that is said once, and polling goes on.

    no trigger ──found──▶ listening ──proven──▶ has_push
        ▲                     │
        └── gone, disabled ───┘      the catalog is asked once a minute

Promises: `has_push` is true only while the trigger is there and notifications have been seen to arrive. A trigger that
is added later is found. Whoever listens here is told of this process's own give-backs directly.
"""

import asyncio
import logging
from collections.abc import Callable

from everpoll.drivers.postgres.lane import Dial, Lane
from everpoll.drivers.postgres.listener import Listener
from everpoll.drivers.wake import OnWake
from everpoll.errors import EverpollError
from everpoll.tables.mapping import Table
from everpoll.tables.postgres import ddl
from everpoll.tables.postgres.catalog import Relation

logger = logging.getLogger("everpoll.tables")

RECHECK_S = 60.0
# Disabled ('D') and replica-only ('R') triggers tell nothing; the argument is the channel, ended by a zero byte.
TRIGGER = """select 1 from pg_trigger where tgrelid = $1::bigint::oid and tgname = $2 and tgenabled in ('O', 'A')
    and tgargs = convert_to($3, 'UTF8') || '\\x00'::bytea"""


async def has_trigger(desk: Lane, table: Table, relation: Relation) -> bool:
    """Whether it is there, enabled, and tells on the table's channel."""
    found = await desk.value(TRIGGER, relation.oid, ddl.TRIGGER, ddl.channel(table, relation))
    return found is not None


class Push:
    """Of one table, in one process."""

    def __init__(
        self, dial: Dial, desk: Lane, own_pids: Callable[[], set[int]], table: Table, relation: Relation
    ) -> None:
        self._desk = desk
        self._table = table
        self._relation = relation
        self._listener = Listener(dial, desk, own_pids, ddl.channel(table, relation))
        self._wanted: list[OnWake] = []
        self._task: asyncio.Task[None] | None = None
        self._is_listening = False
        self._told: bool | None = None
        self.recheck_s = RECHECK_S

    @property
    def has_push(self) -> bool:
        """See the contract."""
        return self._is_listening and self._listener.has_push

    async def add(self, on_wake: OnWake) -> None:
        """Wake this one; returns once it is known whether there is a trigger, or that nobody can say."""
        self._wanted.append(on_wake)
        if self._task is None:
            await self._look()
            self._task = asyncio.get_running_loop().create_task(self._watch(), name="everpoll-table-push")

    async def remove(self, on_wake: OnWake) -> None:
        """Not any more; the last one ends it all."""
        self._wanted = [one for one in self._wanted if one != on_wake]
        if not self._wanted:
            await self.close()

    async def close(self) -> None:
        """Nobody listens any more."""
        task, self._task = self._task, None
        self._wanted, self._is_listening = [], False
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await self._listener.close()

    def wake(self, cancel: bool = False) -> None:
        """Tell everybody here."""
        for on_wake in self._wanted:
            asyncio.get_running_loop().call_soon(on_wake, cancel)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self.recheck_s)
            await self._look()

    async def _look(self) -> None:
        try:
            is_there = await has_trigger(self._desk, self._table, self._relation)
        except EverpollError as error:
            logger.debug("table %s: cannot look for its trigger: %s", self._table.name, error)
            return
        except Exception:
            logger.exception("table %s: cannot look for its trigger", self._table.name)
            return
        if is_there and not self._is_listening:
            await self._listener.add(self.wake)
            self._is_listening = True
            # What was inserted before we listened has told nobody.
            self.wake()
        elif not is_there and self._is_listening:
            self._is_listening = False
            await self._listener.remove(self.wake)
        self._tell(is_there)

    def _tell(self, is_there: bool) -> None:
        if is_there == self._told:
            return
        self._told = is_there
        if is_there:
            logger.info("table %s: its trigger tells of new rows", self._table.name)
        else:
            logger.info(
                "table %s has no trigger that tells of new rows: they are found by polling; `everpoll tables ddl` "
                "prints one",
                self._table.name,
            )
