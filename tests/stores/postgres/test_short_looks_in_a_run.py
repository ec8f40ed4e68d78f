"""In a run of full batches a shorter function leases: it keeps every promise of the long one."""

import random
from typing import Any

import pytest

from everpoll.errors import LeaseLost
from everpoll.stores import limits
from everpoll.stores.contract import Lease
from everpoll.stores.postgres import PostgresStore, leasing, marks
from everpoll.stores.postgres.marks import RUN_POLLS, RUN_ROWS
from stores.postgres.test_marks_skip_nothing import by_hand
from stores.stage import Stage, again, json


class Calls:
    """Which of the two functions each look has called."""

    def __init__(self, store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[str] = []
        call = store._leasing._call

        async def noted(statement: str, *values: Any) -> Any:
            self.made.append("short" if statement == leasing.LEASE_RUN else "long")
            return await call(statement, *values)

        monkeypatch.setattr(store._leasing, "_call", noted)


@pytest.fixture
def calls(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> Calls:
    """The calls of this store; its full looks count as cheap, however busy the machine is."""
    monkeypatch.setattr(marks, "SLOW_S", 3600.0)
    return Calls(store, monkeypatch)


async def run_begun(stage: Stage, store: PostgresStore, calls: Calls) -> int:
    """Bring a worker into the middle of a run; the next look is a short one."""
    worker = await stage.worker()
    await stage.put(RUN_POLLS * RUN_ROWS)
    store._leasing._limit_visits._clock = by_hand(store)
    for _ in range(RUN_POLLS):
        await stage.take(worker, RUN_ROWS)
    calls.made.clear()
    return worker


async def test_a_short_look_leases_what_a_long_one_would(
    stage: Stage, store: PostgresStore, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two queues with equal tasks, of several priorities, with keys, memories and earlier attempts."""
    rng = random.Random(3)
    worker = await stage.worker(queues=("a", "b"))
    plan = [(rng.randint(-2, 2), rng.random()) for _ in range(8 * RUN_ROWS)]
    for queue in ("a", "b"):
        for nth, (priority, kind) in enumerate(plan):
            key = f"{queue}-{nth}" if kind > 0.8 else None
            await stage.put_one(queue=queue, priority=priority, args=json([nth]), key=key)
        first = await stage.take(worker, 20, queue)
        await store.settle(worker, [again(lease, 0.0, memory="{}" if lease.id % 2 else None) for lease in first[:7]])
        await store.settle(worker, [again(lease, None, refund=True) for lease in first[7:]])
    store._leasing._limit_visits._clock = by_hand(store)
    short = await _drained(stage, worker, "a")
    used, calls.made = calls.made, []
    with monkeypatch.context() as only:
        only.setattr(store._leasing, "_poll_in_run", _never)
        long = await _drained(stage, worker, "b")
    assert used.count("short") >= 4
    assert calls.made.count("short") == 0
    assert [_fields(lease) for lease in short] == [_fields(lease) for lease in long]
    assert sorted(_fields(lease)[0] for lease in short) == sorted(json([nth]) for nth in range(len(plan)))


async def test_an_urgent_task_is_leased_next_in_the_middle_of_a_run(
    stage: Stage, store: PostgresStore, calls: Calls
) -> None:
    """A priority that no look has met before, and one that is known."""
    worker = await run_begun(stage, store, calls)
    await stage.put(2 * RUN_ROWS)
    urgent = await stage.put_one(priority=9)
    leases = await stage.take(worker, RUN_ROWS)
    assert (leases[0].id, calls.made) == (urgent, ["short"])


async def test_a_paused_queue_gives_nothing_in_the_middle_of_a_run(
    stage: Stage, store: PostgresStore, calls: Calls
) -> None:
    """Whichever queue is paused: the long function is asked."""
    worker = await run_begun(stage, store, calls)
    await stage.put(RUN_ROWS)
    await store.pause("default", "test", "test")
    assert await stage.take(worker, RUN_ROWS) == []
    assert calls.made[:2] == ["short", "long"]


async def test_payloads_that_are_too_many_bytes_are_shared_out_in_the_middle_of_a_run(
    stage: Stage, store: PostgresStore, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The long function leases as many as fit; nothing is left behind."""
    worker = await run_begun(stage, store, calls)
    ids = await stage.put(RUN_ROWS, args=json(["x" * 1_000]))
    monkeypatch.setattr(limits, "LEASE_BYTES", 10_000)
    leases = await stage.take(worker, RUN_ROWS)
    assert (len(leases) < RUN_ROWS, calls.made[:2]) == (True, ["short", "long"])
    while len(leases) < len(ids):
        leases += await stage.take(worker, RUN_ROWS)
    assert [lease.id for lease in leases] == ids


async def test_a_worker_that_was_declared_dead_leases_nothing_in_the_middle_of_a_run(
    stage: Stage, store: PostgresStore, calls: Calls
) -> None:
    """It has to sign on anew."""
    worker = await run_begun(stage, store, calls)
    await stage.put(RUN_ROWS)
    finder = await stage.worker("finder")
    await stage.declare_dead(finder, worker)
    store._marks._wants_full = False
    with pytest.raises(LeaseLost):
        await stage.take(worker, RUN_ROWS)
    assert calls.made == ["short"]


async def _drained(stage: Stage, worker: int, queue: str) -> list[Lease]:
    leases: list[Lease] = []
    while found := await stage.take(worker, RUN_ROWS, queue):
        leases += found
    return leases


async def _never(*_: object) -> None:
    """Stand in for the short look: the long one is asked."""


def _fields(lease: Lease) -> tuple[Any, ...]:
    key = None if lease.key is None else lease.key.split("-")[1]
    return (lease.args, lease.sequence, lease.attempt, lease.memory, key, lease.rescues, lease.version)
