"""A heartbeat needs only its own thread: an event loop that is blocked does not lose its leases."""

import asyncio
import threading

from everpoll.stores.contract import Beat
from stores.stage import LEASE_S, Stage, done


async def test_a_blocked_event_loop_does_not_stop_the_beat(stage: Stage) -> None:
    """The loop stands still until the beats are over, as if a handler computed for hours."""
    worker, witness = await stage.worker(), await stage.worker()
    lease = await stage.running(worker)
    dead = await stage.worker()
    await stage.put()
    left = await stage.take_one(dead)
    beats: list[Beat] = []

    def heart() -> None:
        heartbeat = stage.store.heartbeat_connection()
        try:
            beats.extend(heartbeat.beat(worker, LEASE_S, [lease.id]) for _ in range(3))
        finally:
            heartbeat.close()

    thread = threading.Thread(target=heart)
    thread.start()
    thread.join()
    assert [beat.is_alive for beat in beats] == [True] * 3
    assert await stage.declare_dead(witness, dead) == 1
    assert (await stage.show(left.id)).state == "queued"
    assert await stage.store.settle(worker, [done(lease)]) == set()


async def test_beats_beside_work(stage: Stage) -> None:
    """Dozens of statements of the loop and the beats of several threads: neither waits for the other for ever."""
    worker = await stage.worker()
    stop = threading.Event()
    alive: list[bool] = []

    def heart() -> None:
        heartbeat = stage.store.heartbeat_connection()
        while not stop.is_set():
            alive.append(heartbeat.beat(worker, LEASE_S, [1, 2, 3]).is_alive)
        heartbeat.close()

    hearts = [asyncio.to_thread(heart) for _ in range(2)]

    async def work() -> None:
        try:
            for _ in range(15):
                await stage.put(5)
                await stage.store.settle(worker, [done(one) for one in await stage.take(worker)])
        finally:
            stop.set()

    await asyncio.gather(*hearts, work())
    assert len(alive) >= 2
    assert all(alive)


async def test_a_heartbeat_connection_may_be_closed_twice_and_made_anew(stage: Stage) -> None:
    worker = await stage.worker()

    def heart() -> list[bool]:
        answers = []
        for _ in range(3):
            heartbeat = stage.store.heartbeat_connection()
            answers.append(heartbeat.beat(worker, LEASE_S, []).is_alive)
            heartbeat.close()
            heartbeat.close()
        return answers

    assert await asyncio.to_thread(heart) == [True] * 3


async def test_a_beat_asks_about_many_tasks(stage: Stage) -> None:
    worker = await stage.worker()
    ids = await stage.put(1000)
    for _ in range(2):
        await stage.take(worker, 500)
    await stage.store.cancel(ids[777], '{"what":"cancel"}')
    assert (await stage.beat(worker, ids)).canceled == (ids[777],)
