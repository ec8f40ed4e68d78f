"""The heartbeat's own connection: blocking calls, from the heartbeat's thread.

Promises: a beat is one transaction, a rescue another, and neither depends on the event loop or the writer's queue.
They raise `StoreUnavailable` if the file is locked for longer than the patience, or was moved or replaced.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

from everpoll.drivers.sqlite.address import SqliteAddress
from everpoll.drivers.sqlite.connection import Connection
from everpoll.drivers.sqlite.own_connection import OwnConnection
from everpoll.stores.contract import Beat, Rescued
from everpoll.stores.figures import Figure
from everpoll.stores.sqlite import rescue
from everpoll.stores.sqlite.clock import Instants
from everpoll.stores.sqlite.figures import publish

T = TypeVar("T")


class SqliteHeartbeatConnection:
    """The connection of one heartbeat to the file."""

    def __init__(self, address: SqliteAddress, patience_s: float, instants: Instants) -> None:
        self._connection = OwnConnection(address, patience_s)
        self._instants = instants

    def beat(self, incarnation: int, lease_s: float, running: Sequence[int]) -> Beat:
        """See the contract."""
        return self._written(lambda con, now: rescue.beat(con, now, incarnation, lease_s, running))

    def rescue(self, incarnation: int, dead: Sequence[tuple[int, int]], overdue: Sequence[tuple[int, int]]) -> Rescued:
        """See the contract."""
        return self._written(lambda con, now: rescue.rescue(con, now, incarnation, dead, overdue))

    def publish(self, incarnation: int, figures: Sequence[Figure], loops: str | None) -> None:
        """See the contract."""
        self._written(lambda con, _: publish(con, incarnation, figures, loops))

    def _written(self, run: Callable[[Connection, int], T]) -> T:
        with self._connection.transaction() as con:
            # The time after begin(), which may have waited for long.
            return run(con, self._instants.wall_us())

    def close(self) -> None:
        """See the contract. Repeatable."""
        self._connection.close()
