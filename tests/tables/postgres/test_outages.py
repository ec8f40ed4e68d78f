"""The server restarts or crashes in the middle, a pooler stands between, answers get lost: nothing else is."""

import asyncio
import signal
from collections import Counter
from collections.abc import Iterator

import pytest

from everpoll import Everpoll
from everpoll.errors import StoreUnavailable
from everpoll.stores.contract import Ended
from everpoll.tables import Row, Table
from everpoll.tables.outages import Outages
from everpoll.tables.postgres import PostgresTable
from everpoll.tables.postgres.claiming import SECOND_CHECK_S, Doubts
from everpoll.tables.urls import source_for
from servers.postgres import FAST, Cluster, cluster
from stores.postgres.pooler import Pooler
from stores.postgres.proxy import Proxy
from tables.postgres_stage import PostgresStage
from tables.stages import Claimer, keys

ROWS = 300


@pytest.fixture(scope="module")
def own_server(major: int) -> Iterator[Cluster]:
    """One that may be stopped; what it has committed stays."""
    with cluster(major, settings={**FAST, "synchronous_commit": "on"}) as server:
        yield server


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT], ids=["restart", "crash"])
async def test_a_server_that_goes_and_comes_back_loses_and_repeats_nothing(
    own_server: Cluster, how: signal.Signals
) -> None:
    """Health shows the errors, then that it is over; every row is done once, at no attempt's cost."""
    stage = PostgresStage("postgres", own_server.url())
    await stage.begin()
    await stage.create()
    await stage.execute(f"insert into jobs (id, status) select n, 'queued' from generate_series(1, {ROWS}) n")  # noqa: S608
    runs: Counter[int] = Counter()

    async def handle(row: Row) -> dict[str, object]:
        await asyncio.sleep(0.005)
        runs[row.id] += 1
        return {"report": {"id": row.id}}

    async with stage.working(handle, slots=4) as working, stage.working(handle, slots=4) as other:
        await stage.until(lambda rows: sum(row["status"] == "completed" for row in rows) > 20)
        await asyncio.to_thread(own_server.stop, how)
        async with asyncio.timeout(20):
            while not working.app.health().tables["jobs"].consecutive_errors:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        troubled = working.app.health().tables["jobs"]
        assert troubled.last_error is not None
        assert "StoreUnavailable" in troubled.last_error
        await asyncio.to_thread(own_server.start)
        rows = await stage.until_all("completed")
        async with asyncio.timeout(20):
            while any(one.app.health().tables["jobs"].consecutive_errors for one in (working, other)):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert working.app.health().healthy
    assert runs == Counter(range(1, ROWS + 1))
    assert {(row["retry_count"], row["report"]["id"] == row["id"]) for row in rows} == {(0, True)}
    await stage.close()


async def until_claimed(stage: PostgresStage) -> None:
    """By the server, which only the server knows."""
    await stage.until(lambda rows: all(row["status"] == "running" for row in rows))


async def test_a_claim_whose_answer_got_lost_is_given_back_by_the_next_look(postgres_stage: PostgresStage) -> None:
    """At no attempt's cost, and rows in progress are left alone; without a heartbeat column only it does this."""
    await postgres_stage.create()
    mapping = postgres_stage.mapping(heartbeat=None)
    async with Proxy(postgres_stage.url) as proxy:
        source = source_for(proxy.url, mapping)
        await source.open()
        worker = Claimer(source, "anna")
        await worker.sign_on()
        await postgres_stage.queue(1)
        in_hand = await worker.take_one()
        await postgres_stage.queue(2, 3)
        proxy.hold_answers()
        looking = asyncio.get_running_loop().create_task(worker.take())
        await until_claimed(postgres_stage)
        proxy.cut()
        proxy.let_through()
        with pytest.raises(StoreUnavailable):
            await looking
        leases = await worker.take()
        assert [(one.row_key, one.attempt) for one in leases] == [(2, 1), (3, 1)]
        assert await worker.end(in_hand, *leases) == set()
        worker.close()
        await source.close()


async def test_a_worker_that_signs_off_gives_back_what_it_never_heard_of(postgres_stage: PostgresStage) -> None:
    await postgres_stage.create()
    async with Proxy(postgres_stage.url) as proxy:
        source = source_for(proxy.url, postgres_stage.mapping())
        await source.open()
        worker = Claimer(source, "anna")
        await worker.sign_on()
        await worker.take()
        await postgres_stage.queue(1, 2)
        proxy.hold_answers()
        looking = asyncio.get_running_loop().create_task(worker.take())
        await until_claimed(postgres_stage)
        looking.cancel()
        await asyncio.wait([looking])
        proxy.let_through()
        await source.sign_off(worker.incarnation)
        assert await postgres_stage.statuses() == {1: "queued", 2: "queued"}
        worker.close()
        await source.close()


async def test_who_shares_its_name_takes_nothing_from_the_other(
    postgres_stage: PostgresStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`WORKER_ID` may have been given to two processes: then what stands there as ours may be the other's."""
    monkeypatch.setenv("WORKER_ID", "local")
    await postgres_stage.create()
    await postgres_stage.queue(1)
    async with postgres_stage.claimer(label="local") as one, postgres_stage.claimer(label="local") as two:
        lease = await one.take_one()
        await two.take()
        assert isinstance(two.source, PostgresTable)
        two.source._doubts.begin()
        assert keys(await two.take()) == []
        await two.source.sign_off(two.incarnation)
        assert await one.end(lease) == set()


def test_a_doubt_is_settled_twice() -> None:
    """A statement may overtake another that lies unread in a dead connection."""
    now = [0.0]
    doubts = Doubts(lambda: now[0])
    doubts.is_id_unique = True
    doubts.connected()
    assert not doubts.are_due()
    doubts.begin()
    assert doubts.are_due()
    doubts.settled()
    assert (doubts.are_due(), doubts.are_left) == (False, True)
    now[0] = SECOND_CHECK_S
    assert doubts.are_due()
    doubts.settled()
    assert not doubts.are_left
    doubts.connected()
    assert doubts.are_due()


async def test_a_settlement_whose_answer_got_lost_is_recognised(postgres_stage: PostgresStage) -> None:
    """The engine tries again, hears that nothing was ours any more, and asks whether that was us."""
    await postgres_stage.create()
    await postgres_stage.queue(1, 2, 3)
    async with Proxy(postgres_stage.url) as proxy:
        source = source_for(proxy.url, postgres_stage.mapping())
        await source.open()
        worker = Claimer(source, "anna")
        await worker.sign_on()
        first, *others = await worker.take()
        await worker.end(first)
        ended = [Ended(lease.id, 1) for lease in others]
        proxy.hold_answers()
        settling = asyncio.get_running_loop().create_task(worker.settle(*ended))
        await postgres_stage.until_all("completed")
        proxy.cut()
        proxy.let_through()
        with pytest.raises(StoreUnavailable):
            await settling
        lost = await worker.settle(*ended)
        assert lost == {one.id for one in ended}
        assert await source.settled_before(worker.incarnation, ended) == lost
        worker.close()
        await source.close()


@pytest.mark.parametrize("guard", ["skip_locked", "version"])
async def test_behind_a_transaction_pooler_it_works_by_polling(postgres_stage: PostgresStage, guard: str) -> None:
    """No session state anywhere: every transaction meets another server connection."""
    await postgres_stage.create()
    mapping = postgres_stage.mapping(guard=guard)
    async with Pooler(postgres_stage.url) as pooler:
        through = PostgresStage("pooled", f"{pooler.url}?statement_cache=0")
        attempts: Counter[int] = Counter()

        async def handle(row: Row) -> dict[str, object]:
            attempts[row.id] += 1
            if row.attempt == 1 and row.id % 5 == 0:
                raise ValueError("once")
            return {"report": [row.id]}

        await postgres_stage.queue(*range(1, 41))
        async with through.working(handle, mapping):
            await postgres_stage.change(5, due_at=None)
            await postgres_stage.until(lambda rows: sum(row["status"] == "completed" for row in rows) == 32)
            await postgres_stage.execute("update jobs set due_at = null where status = 'queued'")
            await postgres_stage.until_all("completed")
        assert pooler.switches > 10
    assert set(attempts.values()) == {1, 2}


async def test_a_restarted_worker_finds_the_table_it_left(postgres_stage: PostgresStage) -> None:
    """Opened, closed and opened again, on one event loop after another."""
    await postgres_stage.create()
    source = postgres_stage.source(Table("jobs"))
    for key in range(3):
        await postgres_stage.queue(key)
        await source.open()
        worker = Claimer(source, f"worker-{key}")
        await worker.sign_on()
        assert await worker.end(*await worker.take()) == set()
        worker.close()
        await source.close()
    assert set((await postgres_stage.statuses()).values()) == {"completed"}


async def test_a_worker_that_was_cut_off_itself_takes_nothing_from_others_for_one_beat(
    postgres_stage: PostgresStage,
) -> None:
    """Neither a new connection of the heartbeat nor a new thread makes it forget for how long it was away."""
    await postgres_stage.create()
    await postgres_stage.queue(1)
    async with postgres_stage.claimer(label="silent") as silent, postgres_stage.claimer(label="alive") as alive:
        await silent.take()
        await postgres_stage.age(400, "last_heartbeat")
        now = [0.0]
        assert isinstance(alive.source, PostgresTable)
        alive.source._outages = Outages(postgres_stage.mapping(), lambda: now[0], lambda: now[0])
        await alive.sign_on()
        alive.source._outages.heard()
        now[0] += 271
        assert (await alive.beat()).rescued == 0
        now[0] += 29  # a second beat that comes too soon, because a wake-up hurried it
        assert (await alive.beat()).rescued == 0
        now[0] += 1
        assert (await alive.beat()).rescued == 1


async def test_what_is_lost_is_told_by_its_own_key(
    postgres_stage: PostgresStage, caplog: pytest.LogCaptureFixture
) -> None:
    began, go_on = asyncio.Event(), asyncio.Event()

    async def handle(row: Row) -> None:
        began.set()
        await go_on.wait()

    await postgres_stage.create()
    await postgres_stage.queue(4711)
    async with postgres_stage.working(handle) as working:
        await began.wait()
        await postgres_stage.change(4711, status="canceled")
        go_on.set()
        await postgres_stage.until(lambda _: working.app.health().tables["jobs"].lease_success_rate == 0.0)
    assert any("table jobs: row 4711 was not ours any more" in record.getMessage() for record in caplog.records)


def test_an_app_whose_event_loop_ended_without_a_word_works_on_the_next(postgres_stage: PostgresStage) -> None:
    """As in a shell: `asyncio.run` once, and again. What was left behind there does not count as working here."""
    app = Everpoll("memory://")
    runs: list[int] = []

    async def handle(row: Row) -> None:
        runs.append(row.id)

    adopted = postgres_stage.adopt(app, postgres_stage.mapping())
    adopted.handler(handle)

    async def played(key: int) -> None:
        stage = PostgresStage("user", postgres_stage.url)
        if key == 1:
            await stage.create()
        await stage.queue(key)
        await adopted.start()
        await stage.until_all("completed")
        left_behind = adopted._worker
        await adopted.stop(grace=0)
        adopted._worker = left_behind
        await stage.close()

    asyncio.run(played(1))
    asyncio.run(played(2))
    assert runs == [1, 2]
