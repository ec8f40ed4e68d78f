"""Locks that other transactions hold for longer than a statement waits."""

from everpoll.errors import StoreUnavailable


class LockHeld(StoreUnavailable):
    """Another transaction holds a lock that this statement needs; nothing was done. The database itself answers."""
