"""Savepoints undo what was enqueued since; transactions of any isolation enqueue, and a lost race is the driver's."""

import asyncio
from typing import Any

import asyncpg
import pytest
import sqlalchemy
from django.db import transaction
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from everpoll import Everpoll
from own_transactions.rounds import enqueued
from own_transactions.ways import Asyncpg, Django, Psycopg, alchemy, plain


def shop(url: str) -> tuple[Everpoll, Any]:
    app = Everpoll(url)

    @app.job()
    async def f(number: int) -> None: ...

    return app, f


async def kept(app: Everpoll) -> list[int]:
    found = await enqueued(app)
    app.sync.close()
    await app.close()
    return found


async def test_a_savepoint_of_asyncpg(postgres: str) -> None:
    app, f = shop(postgres)
    way = Asyncpg(postgres)
    await way.open()
    async with way.connection.transaction():
        await f.enqueue(1, connection=way.connection)
        inner = way.connection.transaction()
        await inner.start()
        await f.enqueue(2, connection=way.connection)
        await inner.rollback()
        await f.enqueue(3, connection=way.connection)
    await way.close()
    assert await kept(app) == [1, 3]


def test_a_savepoint_of_psycopg(postgres: str) -> None:
    app, f = shop(postgres)
    way = Psycopg(postgres)
    way.open()
    with way.connection.transaction():
        f.sync.enqueue(1, connection=way.connection)
        with way.connection.transaction(force_rollback=True):
            f.sync.enqueue(2, connection=way.connection)
        f.sync.enqueue(3, connection=way.connection)
    way.close()
    assert asyncio.run(kept(app)) == [1, 3]


def test_a_savepoint_of_sqlalchemy(url: str) -> None:
    app, f = shop(url)
    f.sync.enqueue(0)
    driver = "pysqlite" if url.startswith("sqlite") else "psycopg"
    engine = sqlalchemy.create_engine(alchemy(url, driver), poolclass=NullPool)
    with Session(engine) as session:
        f.sync.enqueue(1, connection=session)
        with session.begin_nested() as nested:
            f.sync.enqueue(2, connection=session)
            nested.rollback()
        f.sync.enqueue(3, connection=session)
        session.commit()
    engine.dispose()
    assert asyncio.run(kept(app)) == [0, 1, 3]


def test_a_savepoint_of_django(url: str) -> None:
    app, f = shop(url)
    f.sync.enqueue(0)
    way = Django(url)
    way.open()
    with transaction.atomic(using=way.alias):
        f.sync.enqueue(1, connection=way.connection)
        with transaction.atomic(using=way.alias):
            f.sync.enqueue(2, connection=way.connection)
            transaction.set_rollback(True, using=way.alias)
        f.sync.enqueue(3, connection=way.connection)
    way.close()
    assert asyncio.run(kept(app)) == [0, 1, 3]


@pytest.mark.parametrize("isolation", ["repeatable_read", "serializable"])
async def test_a_stricter_isolation(postgres: str, isolation: str) -> None:
    """A key that another transaction took after the snapshot is a lost race, as for any row: the caller tries again."""
    app, f = shop(postgres)
    connection = await asyncpg.connect(plain(postgres))
    async with connection.transaction(isolation=isolation):
        assert (await f.enqueue(1, key="k", connection=connection)).is_new
    begun = connection.transaction(isolation=isolation)
    await begun.start()
    await connection.fetchval("select 1 from everpoll.tasks")
    await f.enqueue(2, key="late")
    with pytest.raises(asyncpg.SerializationError):
        await f.enqueue(3, key="late", connection=connection)
    await begun.rollback()
    async with connection.transaction(isolation=isolation):
        assert not (await f.enqueue(3, key="late", connection=connection)).is_new
    await connection.close()
    assert await kept(app) == [1, 2]
