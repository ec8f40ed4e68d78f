"""One connection to the file: how it is opened, how it waits for its turn to write, and whether it still is that file.

Promises: a connection never creates the file unless told so. Waiting for other writers is bounded by the patience
given. A file that was deleted or replaced under an open connection is noticed: SQLite itself would go on, writing
into a file that nobody can find any more. Never: opens the file by other means; closing such a handle would drop the
locks of this whole process.
"""

import contextlib
import random
import shutil
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from everpoll.drivers.sqlite.address import Address
from everpoll.drivers.sqlite.faults import BUSY, code_of
from everpoll.drivers.sqlite.place import Paths, Place
from everpoll.errors import StoreUnavailable

PATIENCE_S = 5.0
# SQLite's own busy handler backs off to 100 ms and starves: with it the longest wait between two drains was 334 ms,
# with these short sleeps 47 and 156 (prototype, one and two runs). A lock file that gives turns made it 11 and 25, but
# a process that is stopped while it has the turn would then hold up all others for ever.
PAUSE_S, LONGEST_PAUSE_S = 0.0003, 0.003
LOG_BYTES = 4 * 2**20
"""The write-ahead log (`-wal`) is kept within this; a larger one was no faster (8 MB: the same, prototype)."""
# The writer checkpoints by itself, after its answers; this is the backstop.
CHECKPOINT_PAGES = 8_000

RESERVE_BYTES = 2**20
"""Left free on the disk, beside what the file is about to grow by."""
FIRST_STEP_MS, LONGEST_STEP_MS = 5, 100

Mode = Literal["passive", "restart", "truncate"]


class Connection(sqlite3.Connection):
    """A connection that knows which file it was opened on."""

    path: Path
    paths: Paths
    place: Place
    log_bytes = 0
    """The size of the `-wal` file, when it was last looked at."""

    def check_place(self) -> None:
        """Raise if the path does not lead to this file any more. About 4 us, so it is done for every commit."""
        found = self.paths.look()
        self.log_bytes = found.log_bytes
        if found.main != self.place.main:
            raise Displaced(self.path)

    def checkpoint(self, mode: Mode, readers_s: float) -> bool:
        """Copy the log into the file, waiting that long for readers; whether it was all done as the mode says.

        In several steps: SQLite waits for the place in its table of readers that an old reader has, and would wait for
        the new readers, too, that take the same place one after the other. Each step looks at that table anew.
        """
        (before_ms,) = self.execute("pragma busy_timeout").fetchone()
        give_up_at = time.monotonic() + readers_s
        step_ms = min(FIRST_STEP_MS, round(readers_s * 1000))
        try:
            while True:
                self.execute(f"pragma busy_timeout = {step_ms}")
                is_busy, _, _ = self.execute(f"pragma wal_checkpoint({mode})").fetchone()
                left_ms = round((give_up_at - time.monotonic()) * 1000)
                if not is_busy or left_ms <= 0:
                    return not is_busy
                step_ms = min(2 * step_ms, LONGEST_STEP_MS, left_ms)
        finally:
            self.execute(f"pragma busy_timeout = {before_ms}")

    def check_room(self) -> None:
        """Raise if the disk has no room for what the log holds: the log itself would never be given back then."""
        (pages,), (page_bytes,) = (self.execute(f"pragma page_{what}").fetchone() for what in ("count", "size"))
        needed = max(0, pages * page_bytes - self.path.stat().st_size) + RESERVE_BYTES
        left = shutil.disk_usage(self.path.resolve().parent).free
        if left < needed:
            raise StoreUnavailable(
                f"{self.path}: its disk is full, nothing was written: free some space "
                f"({left >> 10} kB are left; to bring {self.paths.log} into it takes up to {needed >> 10} kB)"
            )

    def begin(self, patience_s: float, is_over: Callable[[], bool] = lambda: False) -> None:
        """Begin to write; waits for others no longer than that, or until it is all over."""
        pause_s, give_up_at = PAUSE_S, time.monotonic() + patience_s
        while True:
            try:
                self.execute("begin immediate")
            except sqlite3.OperationalError as error:
                if code_of(error) not in BUSY or is_over() or time.monotonic() >= give_up_at:
                    raise
            else:
                return
            time.sleep(random.uniform(0.2, 1.0) * pause_s)  # noqa: S311 - jitter is no secret
            pause_s = min(pause_s * 1.5, LONGEST_PAUSE_S)

    def undo(self) -> None:
        """Roll back whatever is open; the error that led here is the one to be told."""
        with contextlib.suppress(sqlite3.Error):
            if self.in_transaction:
                self.execute("rollback")


class Displaced(StoreUnavailable):
    """The path leads to another file, or to none."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"{path} was deleted or replaced while it was in use: put the file back, with its -wal file; "
            "or restart, to begin with a new one"
        )


def connect(address: Address, *, patience_s: float, create: bool = False, cache_kb: int = 16_000) -> Connection:
    """Open a connection. Statements that meet a lock wait for `patience_s`, until the caller sets it otherwise."""
    path = address.path
    if not create and not path.exists():
        raise Displaced(path)
    con = sqlite3.connect(
        f"{path.as_uri()}?mode={'rwc' if create else 'rw'}",
        uri=True,
        timeout=patience_s,
        isolation_level=None,
        cached_statements=256,
        check_same_thread=False,
        factory=Connection,
    )
    try:
        con.path, con.paths = path, Paths(str(path))
        con.execute(f"pragma synchronous = {address.synchronous}")
        con.execute(f"pragma cache_size = -{cache_kb}")
        con.execute("pragma temp_store = memory")
        con.execute(f"pragma wal_autocheckpoint = {CHECKPOINT_PAGES}")
        con.execute(f"pragma journal_size_limit = {LOG_BYTES}").fetchone()
        con.execute("select 1 from sqlite_master limit 1").fetchone()  # the file is only opened, or made, by a read
        con.place = con.paths.look()
    except BaseException:
        con.close()
        raise
    return con
