"""A trigger of the user's on our tables refuses how a task ends: it ends otherwise, or goes back, and says why."""

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import asyncpg
import pytest

from everpoll.engine import refused_settlements
from everpoll.engine.beat_sender import BeatSender, HeartbeatTiming, Listeners
from everpoll.engine.meter import Meter
from everpoll.engine.settler import SettlementListeners, Settler
from everpoll.policy import Backoff
from everpoll.stores.contract import Again, Ended, Lease, Rescued, Settlement, TaskInfo
from stores.backends import Backend, backend_names
from stores.conftest import made
from stores.stage import Stage, whats

LIMIT_S = 30.0
NO_LOSS = SettlementListeners(on_lost=lambda lost: pytest.fail(f"lost: {lost}"))
ON_POSTGRES = """create function public.refuse() returns trigger language plpgsql as $$
    begin raise exception 'the auditor says no'; end $$;"""
ON_POSTGRES_EACH = """create trigger refuse_{place} before {event} on everpoll.{table} for each row
    when ({row}.name = 'culprit') execute function public.refuse();"""
ON_SQLITE_EACH = """create trigger refuse_{place} before {event} on everpoll_{table} when {row}.name = 'culprit'
    begin select raise(abort, 'the auditor says no'); end;"""
PLACES = {
    "delete": {"table": "tasks", "event": "delete", "row": "old"},
    "update": {"table": "tasks", "event": "update", "row": "old"},
    "history": {"table": "history", "event": "insert", "row": "new"},
}


@pytest.fixture(autouse=True)
def impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refused_settlements, "PAUSE", Backoff("20ms", cap="50ms", jitter=0))
    monkeypatch.setattr(refused_settlements, "STUCK_S", 0.05)


@pytest.fixture(params=[name for name in backend_names() if name != "memory"])
def backend(request: pytest.FixtureRequest, runner: asyncio.Runner, tmp_path: Path) -> Iterator[Backend]:
    """Where there are triggers."""
    with made(request, runner, tmp_path, migrated=True) as place:
        yield place


async def execute(backend: Backend, on_sqlite: str, on_postgres: str) -> None:
    assert backend.url is not None
    if backend.name == "sqlite":
        with closing(sqlite3.connect(Path(backend.url.removeprefix("sqlite:///")), timeout=30)) as connection:
            connection.executescript(on_sqlite)
        return
    postgres = await asyncpg.connect(backend.url)
    try:
        await postgres.execute(on_postgres)
    finally:
        await postgres.close()


@asynccontextmanager
async def refusing(stage: Stage, *places: str) -> AsyncIterator[None]:
    """Nothing of this kind can be done to a culprit."""
    on_sqlite = "".join(ON_SQLITE_EACH.format(place=place, **PLACES[place]) for place in places)
    on_postgres = "".join(ON_POSTGRES_EACH.format(place=place, **PLACES[place]) for place in places)
    await execute(stage.backend, on_sqlite, ON_POSTGRES + on_postgres)
    try:
        yield
    finally:
        dropped = "".join(f"drop trigger if exists refuse_{place};" for place in places)
        await execute(stage.backend, dropped, "drop function if exists public.refuse cascade")


async def held(stage: Stage, worker: int) -> list[Lease]:
    """Three tasks in the hands of a worker; the one in the middle is the culprit."""
    for name in ("innocent", "culprit", "innocent"):
        await stage.put_one(name=name)
    return await stage.take(worker)


async def settled(stage: Stage, worker: int, *settlements: Settlement) -> list[TaskInfo]:
    """Settle them all, by a settler that is not patient."""
    settler = settler_of(stage)
    for settlement in settlements:
        settler.add(worker, settlement)
    settler.start()
    assert await settler.drained(LIMIT_S)
    await settler.stop()
    return [await stage.show(one.id) for one in settlements]


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not is_so():  # noqa: ASYNC110 - a settler has no event for it
            await asyncio.sleep(0.01)


def settler_of(stage: Stage) -> Settler:
    return Settler(stage.store, Meter(), NO_LOSS, patience_s=0.2)


@pytest.mark.parametrize("place", ["delete", "history"])
async def test_on_its_end(stage: Stage, place: str) -> None:
    """It can end in no way: it is handed back, with the reason in its trail, and its slot is free."""
    worker = await stage.worker()
    leases = await held(stage, worker)
    async with refusing(stage, place):
        first, culprit, last = await settled(
            stage, worker, *(Ended(one.id, one.sequence, "done", "1") for one in leases)
        )
    assert (first.state, last.state) == ("done", "done")
    assert (culprit.state, culprit.attempt, whats(culprit)) == ("queued", 1, ["hand-back"])
    assert "the auditor says no" in culprit.trail[0]["why"]
    assert refused_settlements.REST_S - 10 < await stage.due_in_s(culprit.id) <= refused_settlements.REST_S


async def test_on_its_return(stage: Stage) -> None:
    """It can be handed back in no way: it ends as failed, with the reason."""
    worker = await stage.worker()
    leases = await held(stage, worker)
    async with refusing(stage, "update"):
        first, culprit, last = await settled(stage, worker, *(Again(one.id, one.sequence, 500.0) for one in leases))
    assert (first.state, last.state) == ("queued", "queued")
    assert (culprit.state, whats(culprit)) == ("failed", ["failed"])
    assert "the auditor says no" in culprit.errors[0]["error"]


async def test_that_is_gone_after_a_moment(stage: Stage) -> None:
    """What it refused for a moment is settled as it was."""
    worker = await stage.worker()
    leases = await held(stage, worker)
    settler = Settler(stage.store, Meter(), NO_LOSS, patience_s=LIMIT_S)
    async with refusing(stage, "delete", "update"):
        for lease in leases:
            settler.add(worker, Ended(lease.id, lease.sequence, "done", "1"))
        settler.start()
        await until(lambda: settler.backlog == 1)
        assert [(await stage.show(one.id)).state for one in leases] == ["done", "running", "done"]
    assert await settler.drained(LIMIT_S)
    await settler.stop()
    culprit = await stage.show(leases[1].id)
    assert (culprit.state, culprit.result, culprit.trail) == ("done", 1, ())


async def test_on_whatever_is_done_to_it(stage: Stage) -> None:
    """The settler names the task for as long as that lasts."""
    worker = await stage.worker()
    leases = await held(stage, worker)
    settler = settler_of(stage)
    async with refusing(stage, "delete", "update", "history"):
        for lease in leases:
            settler.add(worker, Ended(lease.id, lease.sequence))
        settler.start()
        await until(lambda: bool(settler.stuck()))
        assert settler.stuck() == [(leases[1].id, leases[1].sequence)]
    assert await settler.drained(LIMIT_S)
    assert settler.stuck() == []
    await settler.stop()
    assert (await stage.show(leases[1].id)).state in {"done", "failed"}


async def test_on_a_rescue(stage: Stage) -> None:
    """What can not be taken back holds up neither the other overdue tasks nor those of a worker that has stopped."""
    gone = await stage.worker("gone")
    leftover = await stage.running(gone, name="innocent")
    await stage.store.sign_off(gone)
    worker = await stage.worker()
    leases = await held(stage, worker)
    rescued: list[Rescued] = []
    answer = Listeners(lambda beat: None, rescued.append, pytest.fail, lambda silence_s: None)
    fences = [(lease.id, lease.sequence) for lease in leases]
    sender = BeatSender(worker, HeartbeatTiming(60.0, 20.0), lambda: ([], fences), time.monotonic, answer)
    async with refusing(stage, "delete", "update"):
        await stage.in_heart(sender.beat)
    assert [one.tasks for one in rescued] == [3]
    assert [(await stage.show(one.id)).state for one in leases] == ["queued", "running", "queued"]
    assert (await stage.show(leftover.id)).state == "queued"
    await stage.in_heart(sender.beat)
    assert (await stage.show(leases[1].id)).state == "queued"


async def test_on_the_rescue_of_a_dead_workers_task(stage: Stage) -> None:
    """The others come back, and so does the culprit as soon as it may."""
    dead, witness = await stage.worker(), await stage.worker()
    leases = await held(stage, dead)
    async with refusing(stage, "update"):
        assert await stage.declare_dead(witness, dead) == 2
        assert [(await stage.show(one.id)).state for one in leases] == ["queued", "running", "queued"]
        assert (await stage.beat(witness)).has_leftovers
    assert await stage.rescue(witness) == 1
    assert (await stage.show(leases[1].id)).state == "queued"
    assert not (await stage.beat(witness)).has_leftovers
