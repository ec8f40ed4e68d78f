"""The three files of a database in use: itself, its write-ahead log (`-wal`) and the index of that log (`-shm`).

SQLite goes on when one of them is deleted or replaced, and writes into a file that no path leads to. So every
connection remembers which files it was opened on, by device and inode, and compares.
Never: opens one of them. Closing such a handle would drop the locks of this whole process.
"""

import os
from typing import NamedTuple

Identity = tuple[int, int]


class Place(NamedTuple):
    """What the three paths lead to; None: to no file."""

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
        """The size of the log, when it was last looked at."""

    def look(self) -> Place:
        """Look at all three; 5 us, so every commit can afford it."""
        main, _ = _look(self.main)
        log, self.log_bytes = _look(self.log)
        shm, _ = _look(self.shm)
        return Place(main, log, shm)


def _look(path: str) -> tuple[Identity | None, int]:
    try:
        found = os.stat(path)  # noqa: PTH116 - a third of the time that a Path takes
    except OSError:
        return None, 0
    return (found.st_dev, found.st_ino), found.st_size
