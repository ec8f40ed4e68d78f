"""The store in Postgres: for a fleet. Needs the extra `everpoll[postgres]`."""

from everpoll.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
