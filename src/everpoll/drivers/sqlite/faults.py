"""Translates errors of SQLite into errors of everpoll, which name the file and say what to do.

An outage (`StoreUnavailable`) may pass, and the caller tries again. A path or a value that can never be used is
`BadInput`. A mistake in our own SQL is raised as it is: a `sqlite3` error with its traceback.
"""

import sqlite3
from pathlib import Path

from everpoll.drivers.no_tables import no_tables_in
from everpoll.errors import BadInput, EverpollError, StoreUnavailable

BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
# After these a connection is not trusted any more: it is closed, and the next operation opens another one.
BROKEN = frozenset(
    {
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_NOTADB,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_PROTOCOL,
        sqlite3.SQLITE_MISUSE,
    }
)
UNUSABLE = frozenset(
    {
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_NOTADB,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_AUTH,
    }
)
_LOCKED = (
    "another program keeps it locked: find out which one holds a transaction open; it may be a connection of your own"
)
WHAT_TO_DO = {
    sqlite3.SQLITE_BUSY: _LOCKED,
    sqlite3.SQLITE_LOCKED: _LOCKED,
    sqlite3.SQLITE_FULL: "its disk is full, nothing was written: free some space",
    sqlite3.SQLITE_IOERR: "its disk reports errors: look into the system's log, and check the file system",
    sqlite3.SQLITE_CORRUPT: "it is damaged: run `pragma integrity_check` on it, or restore it from a backup",
    sqlite3.SQLITE_NOTADB: "it is not an SQLite database: choose another path, or restore it from a backup",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened: the folder must exist, and both must be writable for this user",
    sqlite3.SQLITE_READONLY: "it is read-only: the file and its folder must be writable for this user",
    sqlite3.SQLITE_PERM: "access is denied: the file and its folder must be writable for this user",
    sqlite3.SQLITE_AUTH: "access is denied: the file and its folder must be writable for this user",
    sqlite3.SQLITE_PROTOCOL: "it cannot be locked: SQLite needs a local disk, not a network file system",
    sqlite3.SQLITE_NOMEM: "there is no memory left",
    sqlite3.SQLITE_NOLFS: "it is too large for its file system",
    sqlite3.SQLITE_INTERRUPT: "it was interrupted",
    sqlite3.SQLITE_SCHEMA: "its schema changed meanwhile",
    sqlite3.SQLITE_MISUSE: "its connection is closed",
}


def code_of(error: sqlite3.Error) -> int:
    """Return SQLite's primary result code; MISUSE for a closed connection, which the sqlite3 module detects."""
    code = getattr(error, "sqlite_errorcode", None)
    if code is not None:
        return int(code) & 0xFF
    # Any other error of the module itself is a bug of everpoll, not an outage that may pass.
    is_closed = isinstance(error, sqlite3.ProgrammingError) and "closed" in str(error)
    return sqlite3.SQLITE_MISUSE if is_closed else sqlite3.SQLITE_ERROR


def explained(error: Exception, path: Path, *, opening: bool = False) -> Exception:
    """Return the error to raise in the place of this one; itself, if there is nothing to explain."""
    if isinstance(error, EverpollError) or not isinstance(error, sqlite3.Error):
        return error
    code = code_of(error)
    if code == sqlite3.SQLITE_TOOBIG:
        return BadInput(f"{path}: a value is larger than SQLite can store ({error})")
    if code == sqlite3.SQLITE_ERROR and "no such table: everpoll_" in str(error):
        return no_tables_in(str(path.absolute()), "the file")
    if code not in WHAT_TO_DO:
        return error
    kind = BadInput if opening and code in UNUSABLE else StoreUnavailable
    return kind(f"{path}: {WHAT_TO_DO[code]} ({error})")
