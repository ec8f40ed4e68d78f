"""Databases for the server's tests: a SQLite file, and the newest Postgres."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from everpoll.server import asgi
from everpoll.server.route_table import ROUTES
from servers.databases import PostgresServers
from stores.backends import PostgresBackend

PATIENCE = 10


@pytest.fixture(scope="session", autouse=True)
def calls_take_their_time() -> Iterator[None]:
    """A call that takes longer than 2 s is answered with 503: here only a machine that stands still takes so long."""
    with pytest.MonkeyPatch.context() as patch:
        slow = [replace(one, limit_s=one.limit_s and PATIENCE * one.limit_s) for one in ROUTES]
        patch.setattr(asgi, "ROUTES", slow)
        yield


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A database without tasks: of its own where that is a file, else one that lasts and has its schema."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'tasks.db'}"
        return
    yield request.getfixturevalue("lasting_postgres_url")


@pytest.fixture
def lasting_postgres_url(postgres_servers: PostgresServers) -> str:
    """A Postgres that lasts and has its schema, without tasks."""
    place = PostgresBackend("postgres", postgres_servers[None].lasting("tasks"))
    asyncio.run(place.begin(migrated=True))
    return str(place.url)
