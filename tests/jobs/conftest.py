"""Every test that asks for an `app` runs on every store, in real time with short delays."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from everpoll import Everpoll
from everpoll.stores.memory import MemoryStore
from stores.backends import backend_names
from stores.conftest import made


def stores() -> list[str]:
    """Memory, SQLite, and the newest Postgres: what differs between its versions is for tests/stores to find."""
    names = backend_names()
    return [name for name in names if not name.startswith("postgres-")] + [
        name for name in names if name.startswith("postgres-")
    ][:1]


@pytest.fixture(params=stores())
def app(request: pytest.FixtureRequest, runner: asyncio.Runner, tmp_path: Path) -> Iterator[Everpoll]:
    """An app on an empty store; the test enters it, or runs no worker."""
    with made(request, runner, tmp_path, migrated=True) as place:
        app = Everpoll("memory://", lease="30s")
        # The memory of tests/stores has a clock that stands still; here time passes.
        app._store = MemoryStore() if place.name == "memory" else place.store()
        yield app
        assert app._opened_on is None, "the test did not close its app"
