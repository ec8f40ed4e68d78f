"""A lease that the server forgot in a crash ends as it would have: its result is written, and it is not run again."""

import asyncio

from everpoll.stores.postgres import PostgresStore
from stores.postgres.proxy import Proxy
from stores.postgres.test_forgotten_leases import ROOMS, fences, forget
from stores.stage import LEASE_S, Stage, card_of, done


async def test_what_ends_before_the_next_look_is_settled(stage: Stage, url: str) -> None:
    """A worker whose slots are full looks no more until one of them has ended."""
    store = PostgresStore(url)
    mine = card_of("anna")
    await store.sign_on(mine, LEASE_S)
    ids = await stage.put(3)
    held = (await store.lease(mine.incarnation, ROOMS, 10)).leases
    await forget(url)
    assert await store.settle(mine.incarnation, [done(one, 7) for one in held]) == set()
    assert [((await stage.show(one)).result, (await stage.show(one)).attempt) for one in ids] == [(7, 1)] * 3
    await store.close()


async def test_a_result_that_meets_the_recovery_on_its_way_leaves_nothing_behind(stage: Stage, url: str) -> None:
    """The settlement comes first and finds no lease; the recovery, sent before that is known, takes it again."""
    async with Proxy(url) as proxy:
        store = PostgresStore(proxy.url)
        mine = card_of("anna")
        await store.sign_on(mine, LEASE_S)
        [task_id] = await stage.put(1)
        [held] = (await store.lease(mine.incarnation, ROOMS, 10)).leases
        await store.settle(mine.incarnation, [done(type(held)(-1, 1, 1, "", "", ""))])
        await forget(url)
        proxy.hold_answers()
        settling = asyncio.get_running_loop().create_task(store.settle(mine.incarnation, [done(held, 7)]))
        await asyncio.wait_for(proxy.held.wait(), 60)  # the server has answered
        store._held_leases.doubt(mine.incarnation)
        looking = asyncio.get_running_loop().create_task(store.lease(mine.incarnation, ROOMS, 10))
        await asyncio.sleep(0.3)  # it is under way, or waits for the settlement: both may be
        proxy.let_through()
        lost, looked = await asyncio.gather(settling, looking)
        again = [*looked.leases, *(await store.lease(mine.incarnation, ROOMS, 10)).leases]
        shown = await stage.show(task_id)
        assert shown.state == "done" or again, f"it is held by a worker that does not know of it: {lost} {shown}"
        assert (lost, fences(again), shown.state) == (set(), [], "done")
        await store.close()
