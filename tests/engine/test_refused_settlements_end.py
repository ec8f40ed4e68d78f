"""A settlement that the store refuses holds up no other, and its task ends or is handed back in a bounded time."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from engine.engine_stage import EngineStage, SpyStore, done, whats
from engine.test_settling_survives import Bench
from everpoll.engine.refused_settlements import PAUSE, REST_S, STUCK_S, substitutes
from everpoll.engine.settler import PATIENCE_S
from everpoll.errors import BadInput
from everpoll.stores.contract import Again, Ended, NewEvent, Settlement, TaskInfo

NOTE = '{"what":"retry","error":"its own"}'
BOUND_S = PATIENCE_S + PAUSE.cap_s * 1.5


class Picky(SpyStore):
    """Refuses a statement with what it is told to refuse in it."""

    refuses: Callable[[Settlement], bool]
    error: type[Exception] = ValueError

    async def settle(self, incarnation: int, settlements: Sequence[Settlement]) -> set[int]:
        if any(map(self.refuses, settlements)):
            self.trip("refused")
            raise self.error("a trigger of the user's")
        return await super().settle(incarnation, settlements)


@pytest.fixture
def store(stage: EngineStage) -> Picky:
    picky = Picky(stage.clock)
    picky.refuses = lambda _: False
    stage.store = picky
    return picky


async def settled(stage: EngineStage, bench: Bench, *settlements: Settlement) -> list[TaskInfo]:
    """Settle them, within the bound."""
    began = stage.clock.now()
    bench.add(*settlements)
    await bench.finish(BOUND_S)
    assert stage.clock.now() - began <= BOUND_S
    return [await stage.show(one.id) for one in settlements]


def test_one_culprit_holds_up_no_other(stage: EngineStage, store: Picky, caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        bench = Bench(stage)
        leases = await bench.leases(60)
        culprits = {leases[20].id, leases[21].id, leases[59].id}
        store.refuses = lambda one: one.id in culprits and one.state == "done"  # type: ignore[union-attr]
        bench.add(*map(done, leases))
        bench.settler.start()
        await asyncio.sleep(PAUSE.cap_s / 100)
        states = await bench.states(leases)
        assert [lease.id for lease, state in zip(leases, states, strict=True) if state == "running"] == sorted(culprits)
        assert bench.settler.backlog == 3
        assert store.calls.count("refused") <= 3 * 2 * 6, "halves, not one by one"
        assert await bench.settler.drained(BOUND_S)
        assert bench.settler.backlog == 0
        await bench.settler.stop()
        assert [(await stage.show(one)).state for one in culprits] == ["failed"] * 3
        assert sorted(bench.settled) == [lease.id for lease in leases]
        assert bench.meter.lost == 0

    stage.play(scene)
    assert any("refuses a batch of 60" in one.message for one in caplog.records)


def test_what_is_refused_for_a_moment_is_settled_as_it_was(stage: EngineStage, store: Picky) -> None:
    async def scene() -> None:
        bench = Bench(stage)
        [lease] = await bench.leases(1)
        moment = stage.clock.now() + PATIENCE_S / 2
        store.refuses = lambda _: stage.clock.now() < moment
        [info] = await settled(stage, bench, Ended(lease.id, lease.sequence, "done", '"kept"'))
        assert (info.state, info.result, info.trail) == ("done", "kept", ())

    stage.play(scene)


def test_a_value_that_cannot_be_kept_is_not_tried_again(stage: EngineStage, store: Picky) -> None:
    store.error = BadInput

    async def scene() -> None:
        bench = Bench(stage)
        [lease] = await bench.leases(1)
        store.refuses = lambda one: isinstance(one, Ended) and one.result is not None
        began = stage.clock.now()
        [info] = await settled(stage, bench, Ended(lease.id, lease.sequence, "done", '"odd"'))
        assert stage.clock.now() - began < 1
        assert info.state == "failed"
        assert info.errors[0]["error"] == "its result cannot be stored: a trigger of the user's"

    stage.play(scene)


@pytest.mark.parametrize(
    ("refuses", "expected"),
    [
        (lambda one: isinstance(one, Ended) and one.state == "done", ("failed", ["failed"])),
        (lambda one: isinstance(one, Ended) and (one.state == "done" or one.note), ("failed", [])),
        (lambda one: isinstance(one, Ended), ("queued", ["hand-back"])),
        (lambda one: isinstance(one, Ended) or one.note, ("queued", [])),
    ],
    ids=["its end", "notes of an end", "any end", "any end, and notes"],
)
def test_an_end_becomes_another_end_or_is_handed_back(
    stage: EngineStage, store: Picky, refuses: Any, expected: tuple[str, list[str]]
) -> None:
    async def scene() -> None:
        bench = Bench(stage)
        [lease] = await bench.leases(1)
        store.refuses = refuses
        [info] = await settled(stage, bench, Ended(lease.id, lease.sequence, "done", "1"))
        assert (info.state, [entry["what"] for entry in info.trail]) == expected
        assert all("a trigger of the user's" in str(entry.get("why", entry.get("error"))) for entry in info.trail)
        assert info.attempt == 1, "it ran: that costs an attempt"
        if info.state == "queued":
            assert info.due_at.timestamp() == pytest.approx(stage.clock.wall() + REST_S, abs=1.0)

    stage.play(scene)


@pytest.mark.parametrize(
    ("refuses", "expected"),
    [
        (lambda one: isinstance(one, Again) and one.memory, ("queued", ["hand-back"])),
        (lambda one: isinstance(one, Again) and one.note, ("queued", [])),
        (lambda one: isinstance(one, Again), ("failed", ["failed"])),
    ],
    ids=["its memory", "notes", "any hand-back"],
)
def test_what_is_due_again_is_handed_back_or_ends(
    stage: EngineStage, store: Picky, refuses: Any, expected: tuple[str, list[str]]
) -> None:
    async def scene() -> None:
        bench = Bench(stage)
        [lease] = await bench.leases(1)
        store.refuses = refuses
        again = Again(lease.id, lease.sequence, 500.0, note=NOTE, memory="1", events=(NewEvent(1, "{}"),))
        [info] = await settled(stage, bench, again)
        assert (info.state, [entry["what"] for entry in info.trail]) == expected
        assert all("a trigger of the user's" in str(entry.get("why", entry.get("error"))) for entry in info.trail)

    stage.play(scene)


def test_what_can_neither_end_nor_be_handed_back_is_named_until_it_can(stage: EngineStage, store: Picky) -> None:
    async def scene() -> None:
        bench = Bench(stage)
        [lease] = await bench.leases(1)
        store.refuses = lambda _: True
        bench.add(done(lease))
        bench.settler.start()
        assert bench.settler.stuck() == []
        await stage.clock.advance(BOUND_S)
        assert bench.settler.stuck() == [(lease.id, lease.sequence)]
        await stage.clock.advance(10 * STUCK_S)
        assert bench.settler.stuck() == [(lease.id, lease.sequence)]
        store.refuses = lambda _: False
        assert await bench.settler.drained(STUCK_S)
        assert bench.settler.stuck() == []
        await bench.settler.stop()
        assert await bench.states([lease]) == ["done"]

    stage.play(scene)


def test_what_the_rescue_took_back_is_lost_and_insisted_on_no_more(stage: EngineStage, store: Picky) -> None:
    async def scene() -> None:
        bench = Bench(stage)
        [lease] = await bench.leases(1)
        store.refuses = lambda _: True
        bench.add(done(lease))
        bench.settler.start()
        await stage.clock.advance(BOUND_S)
        await stage.bury(1)
        store.refuses = lambda _: False
        assert await bench.settler.drained(STUCK_S)
        await bench.settler.stop()
        assert (bench.settler.stuck(), bench.lost) == ([], [lease.id])

    stage.play(scene)


def test_a_worker_whose_settlements_are_all_refused_leases_no_more_than_it_can_hold(
    stage: EngineStage, store: Picky
) -> None:
    job = stage.handler()

    async def scene() -> None:
        await stage.put(5_000)
        store.refuses = lambda _: True
        async with stage.working(slots=500):
            await stage.clock.advance(10)
            assert 1_000 <= len(job.at) <= 2_000
            store.refuses = lambda _: False
            await stage.clock.advance(PATIENCE_S)
        assert len(set(job.ids)) == len(job.at) == 5_000

    stage.play(scene)


def test_a_live_worker_has_what_it_cannot_settle_taken_back(stage: EngineStage, store: Picky) -> None:
    job = stage.handler()

    async def scene() -> None:
        task_id = await stage.put_one()
        store.refuses = lambda _: True
        async with stage.working(beat_s=5.0) as worker:
            await stage.clock.advance(BOUND_S + 10)
            assert whats(await stage.show(task_id))[0] == "rescue"
            assert (len(job.at), worker.health().polling) == (2, True)
            store.refuses = lambda _: False
            await stage.clock.advance(BOUND_S)
            assert (await stage.show(task_id)).state == "done"

    stage.play(scene)


def test_stopping_leaves_what_is_refused_and_no_task(stage: EngineStage, store: Picky) -> None:
    async def scene() -> None:
        bench = Bench(stage)
        [lease] = await bench.leases(1)
        store.refuses = lambda _: True
        bench.add(done(lease))
        bench.settler.start()
        assert not await bench.settler.drained(3)
        await bench.settler.stop()
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert await bench.states([lease]) == ["running"]

    stage.play(scene)


def test_a_delay_that_the_store_refuses_is_not_repeated() -> None:
    delays = [one.delay_s for one in substitutes(Again(1, 1, 1e300), ValueError("no")) if isinstance(one, Again)]
    assert delays == [REST_S, REST_S]
