"""Databases on throw-away servers, for one test or for the length of the session.

Promises: a server starts when a test first asks for it, and ends with the session. A fresh database is gone after
its test. Copies of a migrated template were tried and took 0.3 to 0.6 s a test here; a lasting database that each test
finds emptied takes 0.03 s.
"""

import asyncio
import itertools
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import asyncpg

from servers.postgres import Cluster, cluster


class Databases:
    """Those of one server."""

    def __init__(self, server: Cluster) -> None:
        self.server = server
        self._numbers = itertools.count(1)
        self._lasting: set[str] = set()

    @contextmanager
    def fresh(self) -> Iterator[str]:
        """The URL of a new database for the length of the block: 0.1 s or more, on a busy machine much more."""
        name = f"test_{next(self._numbers)}"
        asyncio.run(self._order(f"create database {name}"))
        try:
            yield self.server.url(name)
        finally:
            asyncio.run(self._order(f"drop database {name} with (force)"))

    def lasting(self, name: str) -> str:
        """The URL of a database that stays for as long as the server does; made when first asked for."""
        if name not in self._lasting:
            asyncio.run(self._order(f"create database {name}"))
            self._lasting.add(name)
        return self.server.url(name)

    async def _order(self, sql: str) -> None:
        connection = await asyncpg.connect(self.server.url())
        try:
            await connection.execute(sql)
        finally:
            await connection.close()


class PostgresServers:
    """The servers of this session, by major version, each started when first asked for."""

    def __init__(self, until: ExitStack) -> None:
        self._until = until
        self._up: dict[int | None, Databases] = {}

    def __getitem__(self, major: int | None) -> Databases:
        """None: the newest."""
        if major not in self._up:
            self._up[major] = Databases(self._until.enter_context(cluster(major)))
        return self._up[major]
