"""Push by Realtime, against a stub of its protocol: proven before it is relied on, and re-established."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from everpoll.drivers.postgrest import realtime
from everpoll.drivers.wake import NOW, Wake
from everpoll.policy import Backoff
from everpoll.tables import Row
from everpoll.tables.supabase import SupabaseTable, push
from servers.postgrest import token
from servers.supabase import Gateway
from tables.postgrest_stage import PostgRestStage

QUICK = Backoff("10ms", factor=1, cap="10ms", jitter=0)


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(push, "RETRY", QUICK)
    monkeypatch.setattr(realtime, "JOIN_S", 2.0)


class Listening:
    """A source that listens, and how often it was woken."""

    def __init__(self, source: SupabaseTable) -> None:
        self.source = source
        self.woken = 0

    def wake(self, wake: Wake) -> None:
        assert wake == NOW
        self.woken += 1

    async def until(self, holds: Callable[["Listening"], bool]) -> None:
        async with asyncio.timeout(25):
            while not holds(self):  # noqa: ASYNC110 - the stub makes it true
                await asyncio.sleep(0.005)


@asynccontextmanager
async def listening(stage: PostgRestStage, url: str | None = None) -> AsyncIterator[Listening]:
    source = SupabaseTable(url or stage.url, stage.mapping(guard="status"), token())
    listener = Listening(source)
    await source.listen(listener.wake)
    try:
        yield listener
    finally:
        await source.unlisten(listener.wake)
        await source.close()
        assert not source.has_push


async def test_a_join_asks_for_inserts_and_changes_of_rows_that_wait(
    postgrest_stage: PostgRestStage, gateway: Gateway
) -> None:
    async with listening(postgrest_stage) as listener:
        assert listener.source.has_push
        [join] = gateway.realtime.joins
        wanted = {"schema": "public", "table": "jobs", "filter": "status=eq.queued"}
        assert join["config"]["postgres_changes"] == [{"event": one, **wanted} for one in ("INSERT", "UPDATE")]
        assert join["access_token"] == gateway.realtime.keys[0] == postgrest_stage.token


async def test_a_change_wakes(postgrest_stage: PostgRestStage, gateway: Gateway) -> None:
    async with listening(postgrest_stage) as listener:
        before = listener.woken
        await gateway.realtime.insert()
        await listener.until(lambda listener: listener.woken > before)


async def test_push_is_believed_only_when_the_subscription_is_confirmed(
    postgrest_stage: PostgRestStage, gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A join that is answered is not enough: the database may not tell of this table at all."""
    monkeypatch.setattr(realtime, "JOIN_S", 0.2)
    gateway.realtime.confirms = False
    async with listening(postgrest_stage) as listener:
        assert len(gateway.realtime.joins) >= 1
        assert not listener.source.has_push
        gateway.realtime.confirms = True
        await listener.until(lambda listener: listener.source.has_push)


async def test_a_broken_connection_is_made_anew_and_wakes_at_once(
    postgrest_stage: PostgRestStage, gateway: Gateway
) -> None:
    """What was inserted meanwhile woke no worker; the look after it finds it."""
    async with listening(postgrest_stage) as listener:
        for number in (2, 3):
            before = listener.woken
            await gateway.realtime.drop()
            await listener.until(lambda listener, number=number: len(gateway.realtime.joins) >= number)  # type: ignore[misc]
            await listener.until(lambda listener, before=before: listener.source.has_push and listener.woken > before)  # type: ignore[misc]


async def test_a_subscription_that_the_server_ends_is_made_anew(
    postgrest_stage: PostgRestStage, gateway: Gateway
) -> None:
    async with listening(postgrest_stage) as listener:
        await gateway.realtime.close_channels()
        await listener.until(lambda listener: len(gateway.realtime.joins) >= 2 and listener.source.has_push)


async def test_a_connection_that_only_looks_alive_is_found_out(
    postgrest_stage: PostgRestStage, gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(realtime, "BEAT_S", 0.05)
    async with listening(postgrest_stage) as listener:
        await listener.until(lambda _: gateway.realtime.beats >= 3)
        assert len(gateway.realtime.joins) == 1
        gateway.realtime.answers_beats = False
        await listener.until(lambda _: len(gateway.realtime.joins) >= 2)


@pytest.mark.parametrize("why", ["Unauthorized", "handshake"])
async def test_where_realtime_refuses_rows_are_polled_for_visibly(
    postgrest_stage: PostgRestStage, gateway: Gateway, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    gateway.realtime.refuses = why
    async with listening(postgrest_stage) as listener:
        assert not listener.source.has_push
        assert "Realtime: " in caplog.text
        assert "polling instead" in caplog.text
        gateway.realtime.refuses = None
        await listener.until(lambda listener: listener.source.has_push)


async def test_a_refused_join_asks_for_a_fresh_token(postgrest_stage: PostgRestStage, gateway: Gateway) -> None:
    tokens = [token(n=number) for number in range(50)]
    issued = iter(tokens)
    gateway.realtime.refuses = "InvalidJWTToken: Token has expired"
    source = SupabaseTable(gateway.url, postgrest_stage.mapping(), lambda: next(issued))
    listener = Listening(source)
    await source.listen(listener.wake)
    try:
        gateway.realtime.refuses = None
        await listener.until(lambda listener: listener.source.has_push)
        used = [join["access_token"] for join in gateway.realtime.joins]
        assert used == tokens[: len(used)]
        assert len(used) > 1
    finally:
        await source.close()


async def test_a_bare_postgrest_has_no_push_and_says_so(
    postgrest_stage: PostgRestStage, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        async with listening(postgrest_stage) as listener:
            assert not listener.source.has_push
    assert "a bare PostgREST server has no push: polling" in caplog.text
    await postgrest_stage.create()
    source = SupabaseTable(postgrest_stage.url, postgrest_stage.mapping(guard="status"), token())
    [push] = [one for one in await source.inspect() if one.what == "push"]
    assert (push.is_fit, push.is_needed) == (False, False)


async def test_an_insert_wakes_a_resting_worker(postgrest_stage: PostgRestStage, gateway: Gateway) -> None:
    """It rests for 30 s beneath a push, so only the push can have woken it."""
    stage = postgrest_stage
    await stage.create()
    seen = asyncio.Event()

    async def run(row: Row) -> None:
        seen.set()

    mapping = stage.mapping(guard="status")
    async with stage.working(run, mapping, poll=None) as at_work:
        health = at_work.adopted.health
        async with asyncio.timeout(25):
            while (now := health()) is None or (now.waiting_s or 0) < 20:  # noqa: ASYNC110 - it begins to rest
                await asyncio.sleep(0.01)
        assert now.push
        await stage.queue(1)
        assert not seen.is_set()
        await gateway.realtime.insert()
        async with asyncio.timeout(10):
            await seen.wait()
        await stage.until_all("completed")


async def test_inspection_tells_whether_push_works(postgrest_stage: PostgRestStage, gateway: Gateway) -> None:
    await postgrest_stage.create()
    source = SupabaseTable(gateway.url, postgrest_stage.mapping(guard="status"), token())
    found = {one.what: one for one in await source.inspect()}
    assert found["push"].is_fit
    assert found["rights"].is_fit
    assert (found["index"].is_fit, found["index"].is_needed) == (False, False)
    assert "create index" in str(found["index"].ddl)
    gateway.realtime.refuses = "table is not in the publication"
    [push] = [one for one in await source.inspect() if one.what == "push"]
    assert not push.is_fit
    assert "not in the publication" in push.detail
