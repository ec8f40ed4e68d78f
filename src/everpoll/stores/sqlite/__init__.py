"""The store in one SQLite file: nothing to install, nothing to run, shared by the processes of one machine."""

from everpoll.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
