"""A Postgres of our own, to be restarted and crashed; and one database for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from faults.ledger import Ledger, PostgresLedger, SqliteLedger
from servers.databases import Databases
from servers.postgres import FAST, cluster

# Commits survive a crash of the server, as in production: what a worker was told must be true after it.
SETTINGS = {**FAST, "synchronous_commit": "on"}


@pytest.fixture(scope="session")
def fault_server() -> Iterator[Databases]:
    """One server for all tests of this folder."""
    with cluster(settings=SETTINGS) as server:
        yield Databases(server)


@pytest.fixture
def postgres(fault_server: Databases) -> Iterator[PostgresLedger]:
    """An empty database: the workers bring the schema, all at once."""
    with fault_server.fresh() as url:
        yield PostgresLedger(url)


@pytest.fixture(params=["postgres", "sqlite"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Ledger:
    """The same faults on both."""
    if request.param == "postgres":
        found: Ledger = request.getfixturevalue("postgres")
        return found
    return SqliteLedger(tmp_path / "tasks.db")
