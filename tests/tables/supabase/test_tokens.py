"""A token that expires stops no worker for good, and no key is ever shown."""

import asyncio
import logging
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from aiohttp import web

from everpoll import Everpoll
from everpoll.errors import BadInput, StoreUnavailable
from everpoll.tables import Row
from everpoll.tables.supabase import SupabaseTable
from servers.postgrest import token
from servers.supabase import Gateway
from tables.postgrest_stage import PostgRestStage
from tables.stages import Claimer

OTHER_SECRET = "another secret, which the server does not have, of the same length"  # noqa: S105 - a test's own


class Issuer:
    """A provider of fresh tokens that counts how often it was asked."""

    def __init__(self, *tokens: str) -> None:
        self._tokens = iter(tokens)
        self.asked = 0

    def __call__(self) -> str:
        self.asked += 1
        return next(self._tokens)


def expired() -> str:
    """A minute ago: PostgREST allows for half a minute."""
    return token(lives_s=-60.0)


async def claimer(stage: PostgRestStage, key: Any, url: str | None = None) -> Claimer:
    source = SupabaseTable(url or stage.url, stage.mapping(guard="status"), key)
    await source.open()
    worker = Claimer(source, "worker-1")
    await worker.sign_on()
    return worker


def key_of(worker: Claimer) -> Any:
    assert isinstance(worker.source, SupabaseTable)
    return worker.source._link.key


async def test_a_fresh_token_is_asked_for_when_the_old_one_has_expired(postgrest_stage: PostgRestStage) -> None:
    """In the middle of everything: a claim, a heartbeat and a settlement each go on with it."""
    stage = postgrest_stage
    await stage.create()
    await stage.queue(1, 2)
    issuer = Issuer(token(lives_s=600, n=1), token(lives_s=600, n=2), token(lives_s=600, n=3), token(n=4))
    worker = await claimer(stage, issuer)
    try:
        key = key_of(worker)
        assert issuer.asked == 1
        key._now = expired()
        lease = await worker.take_one()
        assert issuer.asked == 2
        key._now = expired()
        assert (await worker.beat(lease)).canceled == ()
        assert issuer.asked == 3
        key._now = expired()
        assert await worker.end(lease) == set()
        assert issuer.asked == 4
    finally:
        worker.close()
        await worker.source.close()


async def test_the_function_may_be_a_coroutine_of_the_apps_own_event_loop(postgrest_stage: PostgRestStage) -> None:
    """The heartbeat needs one, too, from its own thread; the user's client belongs to the app's event loop."""
    stage = postgrest_stage
    await stage.create()
    await stage.queue(1)
    loops = []

    async def issue() -> str:
        loops.append(asyncio.get_running_loop())
        return token(n=len(loops))

    worker = await claimer(stage, issue)
    try:
        lease = await worker.take_one()
        key_of(worker)._now = expired()
        await worker.beat(lease)
        assert loops == [asyncio.get_running_loop()] * 2
    finally:
        worker.close()
        await worker.source.close()


async def test_a_text_that_expires_is_told_and_polling_goes_on(
    postgrest_stage: PostgRestStage, caplog: pytest.LogCaptureFixture
) -> None:
    """Unhealthy while it lasts; a row that waits is run as soon as the server accepts the key again."""
    stage = postgrest_stage
    await stage.create()
    seen: list[int] = []

    async def run(row: Row) -> None:
        seen.append(row.id)

    is_expired = False

    def refuses(_: web.Request) -> web.Response | None:
        said = {"code": "PGRST301", "details": None, "hint": None, "message": "JWT expired"}
        return web.json_response(said, status=401) if is_expired else None

    async with Gateway(stage.url) as gateway:
        gateway.fault = refuses
        app = Everpoll("memory://")
        stage.url = gateway.url
        stage.adopt(app, stage.mapping(guard="status")).handler(run)
        async with app:
            is_expired = True
            await stage.queue(1)
            with caplog.at_level(logging.WARNING):
                await until(lambda: "the token has expired or is not accepted" in caplog.text)
            health = app.health().tables["jobs"]
            assert health.consecutive_errors > 0
            assert "token" in str(health.last_error)
            is_expired = False
            await until(lambda: seen == [1])
            await stage.until_all("completed")
            assert app.health().tables["jobs"].consecutive_errors == 0


async def test_a_real_expired_token_is_a_transient_error(postgrest_stage: PostgRestStage) -> None:
    await postgrest_stage.create()
    for key, words in [(expired(), "JWT expired"), (token(secret=OTHER_SECRET), "JWSError")]:
        source = SupabaseTable(postgrest_stage.url, postgrest_stage.mapping(guard="status"), key)
        with pytest.raises(StoreUnavailable, match=f"expired or is not accepted: .*{words}"):
            await source.open()
        await source.close()


async def test_a_fresh_token_that_is_refused_as_well_is_not_asked_for_again_and_again(
    postgrest_stage: PostgRestStage,
) -> None:
    await postgrest_stage.create()
    issuer = Issuer(*(token(lives_s=-60.0, n=number) for number in range(9)))
    source = SupabaseTable(postgrest_stage.url, postgrest_stage.mapping(guard="status"), issuer)
    with pytest.raises(StoreUnavailable, match="expired"):
        await source.open()
    assert issuer.asked == 2
    await source.close()


@pytest.mark.parametrize("key", [lambda: 1 / 0, lambda: None, lambda: "", lambda: "two\nlines"])
async def test_a_function_that_fails_is_a_transient_error(postgrest_stage: PostgRestStage, key: Any) -> None:
    source = SupabaseTable(postgrest_stage.url, postgrest_stage.mapping(guard="status"), key)
    with pytest.raises(StoreUnavailable, match="the function that knows the token failed: "):
        await source.open()
    await source.close()


def test_without_a_key_nothing_begins(postgrest_stage: PostgRestStage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SUPABASE_SERVICE_KEY", raising=False)
    with pytest.raises(BadInput, match=r"\$SUPABASE_SERVICE_KEY"):
        SupabaseTable(postgrest_stage.url, postgrest_stage.mapping())


async def test_the_key_of_the_environment_serves(
    postgrest_stage: PostgRestStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUPABASE_SERVICE_KEY", token())
    await postgrest_stage.create()
    source = SupabaseTable(postgrest_stage.url, postgrest_stage.mapping(guard="status"))
    await source.open()
    await source.close()


@pytest.fixture
def everything_logged(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """Of every library, at every level."""
    with caplog.at_level(logging.DEBUG):
        yield caplog


async def test_no_key_is_ever_shown(
    postgrest_stage: PostgRestStage, everything_logged: pytest.LogCaptureFixture
) -> None:
    """Neither in logs, of us or of any library, nor in errors with their tracebacks, nor in a repr."""
    stage = postgrest_stage
    await stage.create()
    await stage.queue(1)
    key = token()
    shown: list[str] = []

    async def run(row: Row) -> None:
        """It is enough that it runs."""

    async with Gateway(stage.url) as gateway:
        gateway.realtime.refuses = "handshake"
        # A server that repeats what it was sent must not make us repeat it.
        faults = iter([web.Response(status=500, text=f"unknown: {key}?"), web.Response(status=418, text=key)])
        app = Everpoll("memory://")
        adopted = app.table(stage.mapping(guard="status"), url=gateway.url, token=key)
        adopted.handler(run)
        async with app:
            await stage.until_all("completed")
            gateway.realtime.refuses = None
        shown += [repr(adopted.source), str(vars(adopted.source)), repr(adopted)]
        gateway.fault = lambda _: next(faults, None)
        for _ in range(2):
            try:
                await SupabaseTable(gateway.url, stage.mapping(), key).open()
            except Exception as error:  # noqa: BLE001 - any of them
                shown.append("".join(traceback.format_exception(error)))
    everything = "\n".join([everything_logged.text, *shown])
    assert "Realtime: the server answered 403" in everything
    assert "***" in everything
    assert key not in everything
    assert key.rsplit(".", 1)[1] not in everything


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(25):
        while not holds():  # noqa: ASYNC110 - others make it true
            await asyncio.sleep(0.01)
