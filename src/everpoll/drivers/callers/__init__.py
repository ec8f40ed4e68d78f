"""Connections of callers: everpoll's statements inside a transaction of the caller.

    asyncpg · psycopg · SQLAlchemy · Django ──▶ one statement, one text back ──▶ Postgres
    sqlite3 · SQLAlchemy · Django           ──▶ several statements          ──▶ the file

Promises: drivers are recognized by the names of their classes; none is imported that the program has not imported.
Nothing is committed or rolled back here, except a SQLite transaction whose lease was lost: it is rolled back.
"""

from everpoll.drivers.callers.perform import check_kind, perform, perform_async
from everpoll.drivers.callers.work import CallerWork, OtherDatabase, PostgresWork, SqliteWork

__all__ = ["CallerWork", "OtherDatabase", "PostgresWork", "SqliteWork", "check_kind", "perform", "perform_async"]
