"""Lane: one thread with one connection, which runs operations in the order in which they were submitted.

Promises: each operation is answered, with a result or an error, in the event loop that submitted it; answers that are
ready together are delivered in one call. A connection that broke is closed, and the next operation opens another.
`stop` answers all operations that were submitted before, and returns within a bounded time.
Never: delays the end of the interpreter; the thread is a daemon.

A plain lane is for reading: every operation sees one snapshot. An operation whose caller was canceled is not begun, or
is interrupted, so that it does not delay the operations after it.
"""

import asyncio
import contextlib
import logging
import sqlite3
import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

from everpoll.drivers.sqlite.address import SqliteAddress
from everpoll.drivers.sqlite.connection import LOG_BYTES, Connection, FileReplaced, connect
from everpoll.drivers.sqlite.faults import BROKEN, code_of, explained
from everpoll.errors import NotRunning

T = TypeVar("T")

HAND_OVER_S = 0.000001  # systems sleep for about fifty times as long
GROUP = 64
"""Operations that share a commit and an answer; more would make the first wait longer for its answer."""
GROUP_BYTES = LOG_BYTES
"""A group takes no more operations after this many bytes: the log grows by the size of a transaction."""
STOP_S = 5.0
ABANDONED_STEPS = 100_000
"""A read checks every so many steps of SQLite's virtual machine (some milliseconds) whether its caller still waits."""
WATCH_S = 2.0
"""How often an idle lane checks its files: while it has a deleted file open, no other lane can connect."""

logger = logging.getLogger("everpoll.stores")


class Op(Generic[T]):
    """One submitted operation. `run` may be called more than once: if a group fails, its operations run one by one."""

    __slots__ = ("cancel", "due_s", "error", "future", "is_last", "peek", "run", "size", "unwanted", "value", "wakes")

    def __init__(
        self,
        run: Callable[[Connection], T],
        *,
        wakes: bool = False,
        cancel: bool = False,
        due_s: float = 0.0,
        size: int = 0,
        peek: Callable[[Connection], T | None] | None = None,
        unwanted: Callable[[T], None] | None = None,
    ) -> None:
        self.run = run
        self.wakes = wakes
        """True: wake the listeners of the file once the operation is committed."""
        self.cancel = cancel
        """True: that wake says that a running task may have to be canceled."""
        self.due_s = due_s
        """How many seconds later the task of that wake falls due."""
        self.size = size
        """Roughly how many bytes it writes."""
        self.peek = peek
        """Returns the answer without a transaction if nothing has to be written, else None."""
        self.unwanted = unwanted
        """Called with the result if the caller was canceled during the operation. With it, an operation whose caller
        was canceled before is dropped."""
        self.is_last = False
        self.future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.value: T | None = None
        self.error: Exception | None = None

    @property
    def is_dropped(self) -> bool:
        """True if the operation must be dropped: its caller was canceled, and without a caller it must not run."""
        return self.unwanted is not None and self.future.cancelled()

    def answer(self) -> None:
        """Give the caller its answer. Runs in the thread of its event loop."""
        if self.future.cancelled():
            if self.unwanted is not None and self.error is None and self.value is not None:
                self.unwanted(self.value)
        elif self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.value)  # type: ignore[arg-type] # where T has no None, run() has set it


class Lane:
    """The lane for reading."""

    cache_kb = 4_000
    may_stop = True
    """Whether an operation is stopped once its caller is canceled. A read can be: it changes nothing."""

    def __init__(
        self, name: str, address: SqliteAddress, patience_s: float, check: Callable[[Connection], None]
    ) -> None:
        self._address = address
        self._check = check
        self._patience_s = patience_s
        self._con: Connection | None = None
        self._inbox: SimpleQueue[Op[Any] | None] = SimpleQueue()
        self._stopping = False
        self._is_performing = False
        self._performed: Op[Any] | None = None
        self._logged = ""
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)

    def start(self) -> None:
        """Begin to take operations."""
        self._thread.start()

    def submit(self, op: Op[T]) -> "asyncio.Future[T]":
        """Submit the operation; return the future of its answer."""
        if self._stopping:
            raise NotRunning(f"the store {self._address.path} is closed: call open() first")
        self._inbox.put(op)
        return op.future

    def yield_to_thread(self) -> None:
        """Pause for a moment if the thread has an operation, so that the thread can go on.

        After each statement the thread waits for the interpreter's lock, and a busy event loop keeps the lock for
        longer than the statement took: without pauses the two threads work in turns, not at the same time. Releasing
        the lock without a pause has no effect, because the event loop gets it back before the other thread wakes up.
        Measured: a drain by 1,000 slots is a quarter faster.
        """
        if self._is_performing or not self._inbox.empty():
            time.sleep(HAND_OVER_S)

    async def stop(self) -> None:
        """Answer all submitted operations, close the connection and end the thread, within a bounded time.

        Repeatable.
        """
        if self._stopping:
            return
        farewell: Op[None] = Op(lambda _: None)
        farewell.is_last = True
        self._stopping = True
        self._inbox.put(farewell)
        try:
            async with asyncio.timeout(STOP_S):
                await farewell.future
        except TimeoutError:
            return  # the thread hangs in the operating system; it is a daemon and is left behind
        self._thread.join(STOP_S)

    def _work(self) -> None:
        while True:
            ops = self._gathered()
            last = ops.pop() if ops and ops[-1].is_last else None
            if ops:
                self._is_performing = True
                self._perform(ops)
                self._answer(ops)
                self._is_performing = False
            self._rested(is_idle=not ops)
            if last is not None:
                self._disconnect()
                self._answer([*self._left_behind(), last])
                return

    def _gathered(self) -> list[Op[Any]]:
        """Wait for an operation; return it with those that were submitted meanwhile."""
        inbox = self._inbox
        try:
            first = inbox.get(timeout=self._rest_s())
        except Empty:
            return []
        ops, size = ([], 0) if first is None else ([first], first.size)
        while len(ops) < GROUP and size < GROUP_BYTES and not inbox.empty() and not (ops and ops[-1].is_last):
            op = inbox.get_nowait()
            if op is not None:
                ops.append(op)
                size += op.size
        return ops

    def _left_behind(self) -> list[Op[Any]]:
        """Return the operations that other threads submitted just after the last one."""
        ops: list[Op[Any]] = []
        while not self._inbox.empty():
            op = self._inbox.get_nowait()
            if op is not None:
                op.error = NotRunning(f"the store {self._address.path} is closed: call open() first")
                ops.append(op)
        return ops

    def _rest_s(self) -> float | None:
        """Return how long to wait for an operation; None: until there is one."""
        return None if self._con is None else WATCH_S

    def _rested(self, *, is_idle: bool) -> None:
        """Check the files between two groups, or after a wait without an operation."""
        if is_idle and self._con is not None:
            self._try(self._con.check_place)

    def _try(self, step: Callable[[], None]) -> None:
        """Make a step for which no caller waits: after a failure it is tried again later."""
        try:
            step()
        except Exception as error:  # noqa: BLE001 - see above
            self._failed(error, [])

    def _perform(self, ops: list[Op[Any]]) -> None:
        for op in ops:
            if op.future.cancelled():
                continue
            self._performed = op
            try:
                con = self._connected()
                con.check_place()
                con.execute("begin")
                op.value = op.run(con)
                con.execute("commit")
            except Exception as error:  # noqa: BLE001 - whatever it is, the caller gets it
                self._failed(error, [op])

    def _failed(self, error: Exception, ops: list[Op[Any]]) -> None:
        """Give these operations this error; close the connection if it cannot be trusted any more."""
        if self._con is not None:
            self._con.undo()
        if isinstance(error, FileReplaced) and str(error) != self._logged:
            self._logged = str(error)
            logger.error("%s", error)
        is_broken = isinstance(error, sqlite3.Error) and code_of(error) in BROKEN
        if is_broken or (isinstance(error, FileReplaced) and error.must_close):
            self._disconnect()
        explained_error = explained(error, self._address.path)
        if explained_error is not error:
            explained_error.__cause__ = error
        for op in ops:
            op.error = explained_error

    def _connected(self) -> Connection:
        if self._con is None:
            con = connect(self._address, patience_s=self._patience_s, cache_kb=self.cache_kb)
            try:
                self._check(con)
            except BaseException:
                con.close()
                raise
            if self.may_stop:
                con.set_progress_handler(self._is_abandoned, ABANDONED_STEPS)
            self._con = con
        return self._con

    def _is_abandoned(self) -> bool:
        return self._performed is not None and self._performed.future.cancelled()

    def _disconnect(self) -> None:
        con, self._con = self._con, None
        if con is not None:
            with contextlib.suppress(sqlite3.Error):
                con.close()

    def _answer(self, ops: list[Op[Any]]) -> None:
        """Answer by one call into each event loop; there is nearly always just one."""
        loops = {op.future.get_loop() for op in ops}
        for event_loop in loops:
            mine = ops if len(loops) == 1 else [op for op in ops if op.future.get_loop() is event_loop]
            try:
                event_loop.call_soon_threadsafe(self._answered, mine)
            except RuntimeError:
                self._after_answers(mine)  # that event loop is closed: no caller is left to answer

    def _answered(self, ops: list[Op[Any]]) -> None:
        for op in ops:
            op.answer()
        self._after_answers(ops)

    def _after_answers(self, ops: list[Op[Any]]) -> None:
        """Called after the answers of these operations; does nothing here."""
