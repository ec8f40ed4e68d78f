"""Whatever goes wrong on the way is told in words, nothing hangs, nothing is lost, and it goes on."""

import asyncio
import contextlib
import socket
import time
from collections import Counter
from pathlib import Path

import asyncpg
import pytest
from aiohttp import web

from everpoll.drivers.postgrest import http
from everpoll.errors import BadInput, EverpollError, StoreUnavailable, TableUnfit
from everpoll.stores.contract import Ended, encode
from everpoll.tables import Row
from everpoll.tables.supabase import SupabaseTable
from servers.postgres import cluster
from servers.postgrest import ROLES, PostgRest, token
from servers.supabase import Gateway
from tables.fleet import TableFleet
from tables.postgrest_stage import PostgRestStage
from tables.stages import Claimer, keys

STATUS = {"guard": "status"}


def problem(status: int, code: str = "", message: str = "no", **headers: str) -> web.Response:
    return web.json_response({"code": code, "message": message, "details": None}, status=status, headers=headers)


async def opened_error(url: str, stage: PostgRestStage) -> EverpollError:
    source = SupabaseTable(url, stage.mapping(**STATUS), token())
    try:
        with pytest.raises(EverpollError) as caught:
            await source.open()
    finally:
        await source.close()
    return caught.value


async def test_an_address_where_no_server_listens(postgrest_stage: PostgRestStage) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        error = await opened_error(url, postgrest_stage)
    assert isinstance(error, StoreUnavailable)
    assert "cannot connect to PostgREST" in str(error)


async def test_a_name_that_does_not_exist(postgrest_stage: PostgRestStage) -> None:
    error = await opened_error("http://no-such-host.invalid", postgrest_stage)
    assert isinstance(error, StoreUnavailable)
    assert "no-such-host.invalid" in str(error)


async def test_a_server_that_speaks_no_tls(postgrest_stage: PostgRestStage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "TIMEOUT_S", 1.0)
    error = await opened_error(postgrest_stage.url.replace("http:", "https:"), postgrest_stage)
    assert isinstance(error, StoreUnavailable)


async def test_a_server_that_never_answers(postgrest_stage: PostgRestStage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "TIMEOUT_S", 0.3)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        error = await opened_error(f"http://127.0.0.1:{silent.getsockname()[1]}", postgrest_stage)
    assert isinstance(error, StoreUnavailable)
    assert "did not answer within 0.3 s" in str(error)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (problem(503, "PGRST001", "no connection"), "503 PGRST001: no connection"),
        (problem(503, "PGRST002"), "PGRST002"),
        (problem(504, "PGRST003", "timed out acquiring connection"), "timed out acquiring"),
        (problem(409, "40001", "could not serialize access"), "could not serialize"),
        (problem(500, "57P01", "terminating connection due to administrator command"), "terminating connection"),
        (problem(400, "55P03", "lock not available"), "55P03"),
        (problem(400, message=""), "400: no reason given"),
        (web.Response(status=502, text="<html>Bad Gateway"), "502: <html>Bad Gateway"),
        (web.Response(status=521), "521"),
        (web.Response(status=200, text="<html>please log in"), "not JSON: is this PostgREST"),
        (web.Response(status=200, text='{"hello": 1}'), "something else than rows"),
        (web.Response(status=302, headers={"Location": "http://127.0.0.1:9/"}), "redirect, which is not followed"),
    ],
)
async def test_transient_answers(
    postgrest_stage: PostgRestStage, gateway: Gateway, answer: web.Response, words: str
) -> None:
    gateway.fault = lambda _: answer
    error = await opened_error(gateway.url, postgrest_stage)
    assert isinstance(error, StoreUnavailable)
    assert words in str(error)
    assert len(gateway.asked) == 1


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (problem(404, "PGRST205", "Could not find the table"), "there is no such table, or not served"),
        (problem(406, "PGRST106", "The schema must be one of: public"), "The schema must be"),
        (problem(403, "42501", "permission denied for table jobs"), "permission denied"),
    ],
)
async def test_lasting_answers(
    postgrest_stage: PostgRestStage, gateway: Gateway, answer: web.Response, words: str
) -> None:
    gateway.fault = lambda _: answer
    error = await opened_error(gateway.url, postgrest_stage)
    assert isinstance(error, TableUnfit)
    assert words in str(error)


async def test_a_key_that_may_read_and_not_write_is_found_out_at_the_start(postgrest_stage: PostgRestStage) -> None:
    await postgrest_stage.create()
    await postgrest_stage.execute("grant select on jobs to authenticated")
    source = SupabaseTable(postgrest_stage.url, postgrest_stage.mapping(**STATUS), token("authenticated"))
    with pytest.raises(TableUnfit, match=r"the key may not change the table: .*permission denied"):
        await source.open()
    await source.close()


async def test_no_row_is_no_error(postgrest_stage: PostgRestStage, gateway: Gateway) -> None:
    """PGRST116, the answer to a request for exactly one row: another worker was quicker."""
    await postgrest_stage.create()
    await postgrest_stage.queue(1)
    async with postgrest_stage.claimer(postgrest_stage.mapping(**STATUS)) as worker:
        reported = "JSON object requested, multiple (or no) rows returned"
        gateway.fault = lambda request: problem(406, "PGRST116", reported) if request.method == "PATCH" else None
        look = await worker.look()
        assert (look.leases, look.missed, look.next_due_s) == ([], 3, 0.0)
        gateway.fault = None
        assert keys(await worker.take()) == [1]


async def test_retry_after_is_kept(postgrest_stage: PostgRestStage, gateway: Gateway) -> None:
    """Until then nothing is sent at all, by whichever thread; calling earlier gets a client banned."""
    await postgrest_stage.create()
    async with postgrest_stage.claimer(postgrest_stage.mapping(**STATUS)) as worker:
        gateway.fault = lambda _: problem(429, message="slow down", **{"Retry-After": "120"})
        with pytest.raises(StoreUnavailable, match="slow down"):
            await worker.take()
        asked = len(gateway.asked)
        with pytest.raises(StoreUnavailable, match="left alone for another"):
            await worker.take()
        with pytest.raises(StoreUnavailable, match="left alone for another"):
            await worker.beat()
        assert len(gateway.asked) == asked
        gateway.fault = None
        link_of(worker).not_before = time.monotonic()
        assert await worker.take() == []


def link_of(worker: Claimer) -> http.Link:
    assert isinstance(worker.source, SupabaseTable)
    return worker.source._link


@pytest.mark.parametrize("how", ["loses_answers", "breaks_answers"])
@pytest.mark.parametrize("guard", ["skip_locked", "status", "version", "timestamp"])
async def test_rows_of_a_claim_whose_answer_got_lost_are_found_again(
    postgrest_stage: PostgRestStage, gateway: Gateway, guard: str, how: str
) -> None:
    """The table says that this worker has them; without this no worker would run them until they are stale, or ever."""
    await postgrest_stage.create()
    await postgrest_stage.execute("alter table jobs alter started_at type timestamptz(3)")
    await postgrest_stage.queue(1, 2, 3)
    async with postgrest_stage.claimer(postgrest_stage.mapping(guard=guard)) as worker:
        setattr(gateway, how, lambda request: request.method in {"PATCH", "POST"})
        with pytest.raises(StoreUnavailable):
            await worker.take(3)
        assert set((await postgrest_stage.statuses()).values()) == {"running"}
        setattr(gateway, how, lambda _: False)
        first = await worker.take(2)
        rest = await worker.take(2)
        assert sorted(keys([*first, *rest])) == [1, 2, 3]
        assert await worker.take(2) == []
        assert await worker.end(*first, *rest) == set()


@pytest.mark.parametrize("guard", ["skip_locked", "status"])
async def test_a_claim_that_is_canceled_is_put_back_at_the_end(
    postgrest_stage: PostgRestStage, gateway: Gateway, guard: str
) -> None:
    """The database has claimed the row, and its poller has gone before it heard of it."""
    await postgrest_stage.create()
    await postgrest_stage.queue(1)
    async with postgrest_stage.claimer(postgrest_stage.mapping(guard=guard)) as worker:
        gateway.holds_answers = lambda request: request.method != "GET"
        await cancel(worker, gateway)
        assert await postgrest_stage.statuses() == {1: "running"}
        gateway.holds_answers = lambda _: False
        await worker.source.sign_off(worker.incarnation)
    assert await postgrest_stage.statuses() == {1: "queued"}


async def test_a_claim_that_is_canceled_with_rows_in_its_hands_is_put_back_at_the_end(
    postgrest_stage: PostgRestStage, gateway: Gateway
) -> None:
    """It has found rows of a lost answer again, and is canceled while it looks for more."""
    await postgrest_stage.create()
    await postgrest_stage.queue(1)
    async with postgrest_stage.claimer(postgrest_stage.mapping(**STATUS)) as worker:
        gateway.loses_answers = lambda request: request.method == "PATCH"
        with pytest.raises(StoreUnavailable):
            await worker.take(1)
        gateway.loses_answers = lambda _: False
        gateway.holds_answers = lambda request: request.query["status"] == "eq.queued"
        await cancel(worker, gateway)
        gateway.holds_answers = lambda _: False
        [lease] = await worker.take(1)
        assert await worker.hand_back(lease) == set()
        gateway.loses_answers = lambda request: request.method == "PATCH"
        with pytest.raises(StoreUnavailable):
            await worker.take(1)
        gateway.loses_answers = lambda _: False
        await worker.source.sign_off(worker.incarnation)
    assert await postgrest_stage.statuses() == {1: "queued"}


async def cancel(worker: Claimer, gateway: Gateway) -> None:
    """Once its request has been carried out."""
    gateway.held.clear()
    claiming = asyncio.ensure_future(worker.take(5))
    async with asyncio.timeout(25):
        await gateway.held.wait()
    claiming.cancel()
    with pytest.raises(asyncio.CancelledError):
        await claiming


async def test_what_a_stopping_worker_may_have_claimed_is_put_back(
    postgrest_stage: PostgRestStage, gateway: Gateway
) -> None:
    await postgrest_stage.create()
    await postgrest_stage.queue(1)
    async with postgrest_stage.claimer(postgrest_stage.mapping(**STATUS)) as worker:
        gateway.loses_answers = lambda request: request.method == "PATCH"
        with pytest.raises(StoreUnavailable):
            await worker.take(1)
        gateway.loses_answers = lambda _: False
        await worker.source.sign_off(worker.incarnation)
    assert await postgrest_stage.statuses() == {1: "queued"}


async def test_a_settlement_whose_answer_got_lost_is_not_called_lost(
    postgrest_stage: PostgRestStage, gateway: Gateway
) -> None:
    await postgrest_stage.create()
    await postgrest_stage.queue(1, 2)
    async with postgrest_stage.claimer(postgrest_stage.mapping(**STATUS)) as worker:
        done, back = await worker.take()
        settle = [worker.end(done), worker.hand_back(back)]
        gateway.loses_answers = lambda request: request.method == "PATCH"
        for one in settle:
            with pytest.raises(StoreUnavailable):
                await one
        gateway.loses_answers = lambda _: False
        assert await worker.end(done) == {done.id}
        assert await worker.hand_back(back) == {back.id}
    assert await postgrest_stage.statuses() == {1: "completed", 2: "queued"}


async def test_of_a_batch_that_breaks_off_what_was_settled_is_not_repeated(
    postgrest_stage: PostgRestStage, gateway: Gateway
) -> None:
    """Two ends that differ are two requests; one of them fails, both are settled once the batch is tried again."""
    await postgrest_stage.create()
    await postgrest_stage.queue(1, 2)
    broken = {"2"}

    def breaks(request: web.Request) -> web.Response | None:
        key = request.query.get("id", "").removeprefix("eq.")
        return problem(503, "PGRST001") if request.method == "PATCH" and key in broken else None

    async with postgrest_stage.claimer(postgrest_stage.mapping(**STATUS)) as worker:
        one, two = await worker.take()
        await worker.beat(one, two)
        gateway.fault = breaks
        batch = [Ended(lease.id, lease.sequence, "done", encode({"report": lease.id})) for lease in (one, two)]
        with pytest.raises(StoreUnavailable):
            await worker.settle(*batch)
        assert await postgrest_stage.statuses() == {1: "completed", 2: "running"}
        broken.clear()
        assert await worker.settle(*batch) == set()
        assert await postgrest_stage.statuses() == {1: "completed", 2: "completed"}


async def test_an_answer_that_is_too_large_is_asked_for_in_parts(
    postgrest_stage: PostgRestStage, gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    await postgrest_stage.create()
    await postgrest_stage.queue(*range(8), payload="x" * 10_000)
    async with postgrest_stage.claimer(postgrest_stage.mapping(**STATUS)) as worker:
        monkeypatch.setattr(http, "ANSWER_LIMIT", 50_000)
        found: list[int] = []
        for _ in range(20):
            with contextlib.suppress(StoreUnavailable):
                found += keys(await worker.take(8))
        assert sorted(found) == list(range(8))


async def test_a_value_that_the_table_cannot_keep_is_the_rows_own_failure(postgrest_stage: PostgRestStage) -> None:
    await postgrest_stage.create()
    await postgrest_stage.execute("alter table jobs add constraint small check (report::text not like '%big%')")
    await postgrest_stage.queue(1)

    async def run(row: Row) -> dict[str, str]:
        return {"report": "big"}

    async with postgrest_stage.working(run, postgrest_stage.mapping(**STATUS)):
        [row] = await postgrest_stage.until_all("failed")
    assert "its result cannot be stored" in row["error"]
    assert "violates check constraint" in row["error"]


async def test_postgrest_and_postgres_restart_in_the_middle(tmp_path: Path) -> None:
    """Both, one after the other, under a fleet of two: every row ends once, and the workers live."""
    with cluster() as postgres:
        await make_roles(postgres.url())
        server = PostgRest(postgres.url())
        stage = PostgRestStage("postgrest", postgres.url(), server)
        try:
            await stage.begin()
            await stage.create()
            gate = tmp_path / "gate"
            count = 40
            with TableFleet(stage, tmp_path, guard="status", heartbeat_every="1s", stale_after="30s") as fleet:
                await fleet.start(2)
                await stage.queue(*range(8), payload=str(gate))
                await fleet.until_begun(8)
                server.stop()
                gate.touch()
                await fleet.until(
                    lambda: sum(one.said("cannot settle") for one in fleet.workers.values()) > 0, "it broke"
                )
                server.start()
                await stage.until_all("completed")
                await stage.queue(*range(8, count))
                postgres.restart()
                await until_all(stage, "completed")
                assert Counter(one["key"] for one in fleet.effects("ended")) == Counter(map(str, range(count)))
                assert all(one.is_running for one in fleet.workers.values())
        finally:
            await stage.close()
            server.close()


@pytest.mark.parametrize("guard", ["skip_locked", "status", "version", "timestamp"])
async def test_a_server_that_answers_with_few_rows_at_a_time_hides_none(
    postgrest_stage: PostgRestStage, guard: str, caplog: pytest.LogCaptureFixture
) -> None:
    """`db-max-rows` cuts what is read; what is claimed or settled must not be cut."""
    stage = postgrest_stage
    await stage.create()
    await stage.queue(*range(20))
    seen: list[int] = []

    async def run(row: Row) -> dict[str, int]:
        seen.append(row.id)
        return {"report": 1}

    mapping = stage.mapping(guard=guard)
    await stage.prepare(mapping)
    few = PostgRest(stage.database_url, PGRST_DB_MAX_ROWS="2")
    stage.url = few.url
    try:
        async with stage.working(run, mapping, slots=10):
            await stage.until_all("completed")
    finally:
        few.close()
    assert sorted(seen) == list(range(20))
    assert "lost" not in caplog.text


async def make_roles(url: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(ROLES)
    finally:
        await connection.close()


async def until_all(stage: PostgRestStage, *statuses: str) -> None:
    """Over a restart of the database that we look at ourselves."""
    async with asyncio.timeout(60):
        while True:
            with contextlib.suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
                if all(row["status"] in statuses for row in await stage.rows()):
                    return
            await asyncio.sleep(0.05)


@pytest.mark.parametrize(
    "url",
    [
        "https://user:pass@x.supabase.co",
        "https://x.supabase.co/?apikey=secret",
        "https://x.supabase.co/#secret",
        "https://",
        "https://[::1",
        "https://x.supabase.co:port",
        "https://x y.supabase.co",
        "ftp://x.supabase.co",
    ],
)
def test_addresses_that_cannot_be_used_are_refused_without_quoting_them(
    postgrest_stage: PostgRestStage, url: str
) -> None:
    with pytest.raises(BadInput) as caught:
        SupabaseTable(url, postgrest_stage.mapping(), "key")
    assert "secret" not in str(caught.value)
    assert "pass" not in str(caught.value)
