"""Every test that asks for an `app` runs on every store, in real time with short delays."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from everpoll import Everpoll
from everpoll.stores.contract import Store
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
def another_store(
    request: pytest.FixtureRequest, runner: asyncio.Runner, tmp_path: Path
) -> Iterator[Callable[[], Store]]:
    """Makes store objects on the same tasks, as the processes of a fleet have."""
    with made(request, runner, tmp_path, migrated=True) as place:
        # The memory of tests/stores has a clock that stands still; here time passes.
        memory = MemoryStore()
        yield lambda: memory if place.name == "memory" else place.store()


@pytest.fixture
def app(another_store: Callable[[], Store]) -> Iterator[Everpoll]:
    """An app on an empty store; the test enters it, or runs no worker."""
    app = Everpoll(another_store(), lease="30s")
    yield app
    assert not app._opened.is_open, "the test did not close its app"
