"""Which clock decides: due times are the wall's, leases and deadlines are the host's steady one."""

import pytest

from everpoll.stores.contract import Beat, Ended, NewTask, WorkerCard
from everpoll.stores.sqlite import SqliteStore


class TwoClocks:
    """Each can be set by itself."""

    steady = 1_000_000.0
    wall_s = 1_900_000_000.0

    def now(self) -> float:
        return self.steady

    def wall(self) -> float:
        return self.wall_s

    def pass_time(self, seconds: float) -> None:
        self.steady += seconds
        self.wall_s += seconds


@pytest.fixture
def clocks() -> TwoClocks:
    return TwoClocks()


async def _stage(url: str, clocks: TwoClocks, **fields: float) -> SqliteStore:
    """Two workers with leases of 30 s; the first one holds a task."""
    store = SqliteStore(url, clock=clocks)
    await store.open()
    for incarnation in (1, 2):
        card = WorkerCard(
            incarnation=incarnation, label="w", host="h", pid=1, queues=("default",), slots=1, version="0"
        )
        await store.sign_on(card, 30)
    await store.enqueue([NewTask(name="job", timeout_s=fields.get("timeout_s"))])
    assert len((await store.lease(1, {"default": 1}, 1)).leases) == 1
    return store


def _beat(store: SqliteStore, incarnation: int) -> Beat:
    pulse = store.pulse()
    try:
        return pulse.beat(incarnation, 30, None, [])
    finally:
        pulse.close()


@pytest.mark.parametrize("step_s", [86_400.0, -86_400.0])
async def test_a_step_of_the_wall_clock_kills_nobody(url: str, clocks: TwoClocks, step_s: float) -> None:
    store = await _stage(url, clocks, timeout_s=10.0)
    clocks.wall_s += step_s
    assert _beat(store, 2) == Beat(is_alive=True, rescued=0)
    assert [one.is_alive for one in await store.workers()] == [True, True]
    assert await store.settle(1, [Ended(1, 1)]) == set()
    await store.close()


async def test_a_stopped_process_finds_out_when_it_goes_on(url: str, clocks: TwoClocks) -> None:
    store = await _stage(url, clocks)
    clocks.pass_time(20)
    assert _beat(store, 2).is_alive
    clocks.pass_time(20)
    assert _beat(store, 2) == Beat(is_alive=True, rescued=1)
    assert not _beat(store, 1).is_alive
    assert await store.settle(1, [Ended(1, 1)]) == {1}
    await store.close()


async def test_a_reboot_kills_everybody(url: str, clocks: TwoClocks) -> None:
    """The steady clock begins anew: a beat in its future is from before."""
    store = await _stage(url, clocks)
    clocks.steady = 50.0
    assert [one.is_alive for one in await store.workers()] == [False, False]
    card = WorkerCard(incarnation=3, label="w", host="h", pid=1, queues=("default",), slots=1, version="0")
    await store.sign_on(card, 30)
    assert _beat(store, 3) == Beat(is_alive=True, rescued=1)
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
