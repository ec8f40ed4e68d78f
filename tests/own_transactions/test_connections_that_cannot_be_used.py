"""A connection that cannot be used is refused in words that say what to pass, and nothing is enqueued."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from everpoll import BadInput, Everpoll, NotRunning, RightsMissing, StoreUnavailable
from own_transactions.conftest import POSTGRES
from own_transactions.rounds import enqueued
from own_transactions.ways import Django, alchemy, plain
from servers.databases import PostgresServers


@pytest.fixture
def file(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/tasks.db"


def shop(url: str) -> tuple[Everpoll, Any]:
    app = Everpoll(url)

    @app.job()
    async def f(number: int) -> None: ...

    return app, f


@asynccontextmanager
async def asyncpg_at(url: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(plain(url))
    try:
        yield connection
    finally:
        await connection.close()


async def prepared(app: Everpoll) -> None:
    """The file is there, with its schema."""
    await app.store()
    await app.close()


async def nothing_is_enqueued(app: Everpoll) -> None:
    assert await enqueued(app) == []
    app.sync.close()
    await app.close()


async def test_asyncpg(postgres: str) -> None:
    app, f = shop(postgres)
    async with asyncpg_at(postgres) as connection:
        with pytest.raises(BadInput, match=r"no transaction is open on this asyncpg connection.*transaction\(\)"):
            await f.enqueue(1, connection=connection)
        with pytest.raises(BadInput, match=r"this asyncpg connection is asynchronous: use await f.enqueue\(…\)"):
            await asyncio.to_thread(f.sync.enqueue, 1, connection=connection)
        begun = connection.transaction()
        await begun.start()
        with pytest.raises(asyncpg.PostgresError):
            await connection.execute("select 1/0")
        with pytest.raises(BadInput, match="transaction of this asyncpg connection has failed: roll it back"):
            await f.enqueue(1, connection=connection)
        await begun.rollback()
        async with connection.transaction(readonly=True):
            with pytest.raises(BadInput, match="this asyncpg connection may not write"):
                await f.enqueue(1, connection=connection)
            await connection.execute("rollback; begin")
    with pytest.raises(BadInput, match="this asyncpg connection is closed"):
        await f.enqueue(1, connection=connection)
    await nothing_is_enqueued(app)


def test_psycopg(postgres: str) -> None:
    app, f = shop(postgres)
    connection = psycopg.connect(plain(postgres), autocommit=True)
    with pytest.raises(BadInput, match="no transaction is open on this psycopg connection"):
        f.sync.enqueue(1, connection=connection)
    connection.autocommit = False
    with pytest.raises(psycopg.Error):
        connection.execute("select 1/0")
    with pytest.raises(BadInput, match="the transaction of this psycopg connection has failed: roll it back first"):
        f.sync.enqueue(1, connection=connection)
    connection.close()
    with pytest.raises(BadInput, match="this psycopg connection is closed"):
        f.sync.enqueue(1, connection=connection)
    asyncio.run(nothing_is_enqueued(app))


async def test_sqlalchemy(postgres: str) -> None:
    app, f = shop(postgres)
    engine = sqlalchemy.create_engine(alchemy(postgres, "psycopg"), poolclass=NullPool)
    connection = engine.connect()
    with pytest.raises(BadInput, match=r"this SQLAlchemy connection is synchronous: use f.sync.enqueue\(…\)"):
        await f.enqueue(1, connection=connection)

    def synchronously() -> None:
        with pytest.raises(BadInput, match='use one without isolation_level="AUTOCOMMIT"'):
            f.sync.enqueue(1, connection=engine.connect().execution_options(isolation_level="AUTOCOMMIT"))
        with pytest.raises(sqlalchemy.exc.DBAPIError):
            connection.execute(sqlalchemy.text("select 1/0"))
        with pytest.raises(BadInput, match="the transaction of this SQLAlchemy connection has failed"):
            f.sync.enqueue(1, connection=connection)
        connection.close()
        with pytest.raises(BadInput, match="this SQLAlchemy connection is closed"):
            f.sync.enqueue(1, connection=connection)
        with Session(sqlalchemy.create_engine("sqlite://")) as session, pytest.raises(BadInput, match="one of SQLite"):
            f.sync.enqueue(1, connection=session)

    await asyncio.to_thread(synchronously)
    later = create_async_engine(alchemy(postgres, "asyncpg"), poolclass=NullPool)
    async with later.connect() as lent:
        with pytest.raises(sqlalchemy.exc.DBAPIError):
            await lent.execute(sqlalchemy.text("select 1/0"))
        with pytest.raises(BadInput, match="the transaction of this SQLAlchemy AsyncConnection has failed"):
            await f.enqueue(1, connection=lent)
    with pytest.raises(BadInput, match="this SQLAlchemy AsyncConnection is closed"):
        await f.enqueue(1, connection=lent)
    await nothing_is_enqueued(app)


def test_django(postgres: str, file: str) -> None:
    for url in (postgres, file):
        app, f = shop(url)
        way = Django(url)
        way.open()
        with pytest.raises(BadInput, match=r"no transaction is open on this Django connection.*transaction.atomic\(\)"):
            f.sync.enqueue(1, connection=way.connection)
        with way.transaction(commit=False) as (connection, _):
            connection.needs_rollback = True
            with pytest.raises(BadInput, match="the transaction of this Django connection has failed"):
                f.sync.enqueue(1, connection=connection)
        way.close()
        asyncio.run(nothing_is_enqueued(app))


def test_sqlite3(file: str, tmp_path: Path) -> None:
    app, f = shop(file)
    asyncio.run(prepared(app))
    path = plain(file).removeprefix("sqlite:///")
    connection = sqlite3.connect(path, isolation_level=None)
    with pytest.raises(BadInput, match=r"no transaction is open on this sqlite3 connection.*begin immediate"):
        f.sync.enqueue(1, connection=connection)
    connection.close()
    with pytest.raises(BadInput, match="this sqlite3 connection is closed"):
        f.sync.enqueue(1, connection=connection)
    reader = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    with pytest.raises(BadInput, match="this sqlite3 connection may not write"):
        f.sync.enqueue(1, connection=reader)
    reader.close()
    for other in (str(tmp_path / "other.db"), ":memory:"):
        elsewhere = sqlite3.connect(other)
        with pytest.raises(BadInput, match=r"this sqlite3 connection has .* open, and the tasks of this app are in"):
            f.sync.enqueue(1, connection=elsewhere)
        elsewhere.close()
    asyncio.run(nothing_is_enqueued(app))


def test_sqlite3_while_another_connection_writes(file: str) -> None:
    app, f = shop(file)
    asyncio.run(prepared(app))
    path = plain(file).removeprefix("sqlite:///")
    writer, reader = sqlite3.connect(path, isolation_level=None), sqlite3.connect(path, timeout=0)
    writer.execute("begin immediate")
    with pytest.raises(StoreUnavailable, match="another connection is writing"):
        f.sync.enqueue(1, connection=reader)
    writer.execute("rollback")
    # A transaction that has read before another one wrote cannot write any more.
    reader.execute("begin")
    reader.execute("select count(*) from everpoll_tasks").fetchone()
    writer.execute("create table other (x)")
    with pytest.raises(StoreUnavailable, match=r"has written since this transaction read .*roll it back and try again"):
        f.sync.enqueue(1, connection=reader)
    reader.rollback()
    f.sync.enqueue(2, connection=reader)
    reader.rollback()
    writer.close()
    reader.close()
    asyncio.run(nothing_is_enqueued(app))


def test_factories_of_the_connection_are_left_alone(file: str) -> None:
    app, f = shop(file)
    connection = sqlite3.connect(plain(file).removeprefix("sqlite:///"))
    connection.text_factory = bytes
    connection.row_factory = sqlite3.Row
    first = f.sync.enqueue(1, key="k", delay="1h", connection=connection)
    assert f.sync.enqueue(1, key="k", connection=connection).id == first.id
    assert (connection.text_factory, connection.row_factory) == (bytes, sqlite3.Row)
    connection.commit()
    connection.close()
    assert first.info().key == "k"
    app.sync.close()


@pytest.fixture
def other(request: pytest.FixtureRequest, postgres_servers: PostgresServers) -> str:
    """Another database of the same server."""
    return postgres_servers[int(POSTGRES.partition("-")[2])].lasting(request.param)


@pytest.mark.parametrize("other", ["elsewhere"], indirect=True)
async def test_a_database_without_everpoll_is_another_one(postgres: str, other: str) -> None:
    app, f = shop(postgres)
    async with asyncpg_at(other) as connection:
        begun = connection.transaction()
        await begun.start()
        with pytest.raises(BadInput, match="the database of this asyncpg connection has no tables of this release"):
            await f.enqueue(1, connection=connection)
        await begun.rollback()
    await nothing_is_enqueued(app)


@pytest.mark.parametrize("other", ["twin"], indirect=True)
async def test_a_database_with_everpoll_is_told_from_that_of_the_app(postgres: str, other: str) -> None:
    """Staging is not production, however alike they are; the transaction stays usable."""
    app, f = shop(postgres)
    twin, g = shop(other)
    await g.enqueue(0, delay="1h", key="only")
    async with asyncpg_at(other) as connection, connection.transaction():
        with pytest.raises(BadInput, match="it leads to another database, 'twin', than that of this app, 'tasks'"):
            await f.enqueue(1, connection=connection)
        assert await connection.fetchval("select count(*) from everpoll.tasks") == 1
    await twin.close()
    await nothing_is_enqueued(app)


async def test_a_server_that_was_started_again_is_still_the_same(postgres: str) -> None:
    """The store learns anew which database it has, and the enqueue goes through."""
    app, f = shop(postgres)
    store: Any = await app.store()
    store._place = "1.0 tasks"
    async with asyncpg_at(postgres) as connection, connection.transaction():
        assert (await f.enqueue(1, connection=connection)).is_new
    assert await enqueued(app) == [1]
    await app.close()


async def test_a_role_without_rights_is_told_so(postgres: str) -> None:
    app, f = shop(postgres)
    await app.store()
    async with asyncpg_at(postgres) as connection:
        await connection.execute("drop role if exists beggar")
        await connection.execute("create role beggar")
        begun = connection.transaction()
        await begun.start()
        await connection.execute("set local role beggar")
        with pytest.raises(RightsMissing, match="lacks a right on the schema everpoll: permission denied"):
            await f.enqueue(1, connection=connection)
        await begun.rollback()
    await nothing_is_enqueued(app)


@pytest.mark.parametrize("connection", [object(), 5, "postgresql://", sqlite3.Cursor, Path("/")])
async def test_what_is_no_connection(file: str, connection: object) -> None:
    app, f = shop(file)
    with pytest.raises(BadInput, match=r"connection=.* is not a connection that everpoll knows: pass one of asyncpg"):
        await f.enqueue(1, connection=connection)
    with pytest.raises(BadInput, match=r"connection=.* is not a connection that everpoll knows: pass one of asyncpg"):
        await asyncio.to_thread(f.sync.enqueue, 1, connection=connection)
    await nothing_is_enqueued(app)


async def test_kinds_of_databases_do_not_mix(postgres: str, file: str) -> None:
    app, f = shop(file)
    async with asyncpg_at(postgres) as connection, connection.transaction():
        with pytest.raises(BadInput, match=r"asyncpg connection is one of Postgres, .* are in SQLite"):
            await f.enqueue(1, connection=connection)
    await nothing_is_enqueued(app)
    app, f = shop(postgres)
    with pytest.raises(BadInput, match="connection is one of SQLite, and the tasks of this app are in Postgres"):
        await asyncio.to_thread(lambda: f.sync.enqueue(1, connection=sqlite3.connect(":memory:")))
    await nothing_is_enqueued(app)


async def test_memory_has_no_transactions(postgres: str) -> None:
    app, f = shop("memory://")
    async with asyncpg_at(postgres) as connection, connection.transaction():
        with pytest.raises(BadInput, match="this app has its tasks in memory, which no transaction reaches"):
            await f.enqueue(1, connection=connection)
    await nothing_is_enqueued(app)


async def test_none_means_without(file: str) -> None:
    app, f = shop(file)
    await f.enqueue(1, connection=None)
    await f.enqueue_many([(2,)], connection=None)
    assert await enqueued(app) == [1, 2]
    await app.close()


async def test_inside_an_event_loop_a_blocking_call_is_refused(file: str) -> None:
    app, f = shop(file)
    connection = sqlite3.connect(":memory:")
    with pytest.raises(NotRunning, match=r"write await f.enqueue\(…\) with an asynchronous connection"):
        f.sync.enqueue(1, connection=connection)
    connection.close()
    await nothing_is_enqueued(app)
