"""Whatever happens to a fleet, every task ends, none is settled twice, and attempts are counted once.

Three workers on one store in virtual time, and random crashes, zombies, outages, cancels, shutdowns and failures from
a seed (invariants 1-6, 10, 11). A failure prints the command that replays it.
"""

import asyncio
import contextlib
import logging
import os
from collections import Counter, defaultdict
from collections.abc import Sequence
from random import Random

import pytest

from engine.engine_stage import EngineStage, SpyStore
from everpoll.engine.options import WorkerOptions
from everpoll.engine.work import Run, Work
from everpoll.engine.worker import Worker
from everpoll.stores.contract import Again, Beat, Ended, Leased, NewTask, Settlement, TaskFilter, TaskInfo, WorkerCard
from everpoll.stores.memory import MemoryStore
from everpoll.testing import VirtualClock

FIXED_SEED = os.environ.get("EVERPOLL_SEED")
SEEDS = [int(FIXED_SEED)] if FIXED_SEED else list(range(1, 41))
LEASE_S = 12.0
EVENTS = 150
ATTEMPTS = 3
NAMES = ("quick", "slow", "unregistered")


class Ledger(SpyStore):
    """A store that writes down every lease and every settlement that counted."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock)
        self.leased: defaultdict[int, list[int]] = defaultdict(list)
        self.settled: defaultdict[int, list[Settlement]] = defaultdict(list)
        self.owner: dict[tuple[int, int], int] = {}
        self.heard: defaultdict[int, list[float]] = defaultdict(list)
        self.gone: dict[int, float] = {}
        self.frozen: set[int] = set()
        self.thawed = asyncio.Event()

    async def lease(self, incarnation: int, rooms: dict[str, int], most: int) -> Leased:
        await self._passable(incarnation)
        looked = await super().lease(incarnation, rooms, most)
        for lease in looked.leases:
            self.leased[lease.id].append(lease.sequence)
            self.owner[lease.id, lease.sequence] = incarnation
        return looked

    async def settle(self, incarnation: int, settlements: Sequence[Settlement]) -> set[int]:
        await self._passable(incarnation)
        lost = await super().settle(incarnation, settlements)
        for settlement in settlements:
            if settlement.id not in lost:
                assert self.owner[settlement.id, settlement.sequence] == incarnation, "settled by the wrong owner"
                self.settled[settlement.id].append(settlement)
        return lost

    async def sign_on(self, card: WorkerCard, lease_s: float) -> None:
        await super().sign_on(card, lease_s)
        self.heard[card.incarnation].append(self.clock.now())

    async def sign_off(self, incarnation: int) -> None:
        await super().sign_off(incarnation)
        self.gone[incarnation] = self.clock.now()

    def beat(self, incarnation: int, lease_s: float, running: Sequence[int]) -> Beat:
        beat = super().beat(incarnation, lease_s, running)
        if beat.is_alive:
            self.heard[incarnation].append(self.clock.now())
        return beat

    def was_alive(self, incarnation: int, at: float) -> bool:
        """Whether this worker had been heard within its lease, and had not signed off."""
        heard = [instant for instant in self.heard[incarnation] if instant < at]
        return at - max(heard) < LEASE_S - 1e-6 and self.gone.get(incarnation, at) >= at

    async def _passable(self, incarnation: int) -> None:
        while incarnation in self.frozen:
            self.thawed.clear()
            await self.thawed.wait()


class Fleet:
    """Workers, what is done to them, and everything that must never be seen."""

    def __init__(self, stage: EngineStage, seed: int) -> None:
        self.random = Random(seed)
        self.stage = stage
        self.clock = stage.clock
        self.store = Ledger(self.clock)
        stage.store = self.store
        self.workers: list[Worker] = []
        self.ids: list[int] = []
        self.hired = 0
        self.ending: set[asyncio.Task[None]] = set()
        self.happened: Counter[str] = Counter()
        self.wall_ahead_s = self.clock.wall() - self.clock.now()
        for name in ("quick", "slow"):
            stage.works.add(Work(name, "default", self.run))

    # What handlers do.

    async def run(self, run: Run) -> Settlement:
        lease, chance = run.lease, self.random.random()
        await asyncio.sleep(self.random.choice((0, 0.01, 0.3)) if lease.name == "quick" else self.random.uniform(1, 30))
        if chance < 0.10 and lease.attempt < ATTEMPTS:
            return Again(lease.id, lease.sequence, self.random.choice((0.0, 2.0)), note='{"what":"retry","error":"x"}')
        if chance < 0.15:
            return Ended(lease.id, lease.sequence, "failed", None, '{"what":"failed","error":"x"}')
        if chance < 0.20:
            return Again(lease.id, lease.sequence, 1.0, refund=True, note='{"what":"snooze"}')
        return Ended(lease.id, lease.sequence)

    # What is done to the fleet.

    async def hire(self) -> None:
        self.hired += 1
        options = WorkerOptions(
            keep_s=None, label=f"w{self.hired}", lease_s=LEASE_S, slots=self.random.choice((2, 5, 20))
        )
        worker = Worker(self.store, self.stage.works, options)
        worker._poller._rng, worker._settler._rng = Random(self.hired), Random(self.hired)
        await worker.start()
        self.workers.append(worker)

    async def enqueue(self) -> None:
        tasks = [
            NewTask(
                name=self.random.choices(NAMES, (10, 5, 1))[0],
                priority=self.random.choice((0, 0, 5)),
                delay_s=self.random.choice((0.0, 0.0, 1.0, 20.0)),
                key=self.random.choice((None, None, "a", "b")),
            )
            for _ in range(self.random.choice((1, 5, 20)))
        ]
        with contextlib.suppress(Exception):  # the database may be away
            self.ids += [one.id for one in await self.store.enqueue(tasks) if one.is_new]

    async def cancel(self) -> None:
        if self.ids:
            await self.store.cancel(self.random.choice(self.ids), '{"what":"cancel"}')

    async def crash(self) -> None:
        """kill -9: nothing is settled, nothing is handed back, no worker signs off."""
        worker = self.random.choice(self.workers)
        self.workers.remove(worker)
        heart = getattr(worker._heartbeat, "_beating", None)
        carriers = [*worker._pool._carriers.values(), worker._pool._spare]
        gone = [worker._settler._task, worker._polling, heart, *carriers, *worker._notes]
        tasks = [task for task in gone if task is not None]
        for task in tasks:
            task.cancel()
        await MemoryStore.unlisten(self.store, self.store._listeners_by_wake.pop(worker._on_wake, worker._on_wake))
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.hire()

    async def freeze(self) -> None:
        """SIGSTOP: its heart and its way to the store stand still, perhaps past the lease."""
        worker = self.random.choice(self.workers)
        self.store.frozen.add(worker.incarnation)
        self.stage.frozen.add(worker.incarnation)

    async def thaw(self) -> None:
        self.store.frozen.clear()
        self.stage.frozen.clear()
        self.store.thawed.set()

    async def outage(self) -> None:
        lasts_s = self.random.choice((1.0, 5.0, 2 * LEASE_S))
        self.store.is_down = True
        await self.clock.advance(lasts_s)
        self.store.is_down = False

    async def dismiss(self) -> None:
        worker = self.random.choice(self.workers)
        self.workers.remove(worker)
        ending = asyncio.ensure_future(worker.stop(self.random.choice((0, 2, 40))))
        self.ending.add(ending)
        ending.add_done_callback(self.ending.discard)
        await self.hire()

    async def play(self) -> None:
        for _ in range(3):
            await self.hire()
        acts = (self.enqueue, self.cancel, self.crash, self.freeze, self.thaw, self.outage, self.dismiss)
        for _ in range(EVENTS):
            [act] = self.random.choices(acts, (30, 10, 3, 3, 6, 2, 3))
            self.happened[act.__name__] += 1
            await act()
            await self.clock.advance(self.random.choice((0, 0.05, 0.5, 3.0)))
            await self.check_live()
        await self.thaw()
        await self.clock.advance(600)
        await self.end()

    # What must hold.

    async def check_live(self) -> None:
        infos = await MemoryStore.info(self.store, self.ids)
        assert len(infos) == len(self.ids), "a task is lost"  # invariant 3
        keys = Counter(info.key for info in infos.values() if info.ended_at is None and info.key)
        assert all(count == 1 for count in keys.values()), f"a key has two live tasks: {keys}"  # invariant 6

    async def end(self) -> None:
        live = [*(await self.pages("queued")), *(await self.pages("running"))]
        assert not live, f"not ended: {live[:3]}"
        for worker in self.workers:
            began = self.clock.now()
            assert worker.health().healthy
            await worker.stop("1s")
            assert self.clock.now() - began < 1, "an idle worker takes its time to stop"  # invariant 11
        await asyncio.gather(*self.ending)
        for info in (await MemoryStore.info(self.store, self.ids)).values():
            self.check_ended(info)
        await self.clock.advance(60)
        left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        assert not left, f"left behind: {left}"

    def check_ended(self, info: TaskInfo) -> None:
        leased, settled = self.store.leased[info.id], self.store.settled[info.id]
        where = f"task {info.id}: leased as {leased}, settled {settled}, {info}"
        assert len(set(leased)) == len(leased) == max(leased, default=0), where  # invariant 1: no sequence twice
        sequences = [one.sequence for one in settled]
        assert len(set(sequences)) == len(sequences), where  # invariant 2
        ends = [one for one in settled if isinstance(one, Ended)]
        assert len(ends) <= 1, where
        assert not ends or settled[-1] is ends[0], where
        # Every lease is closed exactly once, by a settlement or by a rescue; both are known.
        assert len(leased) == len(settled) + info.rescues, where
        refunds = sum(isinstance(one, Again) and one.refund for one in settled)
        assert info.attempt == len(leased) - refunds - info.rescues, where  # invariant 4
        rescues = [entry["at"] - self.wall_ahead_s for entry in info.trail if entry["by"] == "rescue"]
        unsettled = [sequence for sequence in leased if sequence not in sequences]
        for sequence, at in zip(unsettled, rescues, strict=True):
            assert not self.store.was_alive(self.store.owner[info.id, sequence], at), f"rescued alive: {where}"

    async def pages(self, state: str) -> tuple[TaskInfo, ...]:
        return (await self.store.tasks(TaskFilter(state=state), limit=1_000)).tasks  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_fleet_under_random_crashes_zombies_outages_and_cancels_loses_nothing(
    seed: int, stage: EngineStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    logging.getLogger("everpoll.engine").setLevel(logging.CRITICAL)
    fleet = Fleet(stage, seed)
    monkeypatch.setattr("everpoll.engine.worker.secrets.randbits", Random(seed).getrandbits)
    try:
        stage.play(fleet.play)
    except BaseException as error:
        replay = f"EVERPOLL_SEED={seed} .venv/bin/python -m pytest tests/engine/test_simulated_fleet.py"
        error.add_note(f"replay: {replay}")
        raise
    finally:
        logging.getLogger("everpoll.engine").setLevel(logging.NOTSET)
    assert len(fleet.ids) > 50, "too little happened to prove anything"
