"""A lease whose answer got lost is handed back: no worker keeps tasks that it does not know of."""

import asyncio

import pytest

from everpoll.errors import StoreUnavailable
from everpoll.stores.contract import Ended, Store
from everpoll.stores.postgres import PostgresStore
from everpoll.stores.postgres.held_leases import SECOND_CHECK_S, HeldLeases
from stores.postgres.proxy import Proxy
from stores.stage import LEASE_S, Stage, card_of, done, whats

ROOMS = {"default": 10}


async def leased_by(stage: Stage, worker: int, ids: list[int]) -> None:
    """Wait until the server has leased them, which only the server knows."""
    while {one.incarnation for one in (await stage.store.info(ids)).values()} != {worker}:
        pass


async def lose_a_lease(proxy: Proxy, stage: Stage, store: Store, worker: int, ids: list[int]) -> "asyncio.Task[object]":
    proxy.hold_answers()
    looking: asyncio.Task[object] = asyncio.get_running_loop().create_task(store.lease(worker, ROOMS, 10))
    await leased_by(stage, worker, ids)
    return looking


async def test_the_connection_breaks_before_the_answer(stage: Stage, url: str) -> None:
    """The next look brings them, at no attempt's cost; what is in hand is left alone."""
    async with Proxy(url) as proxy:
        store = PostgresStore(proxy.url)
        card = card_of("anna")
        await store.sign_on(card, LEASE_S)
        [held] = await stage.put(1)
        [in_hand] = (await store.lease(card.incarnation, ROOMS, 10)).leases
        ids = await stage.put(3)
        looking = await lose_a_lease(proxy, stage, store, card.incarnation, ids)
        proxy.cut()
        proxy.let_through()
        with pytest.raises(StoreUnavailable):
            await looking
        leases = (await store.lease(card.incarnation, ROOMS, 10)).leases
        assert [(one.id, one.sequence, one.attempt, one.rescues) for one in leases] == [(one, 2, 1, 0) for one in ids]
        shown = await stage.show(ids[0])
        assert (whats(shown), shown.trail[0]["by"]) == (["hand-back"], "anna")
        assert (await stage.show(held)).state == "running"
        assert await store.settle(card.incarnation, [done(in_hand), *map(done, leases)]) == set()
        await store.close()


async def test_the_caller_gives_up_before_the_answer(stage: Stage, url: str) -> None:
    """A worker that is stopped cancels its look, and signs off: nothing waits for a rescue."""
    async with Proxy(url) as proxy:
        store = PostgresStore(proxy.url)
        card = card_of()
        await store.sign_on(card, LEASE_S)
        await store.lease(card.incarnation, ROOMS, 10)
        ids = await stage.put(3)
        looking = await lose_a_lease(proxy, stage, store, card.incarnation, ids)
        looking.cancel()
        await asyncio.wait([looking])
        assert looking.cancelled()
        proxy.let_through()
        await store.sign_off(card.incarnation)
        shown = (await stage.store.info(ids)).values()
        assert {(one.state, one.attempt, one.rescues) for one in shown} == {("queued", 0, 0)}
        await store.close()


async def test_a_settlement_whose_answer_got_lost_may_be_repeated(stage: Stage, url: str) -> None:
    """It is reported as lost then, and info tells who settled it."""
    async with Proxy(url) as proxy:
        store = PostgresStore(proxy.url)
        card = card_of()
        await store.sign_on(card, LEASE_S)
        [task_id] = await stage.put()
        [lease] = (await store.lease(card.incarnation, ROOMS, 10)).leases
        await store.settle(card.incarnation, [Ended(-1, 1)])
        proxy.hold_answers()
        settling = asyncio.get_running_loop().create_task(store.settle(card.incarnation, [done(lease, 7)]))
        while not await stage.store.ended([task_id]):
            pass
        proxy.cut()
        proxy.let_through()
        with pytest.raises(StoreUnavailable):
            await settling
        assert await store.settle(card.incarnation, [done(lease, 8)]) == {task_id}
        shown = (await store.info([task_id]))[task_id]
        assert (shown.incarnation, shown.result) == (card.incarnation, 7)
        await store.close()


def test_a_doubt_is_settled_twice() -> None:
    """The lost statement itself may still be on its way."""
    now = 100.0
    held_leases = HeldLeases(lambda: now)
    held_leases.sign_on(1)
    assert not held_leases.is_in_doubt(1)
    held_leases.doubt(1)
    assert held_leases.is_in_doubt(1)
    held_leases.settled_doubt(1)
    assert (held_leases.is_in_doubt(1), held_leases.has_doubts(1)) == (False, True)
    now += SECOND_CHECK_S
    assert held_leases.is_in_doubt(1)
    held_leases.settled_doubt(1)
    assert (held_leases.is_in_doubt(1), held_leases.has_doubts(1)) == (False, False)


def test_what_was_lost_and_leased_again_is_in_hand() -> None:
    """The settlement of an old lease does not empty the hand that has the new one."""
    held_leases = HeldLeases()
    held_leases.sign_on(1)
    held_leases.take(1, {7: 1, 8: 1})
    held_leases.take(1, {7: 2})
    assert held_leases.holds(1) == ([7, 8], [2, 1])
    held_leases.release(1, [Ended(7, 1), Ended(8, 1)], lost={7})
    assert held_leases.holds(1) == ([7], [2])
    assert held_leases.holds(2) is None
