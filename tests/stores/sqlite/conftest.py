"""A file of its own for every test, and an open store on it."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from everpoll.stores.sqlite import SqliteStore


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the file is, or will be."""
    return tmp_path / "tasks.db"


@pytest.fixture
def url(path: Path) -> str:
    """Its address."""
    return f"sqlite:///{path}"


@pytest.fixture
def store(runner: asyncio.Runner, url: str) -> Iterator[SqliteStore]:
    """Open, and with little patience."""
    store = SqliteStore(url, patience_s=0.05)
    runner.run(store.open())
    try:
        yield store
    finally:
        runner.run(store.close())
