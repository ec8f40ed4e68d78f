"""The heartbeat's own connection: blocking calls, from the heartbeat's thread.

Promises: a beat is one transaction, and depends on neither the event loop nor the writer's queue. It fails, with
`StoreUnavailable`, when the file is locked for longer than the patience, or is not where it was.
"""

import threading
from collections.abc import Sequence

from everpoll.drivers.sqlite.address import Address
from everpoll.drivers.sqlite.connection import Connection, connect
from everpoll.drivers.sqlite.faults import explained
from everpoll.stores.contract import Beat
from everpoll.stores.silence import Silence
from everpoll.stores.sqlite.clock import Instants
from everpoll.stores.sqlite.rescue import beat


class SqlitePulse:
    """One heartbeat's way to the file; connects at the first beat, and anew after a beat that failed."""

    def __init__(self, address: Address, patience_s: float, instants: Instants, silence: Silence) -> None:
        self._address = address
        self._patience_s = patience_s
        self._instants = instants
        self._silence = silence
        self._con: Connection | None = None
        self._lock = threading.Lock()

    def beat(self, incarnation: int, lease_s: float, overdue_s: float | None, running: Sequence[int]) -> Beat:
        """See the contract."""
        del overdue_s  # only a hint that spares a scan; here the index of leased rows does
        with self._lock:
            try:
                return self._beat(incarnation, lease_s, running)
            except Exception as error:
                self._close()
                told = explained(error, self._address.path)
                if told is error:
                    raise
                raise told from error

    def _beat(self, incarnation: int, lease_s: float, running: Sequence[int]) -> Beat:
        if self._con is None:
            self._con = connect(self._address, patience_s=self._patience_s, cache_kb=2_000)
            self._con.execute("pragma busy_timeout = 0")  # begin() waits by itself
        con = self._con
        con.begin(self._patience_s)
        # After begin(), which may have waited for long.
        rescues = not self._silence.was_cut_off(incarnation, lease_s)
        now, steady = self._instants.wall_us(), self._instants.steady_ms()
        answer = beat(con, now, steady, incarnation, lease_s, running, rescues=rescues)
        con.execute("commit")
        con.check_place()
        self._silence.heard(incarnation)
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
