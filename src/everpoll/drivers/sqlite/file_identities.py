"""The three files of a database in use: the main file, its write-ahead log (`-wal`) and the index of that (`-shm`).

SQLite goes on when one of them is deleted or replaced, and writes into a file that no path leads to. So every
connection remembers which files it was opened on, by device and inode, and compares.
Never: opens one of them, because closing it again would release the locks of this whole process.
"""

import os
import time
from typing import NamedTuple

Identity = tuple[int, int]
FOLDER_NS = 100_000_000
"""How old the last change of a folder must be: two changes within this time may have the same time stamp."""


class FileIdentities(NamedTuple):
    """Device and inode of each of the three files; None: there is no file."""

    main: Identity | None
    log: Identity | None
    shm: Identity | None


class Paths:
    """The paths of one database. SQLite follows links, and puts the other files beside the real one."""

    def __init__(self, main: str) -> None:
        real = os.path.realpath(main)
        self.main = main
        self.log = f"{real}-wal"
        self.shm = f"{real}-shm"
        self.log_bytes = 0
        """The size of the log when it was last measured."""
        self._folder = os.path.dirname(real)  # noqa: PTH120 - as all of these
        # The folder of a link does not change with the linked file; on Windows, no folder's time is reliable.
        self._is_folder_reliable = os.name == "posix" and not os.path.islink(main)  # noqa: PTH114
        self._folder_then: tuple[int, int, int] | None = None

    def identities(self) -> FileIdentities:
        """Read the identities of all three files."""
        folder, now_ns = self._folder_stamp(), time.time_ns()
        main, _ = _identity_and_size(self.main)
        shm, _ = _identity_and_size(self.shm)
        log, self.log_bytes = _identity_and_size(self.log)
        # The clock of a file system ticks every few milliseconds: two changes within one tick get the same time.
        is_old = folder is not None and folder[2] < now_ns - FOLDER_NS
        self._folder_then = folder if is_old and self._is_folder_reliable else None
        return FileIdentities(main, log, shm)

    def is_untouched(self) -> bool:
        """Return True if nothing in the folder was created, deleted or renamed since `identities` was called.

        This takes one system call, and `identities` takes four.

        Each call releases the interpreter's lock, which a busy event loop then keeps for a while.
        """
        return self._folder_then is not None and self._folder_stamp() == self._folder_then

    def measure_log(self) -> None:
        """Read only the size of the log."""
        _, self.log_bytes = _identity_and_size(self.log)

    def _folder_stamp(self) -> tuple[int, int, int] | None:
        try:
            found = os.stat(self._folder)  # noqa: PTH116
        except OSError:
            return None
        return found.st_dev, found.st_ino, found.st_mtime_ns


def _identity_and_size(path: str) -> tuple[Identity | None, int]:
    try:
        found = os.stat(path)  # noqa: PTH116 - a third of the time that a Path takes
    except OSError:
        return None, 0
    return (found.st_dev, found.st_ino), found.st_size
