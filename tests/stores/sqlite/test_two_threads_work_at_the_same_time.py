"""The event loop hands the interpreter over to the writer's thread, if that has something to do, and only then."""

import asyncio
import threading

import pytest

from everpoll.drivers.sqlite import lane
from everpoll.drivers.sqlite.lane import Op
from everpoll.stores.sqlite import SqliteStore


async def test_the_event_loop_pauses_only_for_a_writer_that_is_at_work(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    paused: list[float] = []
    monkeypatch.setattr(lane, "time", type("Time", (), {"sleep": paused.append}))
    await store._write(Op(lambda _con: None))
    while store._lanes.writer is not None and store._lanes.writer._is_performing:  # noqa: ASYNC110 - it does not tell
        await asyncio.sleep(0)
    store.yield_to_thread()
    assert paused == []
    at_work, go_on = threading.Event(), threading.Event()

    def work(_con: object) -> None:
        at_work.set()
        go_on.wait(20)

    working = store._write(Op(work))
    assert await asyncio.to_thread(at_work.wait, 20)
    store.yield_to_thread()
    assert paused == [lane.HAND_OVER_S]
    go_on.set()
    await working


async def test_a_closed_store_has_no_listener_to_hand_over_to(url: str) -> None:
    store = SqliteStore(url)
    store.yield_to_thread()
    await store.open()
    await store.close()
    store.yield_to_thread()
