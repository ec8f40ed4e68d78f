"""A database of its own for each test: the newest Postgres, or a SQLite file; with the ledger of the caller in it."""

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import asyncpg
import pytest

from own_transactions.ways import PAIRS, TABLE, AsyncWay, SyncWay, plain
from stores.backends import backend_names
from stores.conftest import made

POSTGRES = next(name for name in backend_names() if name.startswith("postgres"))


@pytest.fixture(params=PAIRS, ids=[f"{way.__name__}-{engine}" for engine, way in PAIRS])
def way(request: pytest.FixtureRequest, runner: asyncio.Runner, tmp_path: Path) -> Iterator[AsyncWay | SyncWay]:
    """One of the drivers, on an empty database."""
    engine, kind = request.param
    request.param = POSTGRES if engine == "postgres" else engine
    with made(request, runner, tmp_path, migrated=True) as place:
        assert place.url is not None
        runner.run(_prepare(place.url))
        yield kind(place.url)


async def _prepare(url: str) -> None:
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(plain(url).removeprefix("sqlite:///"))) as file, file:
            file.execute(TABLE)
        return
    connection = await asyncpg.connect(plain(url))
    await connection.execute(TABLE)
    await connection.execute("delete from ledger")
    await connection.close()
