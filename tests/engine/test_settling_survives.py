"""Settlements on their way to the store: coalesced, retried over any outage, and never reported falsely as lost."""

import asyncio
import logging
from collections.abc import Iterable, Sequence

import pytest

from engine.engine_stage import GONE, EngineStage, SpyStore, done, whats
from everpoll.engine.meter import Meter
from everpoll.engine.settler import BATCH, SettlementListeners, Settler
from everpoll.stores.contract import LEASE_LIMIT, Again, Ended, Lease, Settlement, WorkerCard
from everpoll.stores.limits import STATEMENT_BYTES
from everpoll.stores.memory import MemoryStore


class Bench:
    """A settler on its own, and leases for it."""

    def __init__(self, stage: EngineStage) -> None:
        self.stage = stage
        self.store = stage.store
        self.lost: list[int] = []
        self.settled: list[int] = []
        self.meter = Meter()
        listeners = SettlementListeners(self._on_lost, on_settled=self.settled.extend)
        self.settler = Settler(self.store, self.meter, listeners)

    def _on_lost(self, ids: Iterable[int]) -> None:
        self.lost += ids

    async def leases(self, how_many: int, incarnation: int = 1) -> list[Lease]:
        """New tasks in the hands of this worker."""
        await self.stage.put(how_many)
        return await self.take(incarnation)

    async def take(self, incarnation: int) -> list[Lease]:
        """Whatever is due, in the hands of this worker."""
        card = WorkerCard(
            incarnation=incarnation, label=f"worker-{incarnation}", host="", pid=1, queues=(), slots=1, version=""
        )
        await MemoryStore.sign_on(self.store, card, 60)
        return (await MemoryStore.lease(self.store, incarnation, {"default": BATCH}, BATCH)).leases

    def add(self, *settlements: Settlement, incarnation: int = 1) -> None:
        for settlement in settlements:
            self.settler.add(incarnation, settlement)

    async def finish(self, timeout_s: float = 600) -> None:
        self.settler.start()
        assert await self.settler.drained(timeout_s)
        await self.settler.stop()

    async def states(self, leases: Sequence[Lease]) -> list[str]:
        return [(await self.stage.show(lease.id)).state for lease in leases]


def test_handlers_that_end_together_are_settled_together(stage: EngineStage) -> None:
    stage.handler(takes_s=10)

    async def scene() -> None:
        await stage.put(40)
        async with stage.working():
            await stage.clock.advance(11)
        assert [len(batch) for batch in stage.store.settles] == [40]

    stage.play(scene)


def test_what_ends_while_a_statement_is_under_way_shares_the_next_one(stage: EngineStage) -> None:
    async def scene() -> None:
        bench = Bench(stage)
        leases = await bench.leases(12)
        stage.store.takes_s["settle"] = 1.0
        bench.settler.start()
        bench.add(done(leases[0]))
        for lease in leases[1:]:
            await asyncio.sleep(0.05)
            bench.add(done(lease))
        assert await bench.settler.drained(10)
        await bench.settler.stop()
        assert [len(batch) for batch in stage.store.settles] == [1, 11]

    stage.play(scene)


def test_a_batch_has_an_upper_bound(stage: EngineStage) -> None:
    async def scene() -> None:
        bench = Bench(stage)
        leases = [*await bench.leases(BATCH), *await bench.leases(BATCH), *await bench.leases(1)]
        bench.add(*map(done, leases))
        await bench.finish()
        assert [len(batch) for batch in stage.store.settles] == [BATCH, BATCH, 1]
        assert set(await bench.states(leases)) == {"done"}

    stage.play(scene)


def test_settlements_wait_for_a_store_that_is_away_however_long(stage: EngineStage) -> None:
    async def scene() -> None:
        bench = Bench(stage)
        leases = await bench.leases(3)
        stage.store.is_down = True
        bench.add(*map(done, leases))
        bench.settler.start()
        await stage.clock.advance(3600)
        assert bench.settler.backlog == 3
        stage.store.is_down = False
        # The waits between tries are bounded: it is settled soon after the store is back.
        assert await bench.settler.drained(10)
        await bench.settler.stop()
        assert await bench.states(leases) == ["done"] * 3
        assert bench.lost == []
        assert sorted(bench.settled) == [lease.id for lease in leases]

    stage.play(scene)


def test_settlements_of_an_old_incarnation_are_reported_lost_and_change_nothing(stage: EngineStage) -> None:
    async def scene() -> None:
        bench = Bench(stage)
        [mine] = await bench.leases(1)
        await stage.bury(1)
        [theirs] = await bench.take(incarnation=2)
        assert theirs.id == mine.id
        bench.add(Ended(mine.id, mine.sequence, "done", '"stale"'))
        await bench.finish()
        assert bench.lost == [mine.id]
        assert (bench.meter.settled, bench.meter.lost) == (0, 1)
        info = await stage.show(mine.id)
        assert (info.state, info.incarnation, info.result) == ("running", 2, None)

    stage.play(scene)


def test_each_incarnation_is_settled_under_its_own_name(stage: EngineStage) -> None:
    async def scene() -> None:
        bench = Bench(stage)
        first, second = await bench.leases(2, incarnation=1), await bench.leases(2, incarnation=2)
        for incarnation, lease in ((1, first[0]), (2, second[0]), (2, second[1]), (1, first[1])):
            bench.add(done(lease), incarnation=incarnation)
        await bench.finish()
        assert [len(batch) for batch in stage.store.settles] == [1, 2, 1]
        assert bench.lost == []
        assert set(await bench.states([*first, *second])) == {"done"}

    stage.play(scene)


class Forgetful(SpyStore):
    """Commits a settlement, and then the connection breaks before the answer."""

    breaks = 0

    async def settle(self, incarnation: int, settlements: Sequence[Settlement]) -> set[int]:
        lost = await super().settle(incarnation, settlements)
        if self.breaks:
            self.breaks -= 1
            raise GONE
        return lost


@pytest.mark.parametrize("breaks", [1, 2, 5])
def test_a_settlement_that_was_committed_before_the_connection_broke_is_not_lost(
    stage: EngineStage, breaks: int
) -> None:
    stage.store = forgetful = Forgetful(stage.clock)

    async def scene() -> None:
        bench = Bench(stage)
        leases = await bench.leases(5)
        forgetful.breaks = breaks
        ids = [(lease.id, lease.sequence) for lease in leases]
        note = '{"what":"test"}'
        bench.add(
            Ended(*ids[0]),
            Ended(*ids[1], "failed", None, note),
            Ended(*ids[2], "canceled", None, note),
            Again(*ids[3], 60.0, note=note),
            Again(*ids[4], None, refund=True, note=note),
        )
        await bench.finish()
        assert bench.lost == []
        assert bench.meter.lost == 0
        assert await bench.states(leases) == ["done", "failed", "canceled", "queued", "queued"]

    stage.play(scene)


@pytest.mark.parametrize("is_leased_again", [False, True])
def test_what_was_rescued_during_the_outage_is_lost_and_reported(stage: EngineStage, is_leased_again: bool) -> None:
    """The task is queued again, or another worker has it: in both cases the result is dropped, and the log says so."""

    async def scene() -> None:
        bench = Bench(stage)
        first, second = await bench.leases(2)
        stage.store.fail("settle", 2)
        bench.add(done(first), Again(second.id, second.sequence, 5.0, note='{"what":"retry"}'))
        bench.settler.start()
        await asyncio.sleep(0.01)
        await stage.bury(1)
        if is_leased_again:
            assert len(await bench.take(incarnation=2)) == 2
        assert await bench.settler.drained(60)
        await bench.settler.stop()
        assert sorted(bench.lost) == [first.id, second.id]
        assert [whats(await stage.show(lease.id)) for lease in (first, second)] == [["rescue"], ["rescue"]]

    stage.play(scene)


def test_what_became_poison_during_the_outage_is_lost_although_this_worker_held_it_last(stage: EngineStage) -> None:
    async def scene() -> None:
        bench = Bench(stage)
        await stage.put()
        for incarnation in (1, 2):
            assert await bench.take(incarnation)
            await stage.bury(incarnation)
        [lease] = await bench.take(3)
        note = '{"what":"failed","error":"mine"}'
        stage.store.fail("settle", 1)
        bench.add(Ended(lease.id, lease.sequence, "failed", None, note), incarnation=3)
        bench.settler.start()
        await asyncio.sleep(0.01)
        await stage.bury(3)
        assert await bench.settler.drained(60)
        await bench.settler.stop()
        assert bench.lost == [lease.id]
        assert [error for error in (await stage.show(lease.id)).errors if error["error"] == "mine"] == []

    stage.play(scene)


def test_a_worker_whose_result_was_lost_records_the_loss_beside_the_task(
    stage: EngineStage, caplog: pytest.LogCaptureFixture
) -> None:
    stage.handler(takes_s=5)

    async def scene() -> None:
        task_id = await stage.put_one()
        async with stage.working() as worker:
            await stage.clock.advance(1)
            # A zombie that never hears of it: only the settlement tells.
            stage.frozen.add(worker.incarnation)
            await stage.bury(worker.incarnation)
            await stage.clock.advance(5)
            [loss] = await stage.store.losses(task_id)
            assert (loss["what"], loss["by"]) == ("loss", "worker")
            assert worker.meter.lost == 1

    with caplog.at_level(logging.WARNING):
        stage.play(scene)
    assert any("its result is dropped" in one.message for one in caplog.records)


def test_a_loss_that_cannot_be_recorded_is_no_reason_to_fail(stage: EngineStage) -> None:
    stage.handler(takes_s=5)
    stage.store.fail("note_loss", 1, ValueError("no"))

    async def scene() -> None:
        await stage.put()
        async with stage.working() as worker:
            await stage.clock.advance(1)
            await stage.bury(worker.incarnation)
            await stage.clock.advance(20)
            assert worker.health().healthy

    stage.play(scene)


def test_a_batch_is_bounded_in_bytes(stage: EngineStage) -> None:
    quarter = '"' + "é" * (STATEMENT_BYTES // 8) + '"'

    async def scene() -> None:
        bench = Bench(stage)
        leases = await bench.leases(8)
        sizes = [1, 1, 1, 1, 4, 0, 0, 0]
        bench.add(
            *(Ended(one.id, one.sequence, "done", quarter * size) for one, size in zip(leases, sizes, strict=True))
        )
        await bench.finish()
        assert [len(batch) for batch in stage.store.settles] == [3, 1, 1, 3]

    stage.play(scene)


def test_stopping_leaves_what_waits_and_no_task(stage: EngineStage) -> None:
    async def scene() -> None:
        bench = Bench(stage)
        [lease] = await bench.leases(1)
        stage.store.is_down = True
        bench.add(done(lease))
        bench.settler.start()
        assert not await bench.settler.drained(3)
        await bench.settler.stop()
        await bench.settler.stop()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    stage.play(scene)


def test_what_is_leased_and_cannot_be_settled_is_bounded(stage: EngineStage) -> None:
    """A store that still leases and does not settle, for whatever reason, must not fill the memory with results."""
    job = stage.handler()
    stage.store.fail("settle", 10_000)

    async def scene() -> None:
        await stage.put(5_000)
        async with stage.working(slots=LEASE_LIMIT):
            await stage.clock.advance(10)
            assert 2 * LEASE_LIMIT <= len(job.at) <= 4 * LEASE_LIMIT
            stage.store.errors["settle"].clear()
            await stage.clock.advance(60)
        assert len(set(job.ids)) == len(job.at) == 5_000

    stage.play(scene)
