"""Postgres: connections by asyncpg."""
