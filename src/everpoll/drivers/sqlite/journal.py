"""The journal mode of a file: readers beside a writer need the write-ahead log (WAL).

The mode is a property of the file and stays when all connections are closed: every program that opens the file later
uses it, too, without noticing.
"""

import sqlite3
import time

from everpoll.drivers.sqlite.connection import Connection
from everpoll.drivers.sqlite.faults import BUSY, code_of
from everpoll.errors import BadInput

WAL_PAUSE_S = 0.01


def is_wal(con: Connection) -> bool:
    """Return True if the file is in WAL mode; change nothing."""
    (mode,) = con.execute("pragma journal_mode").fetchone()
    return bool(mode == "wal")


def use_wal(con: Connection, patience_s: float) -> None:
    """Switch the file to WAL mode. SQLite does not wait for locks here, so this tries again."""
    give_up_at = time.monotonic() + patience_s
    while True:
        try:
            (mode,) = con.execute("pragma journal_mode = wal").fetchone()
        except sqlite3.OperationalError as error:
            if code_of(error) not in BUSY or time.monotonic() >= give_up_at:
                raise
        else:
            if mode == "wal":
                return
            raise BadInput(f"{con.path}: SQLite cannot share a file there (journal mode {mode}): use a local disk")
        time.sleep(WAL_PAUSE_S)
