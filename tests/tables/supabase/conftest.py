"""For tables over HTTPS: a way to the server on which things go wrong."""

import asyncio
from collections.abc import Iterator

import pytest

from servers.supabase import Gateway
from tables.postgrest_stage import PostgRestStage


@pytest.fixture
def gateway(postgrest_stage: PostgRestStage, runner: asyncio.Runner) -> Iterator[Gateway]:
    """In front of the stage's server; the stage's own address is its address."""

    async def begun() -> Gateway:
        return await Gateway(postgrest_stage.url).__aenter__()

    gateway = runner.run(begun())
    postgrest_stage.url = gateway.url
    try:
        yield gateway
    finally:
        runner.run(gateway.__aexit__())
