"""Postgres alone, every version found here."""

import asyncio
from collections.abc import Iterator

import pytest

from everpoll.tables import Guard
from servers.databases import PostgresServers
from servers.postgres import binary_folders
from tables.conftest import GUARDS
from tables.postgres_stage import PostgresStage

MAJORS = sorted(binary_folders(), reverse=True)


@pytest.fixture(scope="module", params=MAJORS, ids=lambda major: f"postgres-{major}")
def major(request: pytest.FixtureRequest) -> int:
    """Each version of Postgres found here."""
    return int(request.param)


@pytest.fixture
def postgres_stage(major: int, postgres_servers: PostgresServers, runner: asyncio.Runner) -> Iterator[PostgresStage]:
    """A database that each test finds emptied."""
    stage = PostgresStage(f"postgres-{major}", postgres_servers[major].lasting("adopted"))
    runner.run(stage.begin())
    try:
        yield stage
    finally:
        runner.run(stage.close())


@pytest.fixture(params=GUARDS)
def guard(request: pytest.FixtureRequest) -> Guard:
    """Each."""
    guard: Guard = request.param
    return guard
