"""The wall clock decides due times, and nothing else."""

import pytest

from everpoll.stores.contract import Ended, NewTask, WorkerCard
from everpoll.stores.sqlite import SqliteStore


class TwoClocks:
    """The steady one stands still; the wall clock can be set."""

    wall_s = 1_900_000_000.0

    def now(self) -> float:
        return 1_000_000.0

    def wall(self) -> float:
        return self.wall_s


@pytest.fixture
def clocks() -> TwoClocks:
    return TwoClocks()


async def _stage(url: str, clocks: TwoClocks) -> SqliteStore:
    """Two workers with leases of 30 s; the first one holds a task."""
    store = SqliteStore(url, clock=clocks)
    await store.open()
    for incarnation in (1, 2):
        card = WorkerCard(
            incarnation=incarnation, label="w", host="h", pid=1, queues=("default",), slots=1, version="0"
        )
        await store.sign_on(card, 30)
    await store.enqueue([NewTask(name="job", timeout_s=10.0)])
    assert len((await store.lease(1, {"default": 1}, 1)).leases) == 1
    return store


@pytest.mark.parametrize("step_s", [86_400.0, -86_400.0])
async def test_a_step_of_the_wall_clock_kills_no_worker(url: str, clocks: TwoClocks, step_s: float) -> None:
    store = await _stage(url, clocks)
    clocks.wall_s += step_s
    heartbeat = store.heartbeat_connection()
    beat = heartbeat.beat(2, 30, [])
    assert (beat.is_alive, beat.has_leftovers) == (True, False)
    assert heartbeat.rescue(2, [], []).tasks == 0
    heartbeat.close()
    assert await store.settle(1, [Ended(1, 1)]) == set()
    await store.close()


async def test_what_once_was_due_stays_due(url: str, clocks: TwoClocks) -> None:
    """Also if the wall clock is set back; what still waited waits longer."""
    store = await _stage(url, clocks)
    due, waiting = await store.enqueue([NewTask(name="job"), NewTask(name="job", delay_s=60)])
    clocks.wall_s -= 3600
    looked = await store.lease(1, {"default": 5}, 5)
    assert [one.id for one in looked.leases] == [due.id]
    assert looked.next_due_s == pytest.approx(3660)
    clocks.wall_s += 3661
    assert [one.id for one in (await store.lease(1, {"default": 5}, 5)).leases] == [waiting.id]
    await store.close()
