"""Locked, deleted, replaced: each is told as an outage that names the file, and passes when its cause does."""

import asyncio
import shutil
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest

from everpoll.drivers.sqlite import lane
from everpoll.drivers.sqlite.connection import Connection, FileReplaced
from everpoll.errors import NotRunning, StoreUnavailable
from everpoll.stores.contract import Again, Ended, Settlement, encode
from everpoll.tables import AdoptedTable, Row, Table
from everpoll.tables.outages import Outages
from everpoll.tables.row import RowLease
from everpoll.tables.sqlite import SqliteTable
from tables.sqlite_stage import SqliteStage
from tables.stages import GIVE_UP_S, Claimer, keys

IMPATIENT_S = 0.05


@pytest.fixture
def intruder(sqlite_stage: SqliteStage) -> Iterator[sqlite3.Connection]:
    """Another program's connection."""
    with closing(sqlite_stage.connect()) as con:
        yield con


@asynccontextmanager
async def impatient(stage: SqliteStage, mapping: Table | None = None, label: str = "w") -> AsyncIterator[Claimer]:
    """A worker that waits for a lock for a moment only."""
    source = SqliteTable(stage.url, mapping or stage.mapping(), patience_s=IMPATIENT_S)
    await source.open()
    worker = Claimer(source, label)
    try:
        await worker.sign_on()
        yield worker
    finally:
        worker.close()
        await source.close()


async def test_a_lock_held_too_long(sqlite_stage: SqliteStage, intruder: sqlite3.Connection) -> None:
    await sqlite_stage.create()
    await sqlite_stage.queue(1, 2)
    async with impatient(sqlite_stage) as worker:
        lease = await worker.take_one()
        intruder.execute("begin immediate")
        for _ in range(2):
            for refused in (worker.take(), worker.end(lease), worker.beat(lease), worker.sign_on()):
                with pytest.raises(StoreUnavailable, match=f"{sqlite_stage.path}.*another program keeps it locked"):
                    await refused
        intruder.execute("rollback")
        assert (await worker.beat(lease)).canceled == ()
        assert keys(await worker.take()) == [2]
        assert await worker.end(lease) == set()


async def test_a_file_that_is_locked_at_the_start(sqlite_stage: SqliteStage, intruder: sqlite3.Connection) -> None:
    """Before the switch to WAL, a writer keeps out every other process; a worker that starts waits for its end."""
    await sqlite_stage.create()
    source = SqliteTable(sqlite_stage.url, sqlite_stage.mapping(), patience_s=IMPATIENT_S)
    for lock in ("begin immediate", "begin exclusive"):
        intruder.execute(lock)
        with pytest.raises(StoreUnavailable, match="another program keeps it locked"):
            await source.open()
        intruder.execute("rollback")
    await source.open()
    await source.close()


async def test_a_worker_goes_on_when_the_lock_is_gone(
    sqlite_stage: SqliteStage, intruder: sqlite3.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    """What had ended meanwhile is settled then, once; its health says what was wrong, and that it is over."""
    await sqlite_stage.create()
    await sqlite_stage.queue(1)
    runs: list[Any] = []
    may_end, begun = asyncio.Event(), asyncio.Event()

    async def handle(row: Row) -> None:
        runs.append(row.id)
        begun.set()
        await may_end.wait()

    source = SqliteTable(sqlite_stage.url, sqlite_stage.mapping(), patience_s=IMPATIENT_S)
    adopted = AdoptedTable(sqlite_stage.mapping(), source, 4)
    adopted.handler(handle)
    await adopted.start()
    try:
        async with asyncio.timeout(GIVE_UP_S):
            await begun.wait()
            intruder.execute("begin immediate")
            intruder.execute("insert into jobs (id, status) values (2, 'queued')")
            may_end.set()
            while "cannot settle 1 tasks" not in caplog.text:  # noqa: ASYNC110 - the settler makes it true
                await asyncio.sleep(0.005)
            intruder.execute("commit")
            await sqlite_stage.until_all("completed")
        health = adopted.health()
        assert health is not None
        assert health.healthy
    finally:
        await adopted.stop()
    assert runs == [1, 2]


async def test_a_deleted_file(sqlite_stage: SqliteStage) -> None:
    """SQLite would go on writing into a file that no process can open again. And no new one appears in its place."""
    await sqlite_stage.create()
    await sqlite_stage.queue(1)
    async with impatient(sqlite_stage) as worker:
        lease = await worker.take_one()
        assert (await worker.beat(lease)).canceled == ()
        for one in sqlite_stage.path.parent.iterdir():
            one.unlink()
        for _ in range(2):
            for refused in (worker.end(lease), worker.beat(lease)):
                with pytest.raises(StoreUnavailable, match=f"{sqlite_stage.path} was deleted or replaced"):
                    await refused
        with pytest.raises(StoreUnavailable, match="was deleted or replaced"):
            await worker.take()
        assert list(sqlite_stage.path.parent.iterdir()) == []


async def test_a_log_that_was_deleted(sqlite_stage: SqliteStage, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was written before is saved, what could not be is told as an outage, and work goes on."""
    monkeypatch.setattr(lane, "WATCH_S", 600.0)  # an idle lane must not notice it first
    await sqlite_stage.create()
    await sqlite_stage.queue(1, 2)
    async with impatient(sqlite_stage) as worker:
        lease = await worker.take_one()
        assert (await worker.beat(lease)).canceled == ()
        log = sqlite_stage.path.with_name(sqlite_stage.path.name + "-wal")
        log.unlink()
        for refused in (worker.end(lease), worker.beat(lease)):
            with pytest.raises(StoreUnavailable, match=f"{log} was deleted while it was in use"):
                await refused
        # Whether the write that found the file gone was committed before is not known.
        again = Ended(lease.id, lease.sequence)
        assert await worker.settle(again) - await worker.source.settled_before(0, [again]) == set()
        assert keys(await worker.take()) == [2]
    assert (await sqlite_stage.one(1))["status"] == "completed"


async def test_a_file_that_was_moved_and_put_back(sqlite_stage: SqliteStage, tmp_path: Path) -> None:
    await sqlite_stage.create()
    await sqlite_stage.queue(1, 2)
    async with impatient(sqlite_stage) as worker:
        lease = await worker.take_one()
        away = tmp_path / "away"
        _move(sqlite_stage.path.parent, away)
        with pytest.raises(StoreUnavailable, match="put the file back"):
            await worker.beat(lease)
        with pytest.raises(StoreUnavailable, match="put the file back"):
            await worker.end(lease)
        _move(away, sqlite_stage.path.parent)
        # The write that found the file gone had been committed into it.
        again = Ended(lease.id, lease.sequence)
        assert await worker.settle(again) - await worker.source.settled_before(0, [again]) == set()
        assert keys(await worker.take()) == [2]
    assert (await sqlite_stage.one(1))["status"] == "completed"


async def test_a_file_that_was_replaced_by_one_without_the_table(sqlite_stage: SqliteStage, tmp_path: Path) -> None:
    """An outage too: what was to be settled waits for the right file."""
    await sqlite_stage.create()
    await sqlite_stage.queue(1)
    async with impatient(sqlite_stage) as worker:
        lease = await worker.take_one()
        away = tmp_path / "away"
        _move(sqlite_stage.path.parent, away)
        with closing(sqlite3.connect(tmp_path / "other.db")) as con, con:
            con.execute("create table jobs (id integer primary key)")
        shutil.copy(tmp_path / "other.db", sqlite_stage.path)
        with pytest.raises(StoreUnavailable, match="deleted or replaced"):
            await worker.end(lease)
        for _ in range(2):
            with pytest.raises(StoreUnavailable, match="has no table 'jobs' with the columns it had"):
                await worker.end(lease)
        sqlite_stage.path.unlink()
        _move(away, sqlite_stage.path.parent)
        again = Ended(lease.id, lease.sequence)
        assert await worker.settle(again) - await worker.source.settled_before(0, [again]) == set()
    assert (await sqlite_stage.one(1))["status"] == "completed"


def _settlements(lease: RowLease) -> list[Settlement]:
    failed, retry = encode({"what": "failed", "error": "it broke"}), encode({"what": "retry", "error": "it broke"})
    return [
        Ended(lease.id, lease.sequence),
        Ended(lease.id, lease.sequence, "failed", None, failed),
        Again(lease.id, lease.sequence, None, refund=True),
        Again(lease.id, lease.sequence, 60.0, note=retry),
    ]


@pytest.mark.parametrize("place", range(4))
async def test_a_settlement_whose_answer_got_lost_is_known_again(
    sqlite_stage: SqliteStage, place: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    await sqlite_stage.create()
    await sqlite_stage.queue(1)
    async with impatient(sqlite_stage) as worker:
        lease = await worker.take_one()
        settlement = _settlements(lease)[place]
        with monkeypatch.context() as patch:
            patch.setattr(Connection, "check_place", _gone)
            with pytest.raises(StoreUnavailable):
                await worker.settle(settlement)
        assert await worker.settle(settlement) == {lease.id}
        assert await worker.source.settled_before(0, [settlement]) == {lease.id}
        assert await worker.settle(settlement) == {lease.id}
        assert await worker.source.settled_before(0, [settlement]) == set()


@pytest.mark.parametrize("place", range(4))
async def test_a_settlement_that_came_too_late_is_lost(sqlite_stage: SqliteStage, place: int) -> None:
    await sqlite_stage.create()
    await sqlite_stage.queue(1)
    async with impatient(sqlite_stage) as worker:
        lease = await worker.take_one()
        settlement = _settlements(lease)[place]
        await sqlite_stage.change(1, status="completed", worker_id="another")
        assert await worker.settle(settlement) == {lease.id}
        assert await worker.source.settled_before(0, [settlement]) == set()
        await worker.source.note_loss(lease.id, "{}")
        assert isinstance(worker.source, SqliteTable)
        assert worker.source._claims.all() == {}


async def test_a_look_that_is_canceled_gives_back_what_it_got(
    sqlite_stage: SqliteStage, intruder: sqlite3.Connection
) -> None:
    await sqlite_stage.create()
    await sqlite_stage.queue(1)
    async with sqlite_stage.claimer() as worker:
        intruder.execute("begin immediate")
        looking = asyncio.ensure_future(worker.look())
        await asyncio.sleep(0.02)
        looking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await looking
        intruder.execute("rollback")
        [lease] = await worker.take()
        assert lease.attempt == 1
        assert await worker.end(lease) == set()


@pytest.mark.parametrize("declared", ["text", "integer"])
async def test_a_claim_whose_answer_got_lost_is_given_back(
    sqlite_stage: SqliteStage, declared: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the next look, or when the worker leaves: no worker runs those rows, and only heartbeats would show it."""
    await sqlite_stage.execute(
        f"""create table jobs (id integer primary key, status text, created_at text, worker_id text,
        started_at {declared}, payload text)"""
    )
    await sqlite_stage.queue(1, 2, 3)
    async with (
        impatient(sqlite_stage, sqlite_stage.bare()) as worker,
        sqlite_stage.claimer(sqlite_stage.bare()) as other,
    ):
        await other.take_one()
        for _ in range(2):
            with monkeypatch.context() as patch:
                patch.setattr(Connection, "check_place", _gone)
                with pytest.raises(StoreUnavailable):
                    await worker.take(1)
            assert list((await sqlite_stage.statuses()).values()) == ["running", "running", "queued"]
        assert keys(await worker.take()) == [2, 3]
        assert await worker.take() == []
        await sqlite_stage.execute("update jobs set status = 'queued' where id = 3")
        with monkeypatch.context() as patch:
            patch.setattr(Connection, "check_place", _gone)
            with pytest.raises(StoreUnavailable):
                await worker.take()
        assert list((await sqlite_stage.statuses()).values()) == ["running", "running", "running"]
        await worker.source.sign_off(worker.incarnation)
        assert list((await sqlite_stage.statuses()).values()) == ["running", "running", "queued"]


async def test_a_closed_table_says_so(sqlite_stage: SqliteStage) -> None:
    await sqlite_stage.create()
    source = sqlite_stage.source(sqlite_stage.mapping())
    with pytest.raises(NotRunning, match="table 'jobs' is closed"):
        await Claimer(source, "w").sign_on()
    await source.open()
    await source.open()
    await source.close()
    await source.close()
    with pytest.raises(NotRunning, match="table 'jobs' is closed"):
        await Claimer(source, "w").sign_on()


class Clock:
    """Moves when told to."""

    def __init__(self) -> None:
        self.steady = self.wall = 1_000.0

    def outages(self, mapping: Table) -> Outages:
        return Outages(mapping, lambda: self.steady, lambda: self.wall)

    def step(self, seconds: float) -> None:
        self.steady += seconds
        self.wall += seconds


@pytest.mark.parametrize(
    ("steady", "wall"),
    [(600.0, 600.0), (0.0, 600.0)],
    ids=["the file was locked", "the clock was set forward, or the machine slept"],
)
async def test_after_an_outage_no_worker_is_called_dead_at_the_first_beat(
    sqlite_stage: SqliteStage, steady: float, wall: float
) -> None:
    """A live worker whose beats could not get through has the time of one beat to be heard again."""
    await sqlite_stage.create()
    await sqlite_stage.queue(1, 2)
    clock = Clock()
    async with sqlite_stage.claimer(label="other") as other, sqlite_stage.claimer(label="first") as first:
        for worker in (other, first):
            assert isinstance(worker.source, SqliteTable)
            worker.source._outages = clock.outages(sqlite_stage.mapping())
            await worker.sign_on()
        alive, dead = await other.take()
        clock.steady += steady
        clock.wall += wall
        await sqlite_stage.age(600, "last_heartbeat")
        assert (await first.beat()).rescued == 0
        assert (await other.beat(alive)).canceled == ()
        clock.step(30)
        assert (await first.beat()).rescued == 1
        assert (await other.beat(alive, dead)).canceled == (dead.id,)


def test_only_a_silence_that_could_silence_others_counts() -> None:
    mapping = Table("jobs", heartbeat="beat")
    clock = Clock()
    outages = clock.outages(mapping)
    assert outages.heard()
    for _ in range(5):
        clock.step(30)
        assert outages.heard()
    clock.step(269)
    assert outages.heard()
    clock.step(271)
    assert not outages.heard()
    clock.step(29)
    assert not outages.heard()
    clock.step(1)
    assert outages.heard()


def test_with_little_room_between_beat_and_limit_the_dead_are_still_found() -> None:
    mapping = Table("jobs", heartbeat="beat", heartbeat_every="1s", stale_after="3s")
    clock = Clock()
    outages = clock.outages(mapping)
    for _ in range(5):
        clock.step(1.2)
        assert outages.heard()


def _gone(con: Connection) -> None:
    raise FileReplaced(con.path)


def _move(source: Path, target: Path) -> None:
    target.mkdir(exist_ok=True)
    for one in source.glob("own.db*"):
        one.rename(target / one.name)
