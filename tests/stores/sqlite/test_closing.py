"""Opening and closing at any time: repeatable, bounded, nothing left behind; and callers that are canceled."""

import asyncio
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

import own_threads
from everpoll.drivers.wake import Wake
from everpoll.errors import EverpollError, NotRunning, StoreUnavailable
from everpoll.stores.contract import Ended, Enqueued, Lease, NewTask, WorkerCard
from everpoll.stores.sqlite import SqliteStore
from stores.sqlite.processes import finish, start

JOB = NewTask(name="job")
CARD = WorkerCard(incarnation=5, label="w", host="h", pid=1, queues=("default",), slots=1, version="0")


def _threads() -> list[str]:
    return [thread.name for thread in own_threads.started()]


async def test_closing_is_repeatable_and_leaves_nothing(path: Path, url: str) -> None:
    store = SqliteStore(url)
    await store.close()
    for number in (1, 2):
        await store.open()
        await store.open()
        assert len(_threads()) == 2
        assert await store.enqueue([JOB]) == [Enqueued(number)]
        assert len(await store.info([number])) == 1
        await asyncio.gather(store.close(), store.close())
        await store.close()
        assert _threads() == []
    assert [one.name for one in path.parent.iterdir()] == [path.name]


async def test_a_closed_store_says_so(url: str) -> None:
    store = SqliteStore(url)
    for call in (store.enqueue([JOB]), store.info([1]), store.sign_off(1), store.queues()):
        with pytest.raises(NotRunning, match=r"open\(\)"):
            await call


async def test_what_was_submitted_before_is_answered(store: SqliteStore) -> None:
    asked = [asyncio.create_task(store.enqueue([JOB])) for _ in range(200)]
    await asyncio.sleep(0)
    await store.close()
    answers = await asyncio.gather(*asked)
    assert [one.id for [one] in answers] == list(range(1, 201))


async def test_a_lock_does_not_hold_up_the_closing(path: Path, url: str) -> None:
    """However patient the store is: who waits for the lock is told that it is over."""
    store = SqliteStore(url, patience_s=3600)
    await store.open()
    with closing(sqlite3.connect(path, isolation_level=None)) as intruder:
        intruder.execute("begin immediate")
        asked = asyncio.create_task(store.enqueue([JOB]))
        await asyncio.sleep(0)
        async with asyncio.timeout(30):
            await store.close()
        intruder.execute("rollback")
    with pytest.raises(StoreUnavailable, match="locked"):
        await asked
    assert _threads() == []


def test_a_store_outlives_its_event_loop(url: str) -> None:
    """Each call is answered in the loop that it came from; a loop that is gone holds up no other."""
    store = SqliteStore(url)
    woken: list[Wake] = []

    async def listen_and_leave() -> None:
        await store.open()
        await store.listen(woken.append)
        left = asyncio.ensure_future(store.enqueue([JOB]))
        await asyncio.sleep(0)
        left.cancel()

    async def go_on() -> list[Enqueued]:
        answer = await store.enqueue([JOB])
        await store.close()
        return answer

    asyncio.run(listen_and_leave())
    assert asyncio.run(go_on())[0].is_new
    assert _threads() == []


def test_an_interpreter_ends_although_a_store_is_open(url: str) -> None:
    process = start(
        url,
        """
        await store.enqueue([NewTask(name="job")])
        await store.listen(print)
        say("end")
        sys.exit(0)
        """,
    )
    assert "end" in finish(process)[0]


async def test_a_canceled_caller_leases_nothing(store: SqliteStore) -> None:
    """Not even if the lease was committed already: it is handed back at no cost."""
    await store.sign_on(CARD, 600)
    ids = [one.id for one in await store.enqueue([JOB] * 3)]
    assert store._lanes.writer is not None
    commits = store._lanes.writer._commits
    asked = asyncio.create_task(store.lease(5, {"default": 5}, 5))
    await asyncio.sleep(0)
    while store._lanes.writer._commits == commits:
        time.sleep(0.001)  # noqa: ASYNC251 - the answer must not get through before the cancellation does
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    leases: list[Lease] = []
    async with asyncio.timeout(30):
        while not leases:
            leases = (await store.lease(5, {"default": 5}, 5)).leases
    assert [(one.id, one.attempt, one.sequence, one.rescues) for one in leases] == [(one, 1, 2, 0) for one in ids]


async def test_a_caller_canceled_before_its_turn_leases_nothing(path: Path, url: str) -> None:
    store = SqliteStore(url, patience_s=60)
    await store.open()
    await store.sign_on(CARD, 600)
    [task] = await store.enqueue([JOB])
    with closing(sqlite3.connect(path, isolation_level=None)) as intruder:
        intruder.execute("begin immediate")
        asked = asyncio.create_task(store.lease(5, {"default": 5}, 5))
        await asyncio.sleep(0)
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)
        intruder.execute("rollback")
    [lease] = (await store.lease(5, {"default": 5}, 5)).leases
    assert (lease.id, lease.sequence) == (task.id, 1)
    assert await store.settle(5, [Ended(lease.id, lease.sequence)]) == set()
    await store.close()


async def test_a_refusal_in_a_group_is_only_for_the_one_refused(store: SqliteStore) -> None:
    asked = [store.enqueue([JOB]), store.lease(99, {"default": 1}, 1), store.enqueue([JOB])]
    first, refused, last = await asyncio.gather(*asked, return_exceptions=True)
    assert isinstance(refused, EverpollError)
    assert [first, last] == [[Enqueued(1)], [Enqueued(2)]]


def test_a_store_may_be_opened_and_closed_on_one_event_loop_after_another(path: Path) -> None:
    """Several callers at once each time: a caller that has to wait binds a lock to its event loop."""
    store = SqliteStore(f"sqlite:///{path}")

    async def together() -> None:
        await asyncio.gather(*(store.open() for _ in range(3)))
        assert await store.queues() == []
        await asyncio.gather(*(store.close() for _ in range(3)))

    for _ in range(3):
        asyncio.run(together())
