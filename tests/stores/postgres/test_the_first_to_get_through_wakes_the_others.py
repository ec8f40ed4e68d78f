"""After an outage the first part of a process that gets through wakes the others: none waits out its own back-off."""

import asyncio
import threading
import time

import pytest

from everpoll import Everpoll, Task
from everpoll.drivers.postgres import listener
from everpoll.drivers.reachability import WAKE_GAP_S, Reachability
from everpoll.engine import poller, settler
from everpoll.policy import Backoff
from everpoll.stores.postgres import PostgresStore
from servers.postgres import Cluster

FOR_EVER = Backoff("10m", cap="10m", jitter=0)
SOON_S = 20.0


async def test_results_are_settled_as_soon_as_the_database_is_back(
    own_server: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those of a settler, a poller and a listener that would wait for ten minutes more by themselves."""
    monkeypatch.setattr(settler, "OUTAGE", FOR_EVER)
    monkeypatch.setattr(poller, "RETRY", FOR_EVER)
    monkeypatch.setattr(listener, "RETRY", FOR_EVER)
    app = Everpoll(own_server.url(), lease="30s")
    running, end = asyncio.Event(), asyncio.Event()

    @app.job
    async def work(task: Task) -> int:
        running.set()
        await end.wait()
        return task.id

    async with app:
        store = await app.store()
        first = await work.enqueue()
        await running.wait()
        await asyncio.to_thread(own_server.stop)
        end.set()
        assert isinstance(store, PostgresStore)
        async with asyncio.timeout(SOON_S):
            while len(store._connector.reach._sleepers) < 2:  # noqa: ASYNC110 - settler and listener begin to wait
                await asyncio.sleep(0.01)
        await asyncio.to_thread(own_server.start)
        async with asyncio.timeout(SOON_S):
            assert await first.result() == first.id
            second = await work.enqueue()
            assert await second.result() == second.id
            while not store.has_push:  # noqa: ASYNC110 - a store has no event for it
                await asyncio.sleep(0.01)


async def test_sleepers_are_woken_by_the_end_of_an_outage_alone() -> None:
    """A part that fails for a reason of its own keeps its back-off, however well the others do."""
    reach = Reachability()
    sleeper = asyncio.ensure_future(reach.wait(600.0))
    await asyncio.sleep(0)
    for _ in range(3):
        reach.reached()
    await asyncio.sleep(0)
    assert not sleeper.done()
    reach.lost()
    reach.reached()
    await asyncio.wait_for(sleeper, SOON_S)


async def test_two_parts_that_fail_in_turn_do_not_drive_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wake-ups keep a distance, by the steady clock."""
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    reach, woken = Reachability(), []
    reach.subscribe(lambda: woken.append(now))
    for _ in range(50):
        reach.lost()
        reach.reached()
        now += WAKE_GAP_S / 10
    assert len(woken) == 5


async def test_a_thread_wakes_the_event_loop() -> None:
    """The heartbeat may be the first that gets through."""
    reach = Reachability()
    sleeper = asyncio.ensure_future(reach.wait(600.0))
    await asyncio.sleep(0)
    reach.lost()
    thread = threading.Thread(target=reach.reached)
    thread.start()
    await asyncio.wait_for(sleeper, SOON_S)
    thread.join()
    assert reach._sleepers == []


async def test_a_wait_ends_by_itself() -> None:
    reach = Reachability()
    reach.lost()
    await reach.wait(0.01)
    assert reach._sleepers == []
