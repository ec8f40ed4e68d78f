"""The user's own table in Postgres."""

from everpoll.tables.postgres.source import PostgresTable

__all__ = ["PostgresTable"]
