"""Several workers end tasks of the same flows at the same moment: every end is told once, and none waits for ever."""

import asyncio
import random
from collections.abc import Sequence

from everpoll.stores.contract import END_STATES, Ended, EndState, Lease, Store
from everpoll.stores.flows import FlowTask
from stores.flow_tasks import chain, group, put, task
from stores.stage import NOTE, Stage, card_of, done

PATIENCE_S = 120.0


async def settled(store: Store, worker: int, batches: Sequence[list[Ended]]) -> None:
    for batch in batches:
        assert await store.settle(worker, batch) == set()


async def test_two_workers_that_end_members_of_two_groups_in_opposite_order_do_not_lock_each_other_out(
    stage: Stage,
) -> None:
    """Half of the members are chains whose first task fails, so that each end reaches two tasks."""
    other = await stage.another_store()
    first, second = card_of("first"), card_of("second")
    await stage.store.sign_on(first, 600.0)
    await other.sign_on(second, 600.0)
    for _ in range(15):
        callbacks = []
        for _ in range(2):
            flow = group(task("report", queue="reports"), [task("m", priority=1) for _ in range(10)])
            for _ in range(10):
                flow += chain(task("a"), task("b"), then=0, start=len(flow))
            callbacks.append((await put(stage, flow))[0])
        leases = (await stage.store.lease(first.incarnation, {"default": 40}, 20)).leases
        halves = [leases, (await other.lease(second.incarnation, {"default": 40}, 40)).leases]
        assert [len(half) for half in halves] == [20, 20]
        batches = [
            [[_end(one), _end(another)] for one, another in zip(half[:10], half[10:], strict=True)] for half in halves
        ]
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(
                settled(stage.store, first.incarnation, batches[0]),
                settled(other, second.incarnation, [batch[::-1] for batch in batches[1][::-1]]),
            )
        reports = (await stage.store.lease(first.incarnation, {"reports": 10}, 10)).leases
        assert sorted(one.id for one in reports) == callbacks
        await stage.store.settle(first.incarnation, list(map(done, reports)))


def _end(lease: Lease) -> Ended:
    return done(lease, None, "failed" if lease.name == "a" else "done")


async def test_ends_and_cancels_at_once_leave_nothing_blocked(stage: Stage) -> None:
    """Whatever ends first: each task ends once, and each callback runs or was canceled itself."""
    rng = random.Random(14)
    stores = [stage.store, await stage.another_store()]
    cards = [card_of(), card_of()]
    for store, card in zip(stores, cards, strict=True):
        await store.sign_on(card, 600.0)
    for _ in range(10):
        flow: list[FlowTask] = group(task("report"), [task("m") for _ in range(6)])
        for _ in range(4):
            flow += chain(*(task("step") for _ in range(3)), then=0, start=len(flow))
        ids = await put(stage, flow)
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(
                *(_work(store, card.incarnation, rng) for store, card in zip(stores, cards, strict=True)),
                stores[1].cancel_many([(one, NOTE) for one in rng.sample(ids[1:], 6)]),
                stores[0].cancel(rng.choice(ids[1:]), NOTE),
            )
            while not await _has_ended(stores[0], ids[0]):
                await _work(stores[0], cards[0].incarnation, rng)
                await _work(stores[1], cards[1].incarnation, rng)
        assert {one.state for one in (await stores[0].info(ids)).values()} <= set(END_STATES)


async def _has_ended(store: Store, task_id: int) -> bool:
    return bool(await store.ended([task_id]))


async def _work(store: Store, worker: int, rng: random.Random) -> None:
    """Lease and end what there is, until there is nothing at that moment."""
    ends: list[EndState] = ["done", "done", "done", "failed"]
    while leases := (await store.lease(worker, {"default": 5}, 5)).leases:
        await store.settle(worker, [done(one, 1, rng.choice(ends)) for one in leases])
