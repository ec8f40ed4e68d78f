"""Every test that asks for a `stage` runs on every store."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from servers.databases import PostgresServers
from servers.postgres import NOT_FOUND
from stores.backends import Backend, MemoryBackend, PostgresBackend, SqliteBackend, backend_names
from stores.stage import Stage


@pytest.fixture(params=backend_names())
def backend(request: pytest.FixtureRequest, runner: asyncio.Runner, tmp_path: Path) -> Iterator[Backend]:
    """An empty place for tasks, its schema up to date: memory, a SQLite file, or a Postgres database of its own."""
    with made(request, runner, tmp_path, migrated=True) as place:
        yield place


@pytest.fixture(params=[name for name in backend_names() if name != "memory"])
def bare_backend(request: pytest.FixtureRequest, runner: asyncio.Runner, tmp_path: Path) -> Iterator[Backend]:
    """A database that everpoll has never seen."""
    with made(request, runner, tmp_path, migrated=False) as place:
        yield place


@pytest.fixture
def stage(runner: asyncio.Runner, backend: Backend) -> Iterator[Stage]:
    """An open store."""
    stage = Stage(backend)
    runner.run(stage.open())
    try:
        yield stage
    finally:
        runner.run(stage.close())


@pytest.fixture(scope="session", autouse=True)
def connect_quickly() -> Iterator[None]:
    """What warms a Postgres connection up for long use takes 30 ms on each of the thousands that tests make."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("everpoll.drivers.postgres.lane.KEEP_MEMORY", "select 1", raising=False)
        yield


@contextmanager
def made(request: pytest.FixtureRequest, runner: asyncio.Runner, folder: Path, *, migrated: bool) -> Iterator[Backend]:
    name, _, major = str(request.param).partition("-")
    if name == "memory":
        yield MemoryBackend()
    elif name == "sqlite":
        yield SqliteBackend(folder / "tasks.db")
    elif not major:
        pytest.fail(NOT_FOUND)
    else:
        servers: PostgresServers = request.getfixturevalue("postgres_servers")
        url = servers[int(major)].lasting("tasks" if migrated else "bare")
        place = PostgresBackend(request.param, url)
        runner.run(place.begin(migrated=migrated))
        yield place
