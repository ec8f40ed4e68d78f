"""Databases for tests of the Postgres store alone, on every version of Postgres found here."""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from everpoll.stores.postgres import PostgresStore
from servers.databases import PostgresServers
from servers.postgres import FAST, Cluster, binary_folders, cluster
from stores.backends import PostgresBackend
from stores.stage import Stage

MAJORS = sorted(binary_folders(), reverse=True)


@pytest.fixture(params=MAJORS, ids=lambda major: f"postgres-{major}")
def major(request: pytest.FixtureRequest) -> int:
    """Each version of Postgres found here."""
    return int(request.param)


@pytest.fixture
def backend(major: int, postgres_servers: PostgresServers, runner: asyncio.Runner) -> PostgresBackend:
    """An empty database, its schema up to date."""
    place = PostgresBackend(f"postgres-{major}", postgres_servers[major].lasting("tasks"))
    runner.run(place.begin(migrated=True))
    return place


@pytest.fixture
def url(backend: PostgresBackend) -> str:
    """Where it is."""
    return str(backend.url).split("?", maxsplit=1)[0]


@pytest.fixture
def bare_url(major: int, postgres_servers: PostgresServers) -> Iterator[str]:
    """A database that everpoll has never seen."""
    with postgres_servers[major].fresh() as url:
        yield url


@pytest.fixture
def store(stage: Stage) -> PostgresStore:
    """The store on the stage, by its own type."""
    assert isinstance(stage.store, PostgresStore)
    return stage.store


class OwnServers:
    """Servers that may be stopped, even by a crash: what they have committed stays."""

    def __init__(self, until: ExitStack) -> None:
        self._until = until
        self._up: dict[int, Cluster] = {}

    def __getitem__(self, major: int) -> Cluster:
        if major not in self._up:
            settings = {**FAST, "synchronous_commit": "on"}
            self._up[major] = self._until.enter_context(cluster(major, settings))
        return self._up[major]


@pytest.fixture(scope="session")
def own_servers() -> Iterator[OwnServers]:
    """They end with the session."""
    with ExitStack() as until:
        yield OwnServers(until)


@pytest.fixture
def own_server(major: int, own_servers: OwnServers) -> Cluster:
    """A server that nobody else uses at present; it is up, whatever the test before has done to it."""
    server = own_servers[major]
    server.start()
    return server
