"""After a poll that found only tasks with limits, a shorter function leases: it keeps every promise of the long one."""

from collections import Counter
from typing import Any

import pytest

from everpoll.errors import LeaseLost
from everpoll.stores import limits
from everpoll.stores.contract import Lease, Limit
from everpoll.stores.postgres import PostgresStore, leasing
from stores.stage import Stage, done, json

ROOM = 20
RUNNING = 3
KEYS = tuple(f"key-{number:02}" for number in range(12))


class Calls:
    """Which function each poll has called, and what it brought."""

    def __init__(self, store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[str] = []
        call = store._leasing._call

        async def noted(statement: str, *values: Any) -> Any:
            row = await call(statement, *values)
            brought = len(row["ids"] or ())
            self.made.append(f"{'short' if statement == leasing.LEASE_LIMITED else 'long'} {brought}")
            return row

        monkeypatch.setattr(store._leasing, "_call", noted)


@pytest.fixture
def calls(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> Calls:
    """The calls of this store."""
    return Calls(store, monkeypatch)


async def put_of_keys(stage: Stage, each: int, **fields: Any) -> None:
    """So many tasks of each key, the keys in turns."""
    for _ in range(each):
        for key in KEYS:
            await stage.put_one(limit=Limit(key, running=RUNNING), **fields)


async def begun(stage: Stage, store: PostgresStore, calls: Calls, **fields: Any) -> int:
    """A worker that has polled once, and found only tasks with limits; the next poll is a short one."""
    worker = await stage.worker(**fields)
    await put_of_keys(stage, 6)
    leases = await stage.take(worker, ROOM)
    assert len(leases) == ROOM
    await store.settle(worker, [done(one) for one in leases])
    calls.made.clear()
    return worker


async def test_no_key_has_more_than_its_limit_keys_take_turns_and_nothing_is_left(
    stage: Stage, store: PostgresStore, calls: Calls
) -> None:
    worker = await stage.worker()
    await put_of_keys(stage, 10)
    taken: list[Lease] = []
    running: list[Lease] = []
    while len(taken) < 10 * len(KEYS):
        found = await stage.take(worker, ROOM)
        running += found
        taken += found
        assert max(Counter(one.limit_key for one in running).values(), default=0) <= RUNNING
        done_now, running = running[: ROOM // 2], running[ROOM // 2 :]
        await store.settle(worker, [done(one) for one in done_now])
    assert sum(call.startswith("short") for call in calls.made) >= 4, calls.made
    of_key = Counter(one.limit_key for one in taken[: len(taken) // 2])
    assert max(of_key.values()) - min(of_key.values()) <= RUNNING, "each key had its turns"
    for key in KEYS:
        ids = [one.id for one in taken if one.limit_key == key]
        assert ids == sorted(ids), "the oldest of a key come first"
    assert len({one.id for one in taken}) == len(taken)


async def test_what_runs_in_another_process_counts(stage: Stage, store: PostgresStore, calls: Calls) -> None:
    worker = await begun(stage, store, calls)
    other = await stage.another_store()
    card = await stage.worker("other")
    theirs = (await other.lease(card, {"default": 30}, 30)).leases
    ours = await stage.take(worker, ROOM)
    assert calls.made[0].startswith("short")
    assert max(Counter(one.limit_key for one in (*ours, *theirs)).values()) <= RUNNING


async def test_a_task_without_a_limit_keeps_its_place(stage: Stage, store: PostgresStore, calls: Calls) -> None:
    """An urgent one, and one that waits and falls due: the next poll has them, and is a long one."""
    worker = await begun(stage, store, calls)
    urgent = await stage.put_one(priority=9)
    assert (await stage.take(worker, 2))[0].id == urgent
    calls.made.clear()
    late = await stage.put_one(delay_s=30.0, priority=9)
    assert late not in [one.id for one in await stage.take(worker, 1)]
    await stage.pass_time(31)
    assert (await stage.take(worker, 1))[0].id == late


async def test_an_urgent_task_with_a_limit_comes_first(stage: Stage, store: PostgresStore, calls: Calls) -> None:
    worker = await begun(stage, store, calls)
    urgent = await stage.put_one(priority=9, limit=Limit("key-99", running=1))
    assert (await stage.take(worker, 2))[0].id == urgent


async def test_rates_are_kept(stage: Stage, store: PostgresStore, calls: Calls) -> None:
    """A key with a rate among the others: the long function counts its starts."""
    worker = await begun(stage, store, calls)
    rated = [await stage.put_one(limit=Limit("key-00-rated", starts=2, per_s=60.0)) for _ in range(5)]
    taken: list[int] = []
    for _ in range(10):
        leases = await stage.take(worker, ROOM)
        taken += [one.id for one in leases]
        await store.settle(worker, [done(one) for one in leases])
    assert len(set(taken) & set(rated)) == 2


async def test_a_paused_queue_gives_nothing(stage: Stage, store: PostgresStore, calls: Calls) -> None:
    worker = await begun(stage, store, calls)
    await store.pause("default", "test", "test")
    assert await stage.take(worker, ROOM) == []
    assert calls.made == ["short 0", "long 0"]


async def test_payloads_that_are_too_many_bytes_are_shared_out(
    stage: Stage, store: PostgresStore, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = await begun(stage, store, calls)
    monkeypatch.setattr(limits, "LEASE_BYTES", 10_000)
    await put_of_keys(stage, 1, args=json(["x" * 1_000]))
    found = 0
    for _ in range(100):
        leases = await stage.take(worker, ROOM)
        found += len(leases)
        assert sum(len(one.args) for one in leases) <= 10_000
        await store.settle(worker, [done(one) for one in leases])
        if not leases:
            break
    assert found == 7 * len(KEYS) - ROOM


async def test_a_worker_that_was_declared_dead_leases_nothing(stage: Stage, store: PostgresStore, calls: Calls) -> None:
    worker = await begun(stage, store, calls)
    finder = await stage.worker("finder")
    await stage.declare_dead(finder, worker)
    with pytest.raises(LeaseLost):
        await stage.take(worker, ROOM)


async def test_memories_attempts_and_keys_come_with_the_tasks(stage: Stage, store: PostgresStore, calls: Calls) -> None:
    """The few tasks that have them."""
    worker = await begun(stage, store, calls)
    keyed = await stage.put_one(key="only", version=3, limit=Limit(KEYS[0], running=RUNNING))
    found: dict[int, Lease] = {}
    for _ in range(20):
        leases = await stage.take(worker, ROOM)
        found |= {one.id: one for one in leases}
        await store.settle(worker, [done(one) for one in leases])
        if keyed in found:
            break
    assert (found[keyed].key, found[keyed].version, found[keyed].limit_key) == ("only", 3, KEYS[0])
    assert all(one.limit_key in KEYS and one.attempt == 1 for one in found.values())
