"""A waiting task that falls due is leased where it waits: no index is written, and else it is a task like any other."""

from typing import Any

import pytest

from everpoll.stores.operations import Revision
from everpoll.stores.postgres import PostgresStore
from stores.postgres.test_looks_lock_what_they_lease import UNLOCKED, connected, leased_by, look_by, looking
from stores.stage import HOUR_S, WATCH, Stage, again, done

LINES = "select line, count(*) from everpoll.tasks group by line order by line"
UPDATES = "select n_tup_hot_upd, n_tup_upd from pg_stat_xact_user_tables where relname = 'tasks'"


async def lines(url: str) -> dict[int, int]:
    """How many tasks are in each line."""
    async with connected(url) as connection:
        return dict(await connection.fetch(LINES))


async def waiting(stage: Stage, how_many: int, **fields: Any) -> list[int]:
    """Tasks that have waited and are due; in the order of their due times."""
    ids = []
    for number in range(how_many):
        ids += await stage.put(delay_s=10.0 + number, **fields)
    await stage.pass_time(60)
    return ids


async def test_due_tasks_are_leased_in_their_order_and_stay_in_their_line(stage: Stage, url: str) -> None:
    worker = await stage.worker()
    ids = await waiting(stage, 5)
    first, rest = await stage.take(worker, 3), await stage.take(worker)
    assert [one.id for one in (*first, *rest)] == ids
    assert await stage.take(worker) == []
    assert await lines(url) == {1: 5}, "none of them was made ready first"
    assert await stage.store.settle(worker, [again(one, HOUR_S) for one in (*first, *rest)]) == set()
    assert await stage.take(worker) == []
    await stage.pass_time(2 * HOUR_S)
    assert [one.id for one in await stage.take(worker)] == ids


async def test_the_next_due_time_is_that_of_a_task_that_no_worker_has(stage: Stage) -> None:
    worker = await stage.worker()
    await waiting(stage, 2)
    await stage.put(delay_s=HOUR_S)
    looked = await stage.store.lease(worker, {"default": 10}, 10)
    assert (len(looked.leases), looked.is_all) == (2, True)
    for _ in range(2):
        assert looked.next_due_s is not None
        assert HOUR_S - 60 < looked.next_due_s <= HOUR_S
        looked = await stage.store.lease(worker, {"default": 10}, 10)
        assert looked.leases == []


async def test_what_a_lost_worker_leased_there_is_rescued(stage: Stage) -> None:
    lost, other = await stage.worker(), await stage.worker()
    ids = await waiting(stage, 3, memory='"kept"')
    assert [one.id for one in await stage.take(lost)] == ids
    assert await stage.declare_dead(other, lost) == 3
    assert {one.id for one in await stage.take(other)} == set(ids)


async def test_a_lease_whose_answer_was_lost_is_handed_back(stage: Stage, url: str) -> None:
    worker = await stage.worker()
    ids = await waiting(stage, 2)
    async with looking(url, worker, {"default": 5}, 5) as taken:
        assert taken == ids  # the answer goes to another connection: the store does not know of it
    assert isinstance(stage.store, PostgresStore)
    stage.store._held_leases.doubt(worker)
    found = await stage.take(worker)
    found += await stage.take(worker) if not found else []
    assert [one.id for one in found] == ids
    assert all(one.attempt == 1 for one in found), "a lease that reached no worker costs no attempt"


async def test_one_that_runs_for_long_leaves_the_index_of_waiting_tasks(stage: Stage, url: str) -> None:
    worker = await stage.worker()
    await waiting(stage, 2)
    leases = await stage.take(worker)
    await stage.pass_time(10)
    await stage.beat(worker, [one.id for one in leases])
    assert await lines(url) == {2: 2}
    assert await stage.store.settle(worker, [done(one) for one in leases]) == set()


async def test_a_ready_task_and_a_priority_have_their_place_before_it(stage: Stage) -> None:
    """The order of work is that of priority and due time, whatever line a task is in."""
    worker = await stage.worker()
    [urgent] = await stage.put(delay_s=30.0, priority=5)
    late = await waiting(stage, 2)
    ready = await stage.put_one()
    assert [(await stage.take(worker, 1))[0].id for _ in range(4)] == [urgent, *late, ready]


async def test_a_look_at_waiting_tasks_locks_what_it_leases_and_knows_what_is_locked(stage: Stage, url: str) -> None:
    first, second = await stage.worker(), await stage.worker()
    ids = await waiting(stage, 6)
    async with looking(url, first, {"default": 2}, 2) as taken, connected(url) as other:
        assert taken == ids[:2]
        assert await other.fetchval(UNLOCKED) == 4
        looked = await stage.store.lease(second, {"default": 10}, 10)
        assert [one.id for one in looked.leases] == ids[2:]
        assert (looked.is_all, looked.next_due_s) == (False, 0.0), "the other transaction may give them up"
    looked = await stage.store.lease(second, {"default": 10}, 10)
    assert (looked.leases, looked.is_all) == ([], True)


async def test_it_is_shown_as_running_and_not_as_late(stage: Stage) -> None:
    worker = await stage.worker()
    [first, second] = await waiting(stage, 2)
    await stage.take(worker, 1)
    assert [(await stage.show(one)).state for one in (first, second)] == ["running", "queued"]
    [queue] = await stage.store.queues()
    assert (queue.running, queue.ready + queue.waiting) == (1, 1)
    await stage.take(worker, 1)
    [queue] = await stage.store.queues()
    assert (queue.running, queue.ready, queue.waiting) == (2, 0, 0)


@pytest.mark.parametrize("is_canceled", [False, True])
async def test_a_change_while_it_runs_makes_it_due_when_it_settles(stage: Stage, is_canceled: bool) -> None:
    """Neither a revision nor a request to cancel lets a second worker have it meanwhile."""
    worker = await stage.worker()
    [task_id] = await waiting(stage, 1, **{**WATCH, "key": "one"})
    lease = await stage.take_one(worker)
    if is_canceled:
        await stage.store.cancel(task_id, '{"what":"cancel"}')
    else:
        await stage.store.revise([Revision("watch", "one", hurry=True)])
    assert await stage.take(worker) == []
    assert await stage.store.settle(worker, [again(lease, HOUR_S)]) == set()
    assert (await stage.take_one(worker)).cancel_requested is is_canceled


async def test_leasing_what_waits_writes_no_index(stage: Stage, url: str) -> None:
    """Each lease is an update within its page."""
    worker = await stage.worker()
    await waiting(stage, 20)
    async with connected(url) as connection, connection.transaction():
        assert len(await leased_by(connection, worker, {"default": 50}, 50)) == 20
        assert tuple(await connection.fetchrow(UPDATES)) == (20, 20)


async def test_a_task_that_falls_due_during_a_look_is_due_in_a_moment(stage: Stage, url: str) -> None:
    """It is not one that others hold: a poller rests after those."""
    worker = await stage.worker()
    await stage.put(delay_s=HOUR_S)
    async with connected(url) as connection, connection.transaction():
        await connection.execute("update everpoll.tasks set due_at = now() + interval '1 millisecond'")
        await connection.execute("select pg_sleep(0.01)")
        row = await look_by(connection, worker, {"default": 5}, 5)
    assert row["ids"] is None, "it was not due when this transaction began"
    assert 0 < row["next_due_s"] < 0.01
