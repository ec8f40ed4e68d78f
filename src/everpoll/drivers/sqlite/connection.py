"""One connection to the file: how it is opened, how it waits to write, and how it notices that the file was replaced.

Promises: a connection creates the file only with `create=True`, and only its owner can read a new file. It waits for
other writers at most for the given patience. It notices that its file was deleted or replaced; SQLite itself would go
on writing into a file that no path leads to. The content of a deleted `-wal` file is copied into the database before
the connection is closed. Never: a new connection beside one that still uses a deleted `-wal` file. Each would overwrite
what the other has written.
"""

import contextlib
import os
import random
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple
from urllib.parse import quote

from everpoll.drivers.sqlite.address import SqliteAddress
from everpoll.drivers.sqlite.faults import BUSY, code_of
from everpoll.drivers.sqlite.file_identities import FileIdentities, Paths
from everpoll.errors import StoreUnavailable

PATIENCE_S = 5.0
# SQLite's own busy handler waits up to 100 ms between tries, so a writer may never get the lock: with it the longest
# wait between two drains was 334 ms, with these short sleeps 47 and 156 (prototype, one and two runs). A lock file that
# assigns turns made it 11 and 25, but a process that is stopped during its turn would then block all others for ever.
PAUSE_S, LONGEST_PAUSE_S = 0.0003, 0.003
LOG_BYTES = 4 * 2**20
"""The write-ahead log (`-wal`) is kept within this; a larger one was not faster (8 MB: the same, prototype)."""
# The writer checkpoints after its answers; SQLite does so itself from this number of pages on.
CHECKPOINT_PAGES = 8_000

RESERVE_BYTES = 2**20
"""How much disk space is left free, in addition to what the file is about to need."""
FIRST_STEP_MS, LONGEST_STEP_MS = 5, 100

CHECK_FILES_S = 1.0
"""How often the files are checked although the time of their folder has not changed."""
CHECK_S = 0.05
"""How long a check after a commit counts for the next transaction."""
SAVE_S = 2.0
"""How long to wait for readers when the content of a deleted log is copied."""

Mode = Literal["passive", "restart", "truncate"]


class Checkpoint(NamedTuple):
    """The result of a checkpoint."""

    is_done: bool
    """True if it did everything that its mode asks for."""
    is_copied: bool
    """True if it copied the whole log, at least."""


class Connection(sqlite3.Connection):
    """A connection that knows which file it was opened on."""

    path: Path
    paths: Paths
    place: FileIdentities
    _checked_at = _check_files_at = 0.0

    @property
    def log_bytes(self) -> int:
        """The size of the `-wal` file when it was last measured."""
        return self.paths.log_bytes

    def check_place(self) -> None:
        """Raise if the data of the last commit is in a file that no path leads to."""
        self._check()

    def _check(self) -> None:
        self._checked_at = time.monotonic()
        if self._checked_at < self._check_files_at and self.paths.is_untouched():
            return
        self._check_files_at = self._checked_at + CHECK_FILES_S
        found = self.paths.identities()
        if found != self.place:
            self._check_files_at = 0.0
            self._judge(found)

    def _judge(self, found: FileIdentities) -> None:
        """Raise if a file was deleted or replaced; files that were only created since are accepted."""
        before = self.place
        if found.main != before.main:
            raise FileReplaced(self.path)
        if before.log is not None and found.log in (before.log, None) and found.shm in (before.shm, None):
            # No other program has opened the database since: that would have created the missing file.
            missing = self.paths.log if found.log is None else self.paths.shm
            raise Deleted(missing, self.path, is_saved=self._save_log())
        if before.log is not None:
            raise FilesReplacedInUse(self.paths.log if found.log != before.log else self.paths.shm)
        self.place = found

    def _save_log(self) -> bool:
        """Copy the content of the deleted log into the database; return True if all of it is copied.

        Only connections that opened the log before it was deleted can read it.

        This empties the deleted log, too: if a user put it back later, its old pages would overwrite newer ones.
        """
        try:
            return self.checkpoint("truncate", SAVE_S).is_copied
        except sqlite3.Error:
            return False

    def checkpoint(self, mode: Mode, readers_s: float) -> Checkpoint:
        """Copy the log into the file; wait for readers up to `readers_s`.

        This takes several steps: SQLite waits for an entry in its table of readers that an old reader has, and would
        then wait for new readers that take the same entry, one after the other. Each step reads that table again.
        """
        (before_ms,) = self.execute("pragma busy_timeout").fetchone()
        give_up_at = time.monotonic() + readers_s
        step_ms = min(FIRST_STEP_MS, round(readers_s * 1000))
        try:
            while True:
                self.execute(f"pragma busy_timeout = {step_ms}")
                is_busy, frames, copied = self.execute(f"pragma wal_checkpoint({mode})").fetchone()
                left_ms = round((give_up_at - time.monotonic()) * 1000)
                if not is_busy or left_ms <= 0:
                    return Checkpoint(is_done=not is_busy, is_copied=frames == copied != -1)
                step_ms = min(2 * step_ms, LONGEST_STEP_MS, left_ms)
        finally:
            self.execute(f"pragma busy_timeout = {before_ms}")

    def check_room(self) -> None:
        """Raise if the disk has no space for the content of the log: the log could then never be emptied."""
        (pages,), (page_bytes,) = (self.execute(f"pragma page_{what}").fetchone() for what in ("count", "size"))
        needed = max(0, pages * page_bytes - self.path.stat().st_size) + RESERVE_BYTES
        left = shutil.disk_usage(self.path.resolve().parent).free
        if left < needed:
            raise StoreUnavailable(
                f"{self.path}: its disk is full, nothing was written: free some space "
                f"({left >> 10} kB are left; to bring {self.paths.log} into it takes up to {needed >> 10} kB)"
            )

    def begin(self, patience_s: float, is_over: Callable[[], bool] = lambda: False) -> None:
        """Begin a write transaction; wait for other writers up to `patience_s`, or until `is_over` returns True."""
        if time.monotonic() > self._checked_at + CHECK_S:
            self._check()
        pause_s, give_up_at = PAUSE_S, time.monotonic() + patience_s
        while True:
            try:
                self.execute("begin immediate")
            except sqlite3.OperationalError as error:
                if code_of(error) not in BUSY or is_over() or time.monotonic() >= give_up_at:
                    raise
            else:
                return
            time.sleep(random.uniform(0.2, 1.0) * pause_s)  # noqa: S311 - jitter needs no secrecy
            pause_s = min(pause_s * 1.5, LONGEST_PAUSE_S)

    def undo(self) -> None:
        """Roll back whatever is open; the caller raises the error that led here."""
        with contextlib.suppress(sqlite3.Error):
            if self.in_transaction:
                self.execute("rollback")


class FileReplaced(StoreUnavailable):
    """The path leads to another file, or to none."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"{path} was deleted or replaced while it was in use: put the file back, with its -wal file; "
            "or restart, to begin with a new one"
        )

    @property
    def must_close(self) -> bool:
        """True if the connection cannot be used any more."""
        return True


class Deleted(FileReplaced):
    """The `-wal` or the `-shm` file was deleted. Commits that only it has are lost unless they can be copied now."""

    def __init__(self, missing: str, path: Path, *, is_saved: bool) -> None:
        self.is_saved = is_saved
        what = (
            f"what was committed has been copied into {path}, nothing is lost. Work goes on when every program that "
            "has the database open has noticed it, or has been closed"
            if is_saved
            else f"what was committed could not be copied into {path} yet: leave this process running, it tries again"
        )
        StoreUnavailable.__init__(self, f"{missing} was deleted while it was in use; {what}")

    @property
    def must_close(self) -> bool:
        """True once the content is copied: closing the last connection destroys the deleted file."""
        return self.is_saved


class FilesReplacedInUse(FileReplaced):
    """Another program has opened the database with new files, while this one still used the old ones."""

    def __init__(self, path: str) -> None:
        StoreUnavailable.__init__(
            self,
            f"{path} was replaced while it was in use, and the latest writes may be lost: stop every program that uses "
            "the database, run `pragma integrity_check` on it, and restore a backup if that finds errors",
        )


def connect(address: SqliteAddress, *, patience_s: float, create: bool = False, cache_kb: int = 16_000) -> Connection:
    """Open a connection. Statements wait for locks up to `patience_s`, unless the caller changes that."""
    path, paths = address.path, Paths(str(address.path))
    if not create and not path.exists():
        raise FileReplaced(path)
    give_up_at = time.monotonic() + patience_s
    while True:
        _wait_for_old_connections(path, paths, patience_s)
        before = paths.identities()
        with _privately(path) if create and before.main is None else contextlib.nullcontext("") as option:
            con = _opened(address, paths, patience_s, f"{'rwc' if create else 'rw'}{option}", cache_kb)
        if _has_the_files_of(con, before):
            return con
        con.close()
        if time.monotonic() >= give_up_at:
            raise FilesReplacedInUse(paths.log)


@contextlib.contextmanager
def _privately(path: Path) -> Iterator[str]:
    """Yield the option with which SQLite creates a new file that only its owner can read.

    `chmod` afterwards would leave a moment in which others can read it, and `umask` changes all threads.
    """
    try:
        model = tempfile.NamedTemporaryFile(prefix=".everpoll-", dir=path.parent)  # noqa: SIM115 - closed below
    except OSError:
        yield ""  # SQLite cannot create a file there either, and raises its own error
        return
    with model:
        yield f"&modeof={quote(os.fsencode(model.name))}"


def _opened(address: SqliteAddress, paths: Paths, patience_s: float, mode: str, cache_kb: int) -> Connection:
    con = sqlite3.connect(
        f"{address.path.as_uri()}?mode={mode}",
        uri=True,
        timeout=patience_s,
        isolation_level=None,
        cached_statements=256,
        check_same_thread=False,
        factory=Connection,
    )
    try:
        con.path, con.paths = address.path, paths
        con.execute(f"pragma synchronous = {address.synchronous}")
        con.execute(f"pragma cache_size = -{cache_kb}")
        con.execute("pragma temp_store = memory")
        con.execute(f"pragma wal_autocheckpoint = {CHECKPOINT_PAGES}")
        con.execute(f"pragma journal_size_limit = {LOG_BYTES}").fetchone()
        con.execute(
            "select 1 from sqlite_master limit 1"
        ).fetchone()  # SQLite opens or creates the file at the first read
        con.place = paths.identities()
    except BaseException:
        con.close()
        raise
    return con


def _has_the_files_of(con: Connection, before: FileIdentities) -> bool:
    """Return True if no file was deleted or replaced while the connection was opened.

    That can happen if another process closes the last other connection, which deletes files, at the same moment.
    """
    if before.log not in (None, con.place.log) or before.shm not in (None, con.place.shm):
        return False
    (mode,) = con.execute("pragma journal_mode").fetchone()
    return mode != "wal" or (con.place.log is not None and con.place.shm is not None)


def _wait_for_old_connections(path: Path, paths: Paths, patience_s: float) -> None:
    """Wait until no other connection is open that may use a deleted `-wal` or `-shm` file.

    If both files exist, there is nothing to wait for. If one is missing and any connection is open, the file was
    deleted. The test is a lock on the whole database, which SQLite takes before it creates the files: 1 ms, for the
    first connection to a file.
    """
    give_up_at = time.monotonic() + patience_s
    while True:
        place = paths.identities()
        if place.main is None or (place.log is not None and place.shm is not None):
            return
        try:
            with contextlib.closing(sqlite3.connect(f"{path.as_uri()}?mode=rw", uri=True, timeout=0)) as con:
                con.execute("pragma locking_mode = exclusive").fetchone()
                con.execute("select 1 from sqlite_master limit 1").fetchone()
        except sqlite3.Error as error:
            if code_of(error) not in BUSY:
                return  # the next connection gets the same error
            if time.monotonic() >= give_up_at:
                raise StoreUnavailable(
                    f"{path}: another program keeps it locked, or still uses a -wal file of it that was deleted: "
                    f"close every program that has it open ({error})"
                ) from error
        else:
            return
        time.sleep(LONGEST_PAUSE_S)
