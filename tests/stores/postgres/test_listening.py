"""Wake-ups: seldom sent, proven to arrive, heard again after every break."""

import asyncio
import logging

import asyncpg
import pytest

from everpoll.drivers.postgres import listener
from everpoll.drivers.wake import NOW
from everpoll.errors import BadInput
from everpoll.stores.contract import NewTask
from everpoll.stores.postgres import PostgresStore, notify
from everpoll.stores.postgres.notify import Notifier
from stores.stage import HOUR_S, Stage, again, done, json

NOTE = json({"what": "test"})


class Listening:
    """Counts what really goes over the wire."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.changed = asyncio.Event()

    def __call__(self, *notification: object) -> None:
        self.heard.append(str(notification[-1]))
        self.changed.set()

    async def hears(self, count: int) -> None:
        async with asyncio.timeout(20):
            while len(self.heard) < count:
                self.changed.clear()
                await self.changed.wait()


async def overheard(url: str) -> tuple[asyncpg.Connection, Listening]:
    connection, listening = await asyncpg.connect(url), Listening()
    await connection.add_listener("everpoll", listening)
    return connection, listening


async def flush(connection: asyncpg.Connection, listening: Listening) -> list[str]:
    """Everything committed before this has been heard after it."""
    await connection.execute("notify everpoll, 'end'")
    async with asyncio.timeout(20):
        while "end" not in listening.heard:
            listening.changed.clear()
            await listening.changed.wait()
    heard, listening.heard = [one for one in listening.heard if one != "end"], []
    return heard


async def test_a_burst_is_told_twice(
    store: PostgresStore, stage: Stage, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At its start and at its end, however many tasks it has."""
    monkeypatch.setattr(notify, "WINDOW_S", 600.0)
    connection, listening = await overheard(url)
    try:
        for _ in range(20):
            await stage.put()
        await stage.put(30)
        await store.enqueue([NewTask(name="job", key="k")])
        assert await flush(connection, listening) == [""]
        await store._notifier.close()
        assert await flush(connection, listening) == [""]
        await store._notifier.close()
        assert await flush(connection, listening) == []
    finally:
        await connection.close()


async def test_a_statement_that_failed_told_nothing(store: PostgresStore, url: str) -> None:
    """So the next one does."""
    connection, listening = await overheard(url)
    try:
        for _ in range(3):
            with pytest.raises(BadInput):
                await store.enqueue([NewTask(name="nul \0")])
        await store.enqueue([NewTask(name="job")])
        assert await flush(connection, listening) == [""]
    finally:
        await connection.close()


async def test_settlements_tell_only_of_what_is_due(stage: Stage, store: PostgresStore, url: str) -> None:
    """Completions wake no worker, nor do retries that wait: their own worker knows. A hand-back does."""
    worker = await stage.worker()
    await stage.put(3)
    leases = await stage.take(worker)
    await store._notifier.close()
    connection, listening = await overheard(url)
    try:
        await store.settle(worker, [done(leases[0]), again(leases[1], HOUR_S)])
        await store._notifier.close()
        assert await flush(connection, listening) == []
        await store.settle(worker, [again(leases[2], None)])
        await store._notifier.close()
        assert await flush(connection, listening) == [""]
    finally:
        await connection.close()


async def test_who_listens_here_is_woken_without_the_wire(stage: Stage, store: PostgresStore) -> None:
    """And once: what comes back over the wire was ours."""
    listening = Listening()
    await store.listen(listening)
    await stage.put()
    await asyncio.sleep(0)
    assert listening.heard == [str(NOW)]
    other = await stage.another_store()
    await other.enqueue([NewTask(name="job")])
    await listening.hears(2)
    assert listening.heard == [str(NOW)] * 2


async def test_a_cancel_is_told_as_one(stage: Stage, store: PostgresStore, url: str) -> None:
    worker = await stage.worker()
    lease = await stage.running(worker)
    await store._notifier.close()
    connection, listening = await overheard(url)
    try:
        await store.cancel(lease.id, NOTE)
        assert await flush(connection, listening) == ["c"]
    finally:
        await connection.close()


async def test_an_idle_listener_proves_that_it_lives(
    stage: Stage, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection that looks fine and hears nothing is found out, and replaced."""
    monkeypatch.setattr(listener, "PROVE_S", 0.01)
    monkeypatch.setattr(listener, "ANSWER_S", 0.05)
    opened: list[listener.ListeningConnection] = []
    really_open = listener.ListeningConnection.open

    async def remember(connection: listener.ListeningConnection) -> bool:
        opened.append(connection)
        return await really_open(connection)

    monkeypatch.setattr(listener.ListeningConnection, "open", remember)
    woken = asyncio.Event()
    await store.listen(lambda _: woken.set())
    assert store.has_push
    assert len(opened) == 1
    opened[0]._proof = "unheard"  # as when a firewall has forgotten the connection
    async with asyncio.timeout(20):
        await woken.wait()
    assert store.has_push
    assert len(opened) >= 2
    del stage


async def test_the_log_tells_of_a_break_and_of_no_other(
    stage: Stage, store: PostgresStore, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        await store.listen(lambda _: None)
        assert caplog.records == []
        woken = asyncio.Event()
        await store.listen(lambda _: woken.set())
        await stage.backend.cut_connections()
        async with asyncio.timeout(20):
            await woken.wait()
    assert any("listening for notifications broke off" in one.message for one in caplog.records)
    assert all(one.levelno == logging.WARNING for one in caplog.records)


async def test_timers_of_another_event_loop_are_forgotten(store: PostgresStore) -> None:
    """A notification that was to follow in a loop that has ended must not keep this one silent."""
    notifier = Notifier(store._entrance)
    assert await asyncio.to_thread(asyncio.run, _rides(notifier, 2)) == [True, False]
    assert [notifier.carries_notification(), notifier.carries_notification()] == [True, False]
    await notifier.close()


async def _rides(notifier: Notifier, times: int) -> list[bool]:
    return [notifier.carries_notification() for _ in range(times)]
