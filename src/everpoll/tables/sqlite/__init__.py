"""The user's own table in an SQLite file."""

from everpoll.tables.sqlite.source import SqliteTable

__all__ = ["SqliteTable"]
