"""Connections of callers: what everpoll does inside a transaction that is not its own.

    asyncpg · psycopg · SQLAlchemy · Django ──▶ one statement, one text back ──▶ Postgres
    sqlite3 · SQLAlchemy · Django           ──▶ several statements          ──▶ the file

Promises: drivers are recognised by the names of their classes; none is imported that the program has not imported.
Nothing is committed or rolled back here, but for a SQLite transaction whose lease was lost.
"""

from everpoll.drivers.callers.perform import check_kind, perform, perform_async
from everpoll.drivers.callers.work import CallerWork, OtherDatabase, PostgresWork, SqliteWork

__all__ = ["CallerWork", "OtherDatabase", "PostgresWork", "SqliteWork", "check_kind", "perform", "perform_async"]
