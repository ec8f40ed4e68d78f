"""Two pollers, one row: exactly one claims. Whatever else happens at the same moment happens once, too.

In one process several store objects race, each on connections of its own; where the tasks are shared between
processes, several of those do.
"""

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from everpoll.errors import LeaseLost
from everpoll.stores.contract import Ended, NewTask, Store, TaskFilter
from stores.backends import Backend
from stores.stage import HOUR_S, Stage, again, card_of, done, json
from warm_processes import PIPE, WarmProcess

ROWS = 10_000
NOTE = json({"what": "test"})


async def lease_all(store: Store, most: int) -> list[int]:
    """What one poller gets, until it sees nothing any more."""
    card = card_of()
    await store.sign_on(card, 600.0)
    got: list[int] = []
    looked = await store.lease(card.incarnation, {"default": most}, most)
    while looked.leases or looked.next_due_s is not None:
        got += [lease.id for lease in looked.leases]
        looked = await store.lease(card.incarnation, {"default": most}, most)
    return got


@pytest.mark.parametrize(("rows", "most"), [(1_000, 1), (ROWS, 20), (ROWS, 500)])
async def test_every_row_is_claimed_exactly_once(stage: Stage, rows: int, most: int) -> None:
    """Four pollers always want the same rows: those at the head of the line."""
    ids = await stage.store.enqueue([NewTask(name="job")] * rows)
    stores = [stage.store, *[await stage.another_store() for _ in range(3)]]
    claims = Counter(
        task_id for got in await asyncio.gather(*(lease_all(one, most) for one in stores)) for task_id in got
    )
    assert claims == Counter(one.id for one in ids)


async def test_two_pollers_one_row(stage: Stage) -> None:
    """Literally: the loser sees nothing, and no error."""
    other = await stage.another_store()
    first, second = await stage.worker(), await stage.worker()
    for _ in range(300):
        [answer] = await stage.store.enqueue([NewTask(name="job")])
        looks = await asyncio.gather(
            stage.store.lease(first, {"default": 1}, 1), other.lease(second, {"default": 1}, 1)
        )
        assert [one.id for look in looks for one in look.leases] == [answer.id]


def test_every_row_is_claimed_exactly_once_by_processes(bare_backend: Backend, runner: asyncio.Runner) -> None:
    """On every store that several processes can share."""
    assert bare_backend.url is not None
    stage = Stage(bare_backend)
    runner.run(stage.open())
    ids = runner.run(stage.put(ROWS))
    runner.run(stage.close())
    script = Path(__file__).with_name("leaser.py")
    leasers = [
        WarmProcess([str(script), bare_backend.url, str(incarnation), "50"], stdin=PIPE, stdout=PIPE)
        for incarnation in (11, 12, 13)
    ]
    for leaser in leasers:
        assert leaser.stdout is not None
        assert leaser.stdout.readline() == "ready\n"
    for leaser in leasers:
        assert leaser.stdin is not None
        leaser.stdin.write("go\n")
        leaser.stdin.flush()
    said = [leaser.communicate(timeout=120)[0] for leaser in leasers]
    assert [leaser.returncode for leaser in leasers] == [0, 0, 0]
    assert Counter(int(line) for one in said for line in one.split()) == Counter(ids)


async def test_a_key_is_enqueued_once(stage: Stage) -> None:
    stores = [stage.store, *[await stage.another_store() for _ in range(3)]]
    for number in range(40):
        task = NewTask(name="job", key=f"k{number}")
        answers = await asyncio.gather(*(store.enqueue([task]) for store in stores for _ in range(2)))
        assert len({answer.id for [answer] in answers}) == 1
        assert sum(answer.is_new for [answer] in answers) == 1


async def test_keys_in_opposite_orders_do_not_block_each_other(stage: Stage) -> None:
    """Two calls that take the same keys the other way round would wait for each other for ever."""
    other = await stage.another_store()
    for number in range(15):
        tasks = [NewTask(name="job", key=f"{number}-{key}") for key in range(100)]
        mine, theirs = await asyncio.gather(stage.store.enqueue(tasks), other.enqueue(tasks[::-1]))
        assert [one.id for one in mine] == [one.id for one in reversed(theirs)]
        assert sum(one.is_new for one in (*mine, *theirs)) == 100


async def test_a_key_that_ends_while_it_is_enqueued(stage: Stage) -> None:
    """The answer is the old task or a new one, never neither, and at most one is live."""
    worker, other = await stage.worker(), await stage.another_store()
    for number in range(40):
        lease = await stage.running(worker, key="k")
        lost, [answer] = await asyncio.gather(
            stage.store.settle(worker, [done(lease)]), other.enqueue([NewTask(name="job", key="k", args=str(number))])
        )
        assert lost == set()
        assert answer.is_new == (answer.id != lease.id)
        assert (await stage.show(lease.id)).state == "done"
        if answer.is_new:
            assert await stage.store.cancel(answer.id, NOTE) == "canceled"


async def test_a_lease_is_settled_once(stage: Stage) -> None:
    """The same worker, twice at the same moment: one of them is told that it lost."""
    worker, other = await stage.worker(), await stage.another_store()
    for _ in range(40):
        lease = await stage.running(worker)
        lost = await asyncio.gather(
            stage.store.settle(worker, [done(lease, "a")]), other.settle(worker, [again(lease, HOUR_S)])
        )
        assert sorted(map(len, lost)) == [0, 1]
        assert (await stage.show(lease.id)).state == ("done" if not lost[0] else "queued")


async def test_a_retry_happens_once(stage: Stage) -> None:
    worker, other = await stage.worker(), await stage.another_store()
    task_id = await stage.ended(worker, key="k")
    for _ in range(30):
        answers = await asyncio.gather(stage.store.retry(task_id, NOTE), other.retry(task_id, NOTE))
        assert sorted(answers) == [False, True]
        await stage.store.settle(worker, [done(await stage.take_one(worker))])


async def test_a_retry_and_a_new_task_of_the_same_key(stage: Stage) -> None:
    """At most one of the two is live, whichever comes first."""
    worker, other = await stage.worker(), await stage.another_store()
    for _ in range(30):
        ended = await stage.ended(worker, key="k")
        was_retried, [answer] = await asyncio.gather(
            stage.store.retry(ended, NOTE), other.enqueue([NewTask(name="job", key="k")])
        )
        assert was_retried != answer.is_new
        assert answer.is_new or answer.id == ended
        live = (await stage.store.tasks(TaskFilter(state="queued"))).tasks
        assert [one.id for one in live] == [answer.id]
        await stage.store.cancel(answer.id, NOTE)


async def test_a_cancel_beside_the_end(stage: Stage) -> None:
    """The result stands, or the cancel does; the caller is told which, or that it was asked for."""
    worker, other = await stage.worker(), await stage.another_store()
    for _ in range(30):
        lease = await stage.running(worker)
        lost, state = await asyncio.gather(stage.store.settle(worker, [done(lease)]), other.cancel(lease.id, NOTE))
        assert lost == set()
        assert state in ("done", "running")
        assert (await stage.show(lease.id)).state == "done"


async def test_a_cancel_beside_again(stage: Stage) -> None:
    """Whichever comes first, the task ends as canceled: a request is not forgotten on the way back to the queue."""
    worker, other = await stage.worker(), await stage.another_store()
    for _ in range(30):
        lease = await stage.running(worker)
        lost, state = await asyncio.gather(
            stage.store.settle(worker, [again(lease, HOUR_S)]), other.cancel(lease.id, NOTE)
        )
        assert lost == set()
        assert state in ("canceled", "running")
        assert (await stage.show(lease.id)).state == "canceled"


async def test_a_cancel_beside_the_lease(stage: Stage) -> None:
    worker, other = await stage.worker(), await stage.another_store()
    for _ in range(30):
        task_id = await stage.put_one()
        leases, state = await asyncio.gather(stage.take(worker), other.cancel(task_id, NOTE))
        assert state == ("running" if leases else "canceled")
        assert (await stage.show(task_id)).cancel_requested or not leases
        if leases:
            await stage.store.settle(worker, [again(leases[0])])
        assert (await stage.show(task_id)).state == "canceled"


async def test_a_zombies_settlement_beside_the_rescue(stage: Stage) -> None:
    """It is settled, or it is rescued; never both, never neither."""
    witness = await stage.worker(lease_s=HOUR_S)
    for _ in range(30):
        zombie = await stage.worker()
        lease = await stage.running(zombie)
        lost, rescued = await asyncio.gather(
            stage.store.settle(zombie, [done(lease)]), stage.rescue(witness, [(zombie, 0)])
        )
        shown = await stage.show(lease.id)
        assert (shown.state, rescued, shown.rescues) == (("queued", 1, 1) if lost else ("done", 0, 0))
        await stage.store.cancel(lease.id, NOTE)


async def test_a_lease_beside_the_verdict(stage: Stage) -> None:
    """A worker is declared dead while it leases: it gets nothing, or what it got is rescued; the dead keep nothing."""
    witness = await stage.worker(lease_s=HOUR_S)
    for _ in range(40):
        zombie = await stage.worker()
        task_id = await stage.put_one()
        await asyncio.gather(
            stage.store.lease(zombie, {"default": 1}, 1), stage.rescue(witness, [(zombie, 0)]), return_exceptions=True
        )
        with pytest.raises(LeaseLost):
            await stage.take(zombie)
        await stage.rescue(witness)
        assert (await stage.show(task_id)).state == "queued"
        await stage.store.cancel(task_id, NOTE)


async def test_many_rescuers_take_everything_back_once(stage: Stage) -> None:
    dead = await stage.worker()
    ids = await stage.put(200)
    await stage.take(dead, 200)
    finders = [await stage.worker() for _ in range(4)]

    def heart(finder: int) -> int:
        heartbeat = stage.store.heartbeat_connection()
        try:
            return heartbeat.rescue(finder, [(dead, 0)], []).tasks
        finally:
            heartbeat.close()

    rescued = await asyncio.gather(*(asyncio.to_thread(heart, finder) for finder in finders))
    assert sum(rescued) == 200
    shown = await stage.store.info(ids)
    assert {(one.state, one.rescues, one.attempt, len(one.trail)) for one in shown.values()} == {("queued", 1, 0, 1)}


async def test_everything_at_once(stage: Stage) -> None:
    """Pollers that settle, give back and fail beside enqueuers and rescuers: every task ends exactly once."""
    stores = [stage.store, *[await stage.another_store() for _ in range(2)]]
    witness = await stage.worker(lease_s=HOUR_S)
    ended: Counter[int] = Counter()
    total, is_over = 600, asyncio.Event()

    async def enqueue(store: Store) -> None:
        for _ in range(total // len(stores) // 20):
            await store.enqueue([NewTask(name="job")] * 20)

    async def work(store: Store) -> None:
        card = card_of()
        await store.sign_on(card, HOUR_S)
        looks = 0
        while sum(ended.values()) < total:
            looks += 1
            leases = (await store.lease(card.incarnation, {"default": 30}, 30)).leases
            batch = [done(one) if (one.id + looks) % 3 else again(one, 0.0, refund=True) for one in leases]
            assert await store.settle(card.incarnation, batch) == set()
            ended.update(one.id for one in batch if isinstance(one, Ended))
        is_over.set()

    async def rescue() -> None:
        while not is_over.is_set():
            assert (await stage.beat(witness, (), HOUR_S)).rescued == 0

    async with asyncio.timeout(60):
        await asyncio.gather(*(enqueue(one) for one in stores), *(work(one) for one in stores), rescue())
    assert set(ended.values()) == {1}
    assert len(ended) == total
