"""The heartbeat's own connection: blocking calls, from the heartbeat's thread.

Promises: a beat is one transaction, a rescue another, and neither depends on the event loop or the writer's queue.
They fail, with `StoreUnavailable`, when the file is locked for longer than the patience, or is not where it was.
"""

import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

from everpoll.drivers.sqlite.address import Address
from everpoll.drivers.sqlite.connection import Connection, connect
from everpoll.drivers.sqlite.faults import explained
from everpoll.stores.contract import Beat, Rescued
from everpoll.stores.figures import Figure
from everpoll.stores.sqlite import rescue
from everpoll.stores.sqlite.clock import Instants
from everpoll.stores.sqlite.figures import publish

T = TypeVar("T")


class SqlitePulse:
    """One heartbeat's way to the file; connects at the first beat, and anew after a beat that failed."""

    def __init__(self, address: Address, patience_s: float, instants: Instants) -> None:
        self._address = address
        self._patience_s = patience_s
        self._instants = instants
        self._con: Connection | None = None
        self._lock = threading.Lock()

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
        with self._lock:
            try:
                return self._committed(run)
            except Exception as error:
                self._close()
                explained_error = explained(error, self._address.path)
                if explained_error is error:
                    raise
                raise explained_error from error

    def _committed(self, run: Callable[[Connection, int], T]) -> T:
        if self._con is None:
            self._con = connect(self._address, patience_s=self._patience_s, cache_kb=2_000)
            self._con.execute("pragma busy_timeout = 0")  # begin() does the waiting
        con = self._con
        con.begin(self._patience_s)
        # The time after begin(), which may have waited for long.
        answer = run(con, self._instants.wall_us())
        con.execute("commit")
        con.check_place()
        return answer

    def close(self) -> None:
        """See the contract. Repeatable."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        con, self._con = self._con, None
        if con is not None:
            con.undo()
            con.close()
