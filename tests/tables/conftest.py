"""Every test that asks for a `stage` runs on every database that can hold a user's table."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from everpoll.tables import Guard
from servers.databases import PostgresServers
from tables.postgres_stage import PostgresStage
from tables.postgrest_stage import PostgRestStage, on_postgrest, postgrest
from tables.sqlite_stage import SqliteStage
from tables.stages import TableStage

Made = Callable[[pytest.FixtureRequest, asyncio.Runner], AbstractContextManager[TableStage]]
GUARDS: tuple[Guard, ...] = ("skip_locked", "status", "version", "timestamp")


@contextmanager
def on_postgres(request: pytest.FixtureRequest, runner: asyncio.Runner) -> Iterator[TableStage]:
    """A database that stays, and that each test finds emptied."""
    servers: PostgresServers = request.getfixturevalue("postgres_servers")
    stage = PostgresStage("postgres", servers[None].lasting("adopted"))
    runner.run(stage.begin())
    yield stage


@contextmanager
def on_sqlite(request: pytest.FixtureRequest, runner: asyncio.Runner) -> Iterator[TableStage]:
    """A file of the test's own."""
    del runner
    yield SqliteStage(request.getfixturevalue("tmp_path") / "own.db")


STAGES: dict[str, Made] = {"sqlite": on_sqlite, "postgres": on_postgres, "postgrest": on_postgrest}

__all__ = ["postgrest"]


@pytest.fixture(params=list(STAGES))
def stage(request: pytest.FixtureRequest, runner: asyncio.Runner) -> Iterator[TableStage]:
    """An empty database."""
    with STAGES[request.param](request, runner) as stage:
        try:
            yield stage
        finally:
            runner.run(stage.close())


@pytest.fixture(params=GUARDS)
def guard(request: pytest.FixtureRequest, stage: TableStage) -> Guard:
    """Each that the database can do."""
    if request.param not in stage.guards:
        pytest.skip(f"{stage.name} has no guard {request.param!r}")
    guard: Guard = request.param
    return guard


@pytest.fixture
def sqlite_stage(tmp_path: Path) -> SqliteStage:
    """For what is special about SQLite."""
    return SqliteStage(tmp_path / "own.db")


@pytest.fixture
def postgres_stage(postgres_servers: PostgresServers, runner: asyncio.Runner) -> Iterator[PostgresStage]:
    """For what is special about Postgres."""
    stage = PostgresStage("postgres", postgres_servers[None].lasting("adopted"))
    runner.run(stage.begin())
    try:
        yield stage
    finally:
        runner.run(stage.close())


@pytest.fixture
def postgrest_stage(request: pytest.FixtureRequest, runner: asyncio.Runner) -> Iterator[PostgRestStage]:
    """For what is special about Supabase."""
    with on_postgrest(request, runner) as stage:
        try:
            yield stage
        finally:
            runner.run(stage.close())


@pytest.fixture(scope="session", autouse=True)
def connect_quickly() -> Iterator[None]:
    """What warms a Postgres connection up for long use takes 30 ms on each of the hundreds that tests make."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("everpoll.drivers.postgres.lane.KEEP_MEMORY", "select 1", raising=False)
        yield
