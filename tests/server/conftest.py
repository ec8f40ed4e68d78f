"""Databases for the server's tests: a SQLite file, and the newest Postgres."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from servers.databases import PostgresServers


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An empty database."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'tasks.db'}"
        return
    servers: PostgresServers = request.getfixturevalue("postgres_servers")
    with servers[None].fresh() as made:
        yield f"{made}?sslmode=disable"
