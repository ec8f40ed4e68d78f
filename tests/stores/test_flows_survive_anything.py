"""Random histories of flows: whatever happens in whatever order, each end is told once, in order, and nothing waits on.

Leases, ends of all kinds, retries, cancels, zombies that settle what others have, settlements that are sent twice,
rescues. A failure names the seed that replays it.
"""

import random
from dataclasses import dataclass, field

import msgspec
import pytest

from everpoll.stores.contract import Ended, Lease, Settlement, TaskInfo
from everpoll.stores.flows import FlowTask
from stores.flow_tasks import chain, put, task
from stores.stage import NOTE, Stage, again, done

STEPS = 90


@dataclass
class History:
    """One history: what was enqueued, who holds what, and what has been seen to end."""

    stage: Stage
    rng: random.Random
    flow: dict[int, FlowTask] = field(default_factory=dict)
    leads_to: dict[int, int] = field(default_factory=dict)
    workers: list[int] = field(default_factory=list)
    hands: list[tuple[int, Lease]] = field(default_factory=list)
    first_ends: dict[int, TaskInfo] = field(default_factory=dict)
    """How each task ended for the first time: that is what is told."""
    canceled: set[int] = field(default_factory=set)

    async def begin(self) -> None:
        self.workers = [await self.stage.worker() for _ in range(3)]
        for _ in range(3):
            flow = self._flow()
            ids = await put(self.stage, flow)
            for task_id, one in zip(ids, flow, strict=True):
                self.flow[task_id] = one
                if one.then is not None:
                    self.leads_to[task_id] = ids[one.then]

    def _flow(self) -> list[FlowTask]:
        if self.rng.random() < 0.4:
            return chain(*(task("step") for _ in range(self.rng.randint(2, 5))))
        flow = [FlowTask(task("mail"), None, "result"), FlowTask(task("report"), 0, "end")]
        for _ in range(self.rng.randint(0, 4)):
            flow += chain(*(task("m") for _ in range(self.rng.randint(1, 3))), then=1, start=len(flow))
        return flow

    async def step(self) -> None:
        moves = [self.lease] * 4 + [self.settle] * 6 + [self.cancel, self.retry, self.bury, self.repeat]
        await self.rng.choice(moves)()
        await self.look()

    async def lease(self) -> None:
        worker = self.rng.choice(self.workers)
        for lease in await self.stage.take(worker, self.rng.randint(1, 4)):
            await self.check_order(lease)
            self.hands.append((worker, lease))

    async def check_order(self, lease: Lease) -> None:
        """It starts only behind what it waits for, and with what that brought; unless it was retried by hand."""
        before = [one for one, then in self.leads_to.items() if then == lease.id]
        if lease.id in self.first_ends:
            return
        assert all(one in self.first_ends for one in before), f"{lease.id} started before {before} had ended"
        if self.flow[lease.id].takes == "result":
            (first,) = (self.first_ends[one] for one in before)
            assert (first.state, msgspec.json.decode(lease.args)["input"]) == ("done", first.result)

    async def settle(self) -> None:
        if self.hands:
            some = self.rng.sample(self.hands, min(len(self.hands), self.rng.randint(1, 4)))
            worker = some[0][0]
            mine = [lease for holder, lease in some if holder == worker]
            await self.stage.store.settle(worker, [self.end(one) for one in mine])
            # Some stay: what is settled twice, or after a rescue, must change nothing.
            if self.rng.random() < 0.8:
                self.hands = [one for one in self.hands if one[1] not in mine]

    def end(self, lease: Lease) -> Settlement:
        way = self.rng.choice(["done", "done", "done", "result", "result", "failed", "canceled", "again"])
        if way == "again":
            return again(lease)
        if way in {"failed", "canceled"}:
            return Ended(lease.id, lease.sequence, way, None, NOTE)  # type: ignore[arg-type] # these two are states
        return done(lease, lease.id if way == "result" else None)

    async def cancel(self) -> None:
        task_id = self.rng.choice(list(self.flow))
        self.canceled.add(task_id)
        await self.stage.store.cancel_many([(task_id, NOTE)])

    async def retry(self) -> None:
        if self.first_ends:
            await self.stage.store.retry(self.rng.choice(list(self.first_ends)), NOTE)

    async def bury(self) -> None:
        """A worker is declared dead; its leases stay in its hands, and it goes on as a zombie."""
        worker = self.rng.choice(self.workers)
        await self.stage.bury(worker)
        self.workers.remove(worker)
        self.workers.append(await self.stage.worker())

    async def repeat(self) -> None:
        """The answer to a settlement was lost, and it is sent again."""
        if self.hands:
            worker, lease = self.rng.choice(self.hands)
            batch = [self.end(lease)]
            await self.stage.store.settle(worker, batch)
            await self.stage.store.settle(worker, batch)

    async def look(self) -> None:
        """What ended since the last look ended for the first time, or was retried since."""
        for task_id, info in (await self.stage.store.info(list(self.flow))).items():
            if info.ended_at is not None:
                self.first_ends.setdefault(task_id, info)

    async def finish(self) -> None:
        """Everything ends: nothing is left that waits for what will never come."""
        for worker in self.workers:
            await self.stage.bury(worker)
        worker = await self.stage.worker()
        for _ in range(1_000):
            leases = await self.stage.take(worker)
            if not leases:
                break
            for lease in leases:
                await self.check_order(lease)
            await self.stage.store.settle(worker, [done(one, one.id) for one in leases])
            await self.look()
        await self.look()
        assert self.first_ends.keys() == self.flow.keys(), "some tasks wait for ever"
        for task_id, one in self.flow.items():
            if one.takes == "result" and task_id not in self.canceled:
                (first,) = (self.first_ends[before] for before, then in self.leads_to.items() if then == task_id)
                was_canceled = any("cause" in entry for entry in self.first_ends[task_id].trail)
                assert was_canceled == (first.state != "done"), f"{task_id} behind {first.id}, which was {first.state}"


@pytest.mark.parametrize("seed", range(8))
async def test_each_end_is_told_once_and_in_order(stage: Stage, seed: int) -> None:
    history = History(stage, random.Random(seed))
    await history.begin()
    for _ in range(STEPS):
        await history.step()
    await history.finish()
    for task_id in history.flow:
        told = [one for one in await stage.store.actions_of(task_id) if one.body.get("cause")]
        assert len(told) <= 1, f"task {task_id} was canceled {len(told)} times for what came before it"
