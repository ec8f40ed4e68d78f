"""A database of its own for each test: the newest Postgres, or a SQLite file; with the ledger of the caller in it."""

import asyncio
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import asyncpg
import pytest

from own_transactions.ways import PAIRS, TABLE, AlchemyAsyncSession, Asyncpg, AsyncWay, SyncWay, plain
from stores.backends import backend_names
from stores.conftest import made

POSTGRES = next(name for name in backend_names() if name.startswith("postgres"))


def named(pairs: Sequence[tuple[str, type[AsyncWay] | type[SyncWay]]]) -> list[str]:
    return [f"{way.__name__}-{engine}" for engine, way in pairs]


ASYNC_PAIRS = [(engine, way) for engine, way in PAIRS if way in {Asyncpg, AlchemyAsyncSession}]
"""One driver of Postgres by itself, and one way to each database by a framework."""


@pytest.fixture(params=PAIRS, ids=named(PAIRS))
def way(request: pytest.FixtureRequest, runner: asyncio.Runner, tmp_path: Path) -> Iterator[AsyncWay | SyncWay]:
    """One of the drivers, on an empty database."""
    yield from _opened(request, runner, tmp_path)


@pytest.fixture(params=ASYNC_PAIRS, ids=named(ASYNC_PAIRS))
def async_way(request: pytest.FixtureRequest, runner: asyncio.Runner, tmp_path: Path) -> Iterator[AsyncWay | SyncWay]:
    """One of the asynchronous ones."""
    yield from _opened(request, runner, tmp_path)


@pytest.fixture(params=[POSTGRES])
def postgres(request: pytest.FixtureRequest, runner: asyncio.Runner, tmp_path: Path) -> Iterator[str]:
    """The address of an empty Postgres database."""
    yield from _url(request, runner, tmp_path)


@pytest.fixture(params=[POSTGRES, "sqlite"])
def url(request: pytest.FixtureRequest, runner: asyncio.Runner, tmp_path: Path) -> Iterator[str]:
    """The address of an empty database."""
    yield from _url(request, runner, tmp_path)


def _opened(request: pytest.FixtureRequest, runner: asyncio.Runner, tmp_path: Path) -> Iterator[AsyncWay | SyncWay]:
    engine, kind = request.param
    request.param = POSTGRES if engine == "postgres" else engine
    for url in _url(request, runner, tmp_path):
        yield kind(url)


def _url(request: pytest.FixtureRequest, runner: asyncio.Runner, tmp_path: Path) -> Iterator[str]:
    with made(request, runner, tmp_path, migrated=True) as place:
        assert place.url is not None
        runner.run(_prepare(place.url))
        yield place.url


async def _prepare(url: str) -> None:
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(plain(url).removeprefix("sqlite:///"))) as file, file:
            file.execute(TABLE)
        return
    connection = await asyncpg.connect(plain(url))
    await connection.execute(TABLE)
    await connection.execute("delete from ledger")
    await connection.close()
