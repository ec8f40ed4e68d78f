"""A table in a Postgres database, reached through a real PostgREST server with a service key, as Supabase has it."""

import asyncio
import contextlib
import itertools
from collections.abc import Iterator
from typing import Any

import aiohttp
import asyncpg
import pytest

from everpoll.tables import Table
from servers.databases import PostgresServers
from servers.postgrest import GRANTS, ROLES, PostgRest, token
from tables.postgres_stage import DROP, PostgresStage
from tables.stages import GIVE_UP_S

_marks = itertools.count(1)


class PostgRestStage(PostgresStage):
    """What the user does goes to Postgres itself, what everpoll does goes over HTTP."""

    has_trigger_push = False

    def __init__(self, name: str, url: str, server: PostgRest) -> None:
        super().__init__(name, url)
        self.database_url = url
        self.server = server
        self.url = server.url
        self.token = token()
        self._prepared: list[str] = []

    async def connection(self) -> Any:
        url, self.url = self.url, self.database_url
        try:
            return await super().connection()
        finally:
            self.url = url

    async def begin(self) -> None:
        await super().execute(f"{ROLES};\n{DROP};\n{GRANTS}")

    async def execute(self, sql: str) -> None:
        await super().execute(sql)
        if not sql.startswith("insert"):
            await self.reloaded()

    async def reloaded(self) -> None:
        """PostgREST knows the schema as it is now: a table that is made last is seen."""
        mark = f"seen_{next(_marks)}"
        await super().execute(f"create table public.{mark} (id bigint); notify pgrst, 'reload schema'")
        headers = {"Authorization": f"Bearer {self.token}"}
        async with aiohttp.ClientSession(headers=headers) as session, asyncio.timeout(GIVE_UP_S):
            while True:
                async with session.get(self.server.url) as answer:
                    known = (await answer.json(content_type=None)).get("definitions", {})
                    if mark in known:
                        break
                await asyncio.sleep(0.01)
        await super().execute(f"drop table public.{mark}")

    async def prepare(self, mapping: Table) -> None:
        """Guard "skip_locked" needs a function over HTTP; the owner of the database has made it."""
        if mapping.guard != "skip_locked":
            return
        statements = self.source(mapping).ddl()
        if statements != self._prepared:
            for statement in statements:
                await super().execute(statement)
            await self.reloaded()
            self._prepared = statements


@pytest.fixture(scope="session")
def postgrest(postgres_servers: PostgresServers) -> Iterator[PostgRest]:
    """A real server for the length of the session, in front of a database that stays."""
    url = postgres_servers[None].lasting("adopted_http")
    asyncio.run(_make_roles(url))
    server = PostgRest(url)
    try:
        yield server
    finally:
        server.close()


async def _make_roles(url: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(ROLES)
    finally:
        await connection.close()


@contextlib.contextmanager
def on_postgrest(request: pytest.FixtureRequest, runner: asyncio.Runner) -> Iterator[PostgRestStage]:
    """A database that stays, and that each test finds emptied, behind a server that stays."""
    server: PostgRest = request.getfixturevalue("postgrest")
    servers: PostgresServers = request.getfixturevalue("postgres_servers")
    stage = PostgRestStage("postgrest", servers[None].lasting("adopted_http"), server)
    runner.run(stage.begin())
    yield stage
