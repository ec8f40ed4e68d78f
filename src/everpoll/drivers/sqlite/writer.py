"""Writer, the lane for writing: one thread for each store, group commit, and a check for commits of other processes.

    operations ──▶ begin · run each · commit ──▶ still that file? ──▶ answers, then wakes
                     └── one fails: roll back, then run each alone, so that the others succeed

Promises: an operation is answered only after its commit, and only if the path still leads to the same file. In
this process only this thread and the heartbeat write. A commit of another connection wakes the listeners within 80 ms,
and within 20 ms for a second after the previous one: `pragma data_version` costs 4 us, which makes about 0.2 s of CPU a
minute for an idle process. Never: wakes twice for the same cancel. A wake for a cancel causes an early heartbeat, which
is a commit itself, so two processes would wake each other for ever.
"""

import sqlite3
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from everpoll.drivers.sqlite.address import SqliteAddress
from everpoll.drivers.sqlite.checkpoints import Checkpoints
from everpoll.drivers.sqlite.connection import Connection, FileReplaced
from everpoll.drivers.sqlite.faults import BUSY, code_of
from everpoll.drivers.sqlite.file_listeners import FileListeners
from everpoll.drivers.sqlite.lane import Lane, Op
from everpoll.drivers.wake import Wake
from everpoll.errors import EverpollError

IDLE_S, ALERT_S, ALERT_FOR_S = 0.080, 0.020, 1.0
RECONNECT_S = 0.5


class Writer(Lane):
    """The writer of one store."""

    cache_kb = 16_000
    may_stop = False

    def __init__(
        self,
        name: str,
        address: SqliteAddress,
        patience_s: float,
        check: Callable[[Connection], None],
        file_listeners: FileListeners,
        cancels: Callable[[Connection], frozenset[int]],
    ) -> None:
        super().__init__(name, address, patience_s, check)
        self._file_listeners = file_listeners
        self._cancels_in = cancels
        self._listening = False
        self._version: int | None = None
        self._cancels: frozenset[int] = frozenset()
        self._check_at = 0.0
        self._alert_until = 0.0
        self._commits = 0
        self._checkpoints = Checkpoints()

    def listen(self, listening: bool) -> None:
        """Start or stop listening for commits of other processes."""
        self._listening = listening
        self._inbox.put(None)

    def _connected(self) -> Connection:
        if self._con is None:
            con = super()._connected()
            con.execute("pragma busy_timeout = 0")  # begin() does the waiting
            self._version = None
        assert self._con is not None
        return self._con

    def _perform(self, ops: list[Op[Any]]) -> None:
        try:
            con = self._connected()
            if len(ops) == 1 and self._peeked(con, ops[0]):
                return
            self._checkpoints.refuse_if_full(con)
            con.begin(self._patience_s, lambda: self._stopping)
        except Exception as error:  # noqa: BLE001 - whatever it is, the caller gets it
            self._failed(error, ops)
            return
        try:
            for op in ops:
                if not op.is_dropped:
                    self._run(con, op)
            con.execute("commit")
            self._commits += 1
            self._checkpoints.wrote(sum(op.size for op in ops))
            con.check_place()
        except Exception as error:  # noqa: BLE001 - see above
            self._failed(error, ops)
            if len(ops) > 1 and self._con is not None and not isinstance(error, FileReplaced):
                for op in ops:
                    self._perform([op])

    def _peeked(self, con: Connection, op: Op[Any]) -> bool:
        """Answer the operation without a transaction if possible; return True if it was answered or dropped."""
        if op.peek is None or op.is_dropped:
            return op.is_dropped
        try:
            value = op.peek(con)
        except sqlite3.OperationalError as error:
            if code_of(error) not in BUSY:
                raise
            return False
        op.value, op.error = value, None
        return value is not None

    def _run(self, con: Connection, op: Op[Any]) -> None:
        op.error = None
        try:
            op.value = op.run(con)
        except EverpollError as error:
            op.error = error  # an operation refuses before it writes anything, so the others go on

    def _after_answers(self, ops: list[Op[Any]]) -> None:
        woken = [op for op in ops if op.wakes and op.error is None]
        if woken:
            self._file_listeners.wake(Wake(any(op.cancel for op in woken), min(op.due_s for op in woken)))

    def _rest_s(self) -> float | None:
        return max(0.0, self._check_at - time.monotonic()) if self._listening else super()._rest_s()

    def _rested(self, *, is_idle: bool) -> None:
        if self._listening and time.monotonic() >= self._check_at:
            self._check_for_commits()
        else:
            super()._rested(is_idle=is_idle)
        if self._con is not None and not self._stopping:
            self._try(partial(self._checkpoints.keep, self._con, is_idle=is_idle))

    def _failed(self, error: Exception, ops: list[Op[Any]]) -> None:
        if isinstance(error, sqlite3.Error) and code_of(error) == sqlite3.SQLITE_FULL:
            self._checkpoints.disk_is_full()
        super()._failed(error, ops)

    def _check_for_commits(self) -> None:
        """Wake the listeners if another connection has committed."""
        rest_s = ALERT_S if time.monotonic() < self._alert_until else IDLE_S
        try:
            con = self._connected()
            con.check_place()
            (version,) = con.execute("pragma data_version").fetchone()
            if version != self._version:
                cancels = self._cancels_in(con)
                self._file_listeners.wake(Wake(cancel=bool(cancels - self._cancels)))
                if self._version is not None:
                    self._alert_until = time.monotonic() + ALERT_FOR_S
                    rest_s = ALERT_S
                self._version, self._cancels = version, cancels
        except Exception as error:  # noqa: BLE001 - it checks again later; callers get the errors of their own operations
            self._failed(error, [])
            rest_s = IDLE_S if self._con is not None else RECONNECT_S
        self._check_at = time.monotonic() + rest_s
