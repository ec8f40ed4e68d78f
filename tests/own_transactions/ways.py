"""The connections that callers have, each with its own way to begin, commit and roll back.

A way opens connections to the database of an app, and makes transactions on them that write a row of the caller's own
into the table `ledger`. All drivers are real, and so are the databases.
"""

import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, ClassVar

import asyncpg
import django
import django.db
import psycopg
import sqlalchemy
from django.conf import settings
from django.db import transaction
from django.utils.functional import empty
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker
from sqlalchemy.pool import NullPool

INSERT = "insert into ledger (number) values ({})"
TABLE = "create table if not exists ledger (number integer primary key)"

Write = Callable[[int], None]
AsyncWrite = Callable[[int], Awaitable[None]]


def plain(url: str) -> str:
    """The address without everpoll's own parameters."""
    return url.partition("?")[0]


def alchemy(url: str, driver: str) -> str:
    scheme, _, rest = plain(url).partition("://")
    return f"{scheme}+{driver}://{rest}"


class AsyncWay:
    """A driver whose calls are awaited."""

    is_async = True
    engines: ClassVar[tuple[str, ...]] = ("postgres",)

    def __init__(self, url: str) -> None:
        self.url = url

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    def transaction(self, *, commit: bool) -> Any:
        """An asynchronous context with a connection, and what writes a row of the caller's own through it."""
        raise NotImplementedError


class SyncWay:
    """A driver whose calls block."""

    is_async = False
    engines: ClassVar[tuple[str, ...]] = ("postgres",)

    def __init__(self, url: str) -> None:
        self.url = url

    def open(self) -> None: ...

    def close(self) -> None: ...

    def transaction(self, *, commit: bool) -> Any:
        """A context with a connection, and what writes a row of the caller's own through it."""
        raise NotImplementedError


class Asyncpg(AsyncWay):
    async def open(self) -> None:
        self.connection = await asyncpg.connect(plain(self.url))

    async def close(self) -> None:
        await self.connection.close()

    @asynccontextmanager
    async def transaction(self, *, commit: bool) -> AsyncIterator[tuple[Any, AsyncWrite]]:
        begun = self.connection.transaction()
        await begun.start()

        async def write(number: int) -> None:
            await self.connection.execute(INSERT.format("$1"), number)

        yield self.connection, write
        await (begun.commit() if commit else begun.rollback())


class AsyncpgPool(AsyncWay):
    async def open(self) -> None:
        self.pool = await asyncpg.create_pool(plain(self.url), min_size=1, max_size=2)

    async def close(self) -> None:
        await self.pool.close()

    @asynccontextmanager
    async def transaction(self, *, commit: bool) -> AsyncIterator[tuple[Any, AsyncWrite]]:
        async with self.pool.acquire() as lent:
            begun = lent.transaction()
            await begun.start()

            async def write(number: int) -> None:
                await lent.execute(INSERT.format("$1"), number)

            yield lent, write
            await (begun.commit() if commit else begun.rollback())


class Psycopg(SyncWay):
    def open(self) -> None:
        self.connection = psycopg.connect(plain(self.url), row_factory=psycopg.rows.dict_row)

    def close(self) -> None:
        self.connection.close()

    @contextmanager
    def transaction(self, *, commit: bool) -> Iterator[tuple[Any, Write]]:
        yield self.connection, lambda number: _ignore(self.connection.execute(INSERT.format("%s"), [number]))
        if commit:
            self.connection.commit()
        else:
            self.connection.rollback()


class AsyncPsycopg(AsyncWay):
    async def open(self) -> None:
        self.connection = await psycopg.AsyncConnection.connect(plain(self.url), autocommit=True)

    async def close(self) -> None:
        await self.connection.close()

    @asynccontextmanager
    async def transaction(self, *, commit: bool) -> AsyncIterator[tuple[Any, AsyncWrite]]:
        async with self.connection.transaction(force_rollback=not commit):

            async def write(number: int) -> None:
                await self.connection.execute(INSERT.format("%s"), [number])

            yield self.connection, write


class AlchemyCore(SyncWay):
    engines = ("postgres", "sqlite")

    def open(self) -> None:
        driver = "pysqlite" if self.url.startswith("sqlite") else "psycopg"
        self.engine = sqlalchemy.create_engine(alchemy(self.url, driver), poolclass=NullPool)
        self.connection = self.engine.connect()

    def close(self) -> None:
        self.connection.close()
        self.engine.dispose()

    @contextmanager
    def transaction(self, *, commit: bool) -> Iterator[tuple[Any, Write]]:
        statement = sqlalchemy.text(INSERT.format(":number"))
        yield self.connection, lambda number: _ignore(self.connection.execute(statement, {"number": number}))
        if commit:
            self.connection.commit()
        else:
            self.connection.rollback()


class AlchemySession(AlchemyCore):
    @contextmanager
    def transaction(self, *, commit: bool) -> Iterator[tuple[Any, Write]]:
        statement = sqlalchemy.text(INSERT.format(":number"))
        with Session(self.engine) as session:
            yield session, lambda number: _ignore(session.execute(statement, {"number": number}))
            if commit:
                session.commit()
            else:
                session.rollback()


class AlchemyScopedSession(AlchemyCore):
    """As Flask has it."""

    @contextmanager
    def transaction(self, *, commit: bool) -> Iterator[tuple[Any, Write]]:
        statement = sqlalchemy.text(INSERT.format(":number"))
        session = scoped_session(sessionmaker(self.engine))
        yield session, lambda number: _ignore(session.execute(statement, {"number": number}))
        if commit:
            session.commit()
        session.remove()


class AlchemyAsyncCore(AsyncWay):
    engines = ("postgres", "sqlite")
    driver = "asyncpg"

    async def open(self) -> None:
        driver = "aiosqlite" if self.url.startswith("sqlite") else self.driver
        self.engine = create_async_engine(alchemy(self.url, driver), poolclass=NullPool)

    async def close(self) -> None:
        await self.engine.dispose()

    @asynccontextmanager
    async def transaction(self, *, commit: bool) -> AsyncIterator[tuple[Any, AsyncWrite]]:
        async with self.engine.connect() as connection:

            async def write(number: int) -> None:
                await connection.execute(sqlalchemy.text(INSERT.format(":number")), {"number": number})

            yield connection, write
            await (connection.commit() if commit else connection.rollback())


class AlchemyAsyncSession(AlchemyAsyncCore):
    driver = "psycopg"

    @asynccontextmanager
    async def transaction(self, *, commit: bool) -> AsyncIterator[tuple[Any, AsyncWrite]]:
        async with AsyncSession(self.engine) as session:

            async def write(number: int) -> None:
                await session.execute(sqlalchemy.text(INSERT.format(":number")), {"number": number})

            yield session, write
            await (session.commit() if commit else session.rollback())


class Django(SyncWay):
    """`transaction.atomic()`, and the connection that a view would import."""

    engines = ("postgres", "sqlite")
    alias = "ledger"

    def open(self) -> None:
        # Settings are of the whole process, and other tests have some of their own: they are taken back afterwards.
        self._configured = not settings.configured
        if self._configured:
            settings.configure(USE_TZ=True, LOGGING_CONFIG=None)
        django.setup()
        if self.url.startswith("sqlite"):
            database = {"ENGINE": "django.db.backends.sqlite3", "NAME": plain(self.url).removeprefix("sqlite:///")}
        else:
            at = sqlalchemy.make_url(plain(self.url))
            database = {
                "ENGINE": "django.db.backends.postgresql",
                "NAME": str(at.database),
                "USER": str(at.username),
                "PASSWORD": str(at.password or ""),
                "HOST": str(at.host),
                "PORT": str(at.port),
            }
        handler = django.db.connections
        handler.databases[self.alias] = handler.configure_settings({"default": {}, self.alias: database})[self.alias]
        self.connection = handler[self.alias]

    def close(self) -> None:
        self.connection.close()
        del django.db.connections[self.alias]
        if self._configured:
            settings._wrapped = empty

    @contextmanager
    def transaction(self, *, commit: bool) -> Iterator[tuple[Any, Write]]:
        with transaction.atomic(using=self.alias):

            def write(number: int) -> None:
                with self.connection.cursor() as cursor:
                    cursor.execute(INSERT.format("%s"), [number])

            yield self.connection, write
            if not commit:
                transaction.set_rollback(True, using=self.alias)


class Sqlite3(SyncWay):
    engines = ("sqlite",)

    def open(self) -> None:
        self.connection = sqlite3.connect(plain(self.url).removeprefix("sqlite:///"), timeout=30)
        self.connection.row_factory = sqlite3.Row

    def close(self) -> None:
        self.connection.close()

    @contextmanager
    def transaction(self, *, commit: bool) -> Iterator[tuple[Any, Write]]:
        yield self.connection, lambda number: _ignore(self.connection.execute(INSERT.format("?"), [number]))
        if commit:
            self.connection.commit()
        else:
            self.connection.rollback()


def _ignore(_: object) -> None:
    """A cursor that a write leaves behind."""


WAYS: list[type[AsyncWay] | type[SyncWay]] = [
    Asyncpg,
    AsyncpgPool,
    Psycopg,
    AsyncPsycopg,
    AlchemyCore,
    AlchemySession,
    AlchemyScopedSession,
    AlchemyAsyncCore,
    AlchemyAsyncSession,
    Django,
    Sqlite3,
]
PAIRS = [(engine, way) for way in WAYS for engine in way.engines]
