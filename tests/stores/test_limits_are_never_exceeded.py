"""In any story no limit is exceeded, none of its slots is lost, and nothing that may start is left."""

import asyncio
from collections import Counter

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from everpoll.stores.contract import Lease, Limit, NewTask, Settlement
from stores.backends import Backend
from stores.stage import NOTE, Stage, again, done

KEYS = ("a", "b", "c")
RUNNING, STARTS, PER_S = 2, 4, 100.0
WAYS = ("done", "retry", "later", "back", "cancel")
MOVES = st.one_of(
    st.tuples(st.just("enqueue"), st.sampled_from(KEYS), st.integers(1, 4)),
    st.tuples(st.just("lease"), st.integers(0, 1), st.sampled_from([1, 2, 50])),
    st.tuples(st.just("settle"), st.integers(0, 20), st.sampled_from(WAYS)),
    st.tuples(st.just("kill"), st.integers(0, 1), st.just(0)),
    st.tuples(st.just("wait"), st.sampled_from([1, 40, 120]), st.just(0)),
)


class LimitModel:
    """Two workers and what they hold, beside the store."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.workers: list[int] = []
        self.held: list[tuple[int, Lease]] = []
        self.starts: list[tuple[str, float]] = []
        self.now = 0.0

    async def move(self, what: str, which: int | str, how: int | str) -> None:
        match what:
            case "enqueue":
                limit = Limit(str(which), RUNNING, STARTS, PER_S)
                await self.stage.store.enqueue([NewTask(name="job", limit=limit)] * int(how))
            case "lease":
                await self.lease(self.workers[int(which)], int(how))
            case "settle" if self.held:
                await self.settle(*self.held.pop(int(which) % len(self.held)), str(how))
            case "kill":
                await self.kill(int(which))
            case "wait":
                await self.stage.pass_time(float(which))
                self.now += float(which)

    async def lease(self, worker: int, most: int) -> None:
        looked = await self.stage.store.lease(worker, {"default": most}, most)
        for lease in looked.leases:
            assert lease.limit_key is not None
            self.held.append((worker, lease))
            self.starts.append((lease.limit_key, self.now))
        running = Counter(lease.limit_key for _, lease in self.held)
        started = Counter(key for key, at in self.starts if at > self.now - PER_S)
        assert all(count <= RUNNING for count in running.values()), running
        assert all(count <= STARTS for count in started.values()), started
        if looked.is_all:
            for key in KEYS:
                left = await self.stage.store.limit(key)
                assert left.running == running[key]
                is_full = running[key] >= RUNNING or started[key] >= STARTS
                # What started a little longer ago than the stretch may still count, by the margin.
                is_near = any(one == key and self.now - PER_S - 1 <= at <= self.now - PER_S for one, at in self.starts)
                assert left.waiting == 0 or is_full or is_near

    async def settle(self, worker: int, lease: Lease, way: str) -> None:
        if way == "cancel":
            await self.stage.store.cancel(lease.id, NOTE)
        settlements: dict[str, Settlement] = {
            "done": done(lease),
            "retry": again(lease, 0.0),
            "later": again(lease, 50.0),
            "back": again(lease, None, refund=True),
            "cancel": again(lease),
        }
        assert await self.stage.store.settle(worker, [settlements[way]]) == set()

    async def kill(self, which: int) -> None:
        dead = self.workers[which]
        await self.stage.declare_dead(self.workers[1 - which], dead)
        zombie = [lease for worker, lease in self.held if worker == dead]
        self.held = [(worker, lease) for worker, lease in self.held if worker != dead]
        if zombie:
            assert await self.stage.store.settle(dead, [done(one) for one in zombie]) == {one.id for one in zombie}
        self.workers[which] = await self.stage.worker()


@settings(
    max_examples=15,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(moves=st.lists(MOVES, min_size=5, max_size=40))
def test_limits_hold_in_any_story(
    backend: Backend, runner: asyncio.Runner, moves: list[tuple[str, int | str, int | str]]
) -> None:
    async def play() -> None:
        stage = Stage(backend)
        await stage.open()
        try:
            model = LimitModel(stage)
            model.workers = [await stage.worker(), await stage.worker()]
            for move in moves:
                await model.move(*move)
        finally:
            await stage.close()
            await backend.forget_everything()

    runner.run(play())
