"""A server that crashes may forget the leases of its last milliseconds: in a long run their commits do not wait for the
disk. The worker that has them goes on, and no task runs twice for that."""

import asyncpg

from everpoll.errors import StoreUnavailable
from everpoll.stores.contract import Lease
from everpoll.stores.postgres import PostgresStore
from stores.postgres.proxy import Proxy
from stores.stage import LEASE_S, Stage, card_of, done

ROOMS = {"default": 10}
FORGET = """update everpoll.tasks set owner = null, is_leased = false, started_at = null, sequence = sequence - 1,
    attempt = attempt - 1"""


async def forget(url: str) -> None:
    """Put the rows as a crash leaves them whose log lacks their last lease."""
    connection = await asyncpg.connect(url)
    await connection.execute(FORGET)
    await connection.close()


def fences(leases: list[Lease]) -> list[tuple[int, int, int]]:
    return [(one.id, one.sequence, one.attempt) for one in leases]


async def test_after_a_reconnect_the_worker_takes_its_leases_again(stage: Stage, url: str) -> None:
    async with Proxy(url) as proxy:
        store = PostgresStore(proxy.url)
        mine, other = card_of("anna"), card_of("bert")
        await store.sign_on(mine, LEASE_S)
        await stage.store.sign_on(other, LEASE_S)
        ids = await stage.put(3)
        held = (await store.lease(mine.incarnation, ROOMS, 10)).leases
        await forget(url)
        proxy.cut()
        [late] = await stage.put(1)
        # The first look after the cut may only learn of it; the next one is on a new connection.
        found = [one for _ in range(2) for one in await _leased(store, mine.incarnation)]
        assert fences(found) == [(late, 1, 1)], "what it holds is not handed out again"
        assert (await stage.store.lease(other.incarnation, ROOMS, 10)).leases == [], "and no other worker gets it"
        assert [(await stage.show(one)).attempt for one in ids] == [1, 1, 1], "an attempt counts once"
        assert await store.settle(mine.incarnation, [*map(done, held), *map(done, found)]) == set()
        await store.close()


async def test_behind_a_pooler_that_hides_the_crash_no_task_is_run_twice_by_its_worker(stage: Stage, url: str) -> None:
    """The server hands the same lease out once more, under the same fence: the worker knows that it has it."""
    store = PostgresStore(url)
    mine = card_of("anna")
    await store.sign_on(mine, LEASE_S)
    await stage.put(3)
    held = (await store.lease(mine.incarnation, ROOMS, 10)).leases
    await forget(url)
    [late] = await stage.put(1)
    again = await store.lease(mine.incarnation, ROOMS, 10)
    assert fences(again.leases) == [(late, 1, 1)]
    assert not again.is_all, "there was more room than it seems: it looks again at once"
    assert await store.settle(mine.incarnation, [*map(done, held), *map(done, again.leases)]) == set()
    await store.close()


async def test_what_another_worker_has_by_now_is_lost(stage: Stage, url: str) -> None:
    async with Proxy(url) as proxy:
        store = PostgresStore(proxy.url)
        mine, other = card_of("anna"), card_of("bert")
        await store.sign_on(mine, LEASE_S)
        await stage.store.sign_on(other, LEASE_S)
        ids = await stage.put(2)
        held = (await store.lease(mine.incarnation, ROOMS, 10)).leases
        await forget(url)
        theirs = (await stage.store.lease(other.incarnation, ROOMS, 10)).leases
        proxy.cut()
        assert [one for _ in range(2) for one in await _leased(store, mine.incarnation)] == []
        assert await store.settle(mine.incarnation, [*map(done, held)]) == set(ids)
        assert await stage.store.settle(other.incarnation, [*map(done, theirs)]) == set()
        await store.close()


async def _leased(store: PostgresStore, incarnation: int) -> list[Lease]:
    try:
        return (await store.lease(incarnation, ROOMS, 10)).leases
    except StoreUnavailable:
        return []


async def test_in_a_run_without_settlements_each_lease_waits_for_the_disk(stage: Stage, url: str) -> None:
    """No settlement follows that would make it durable: jobs that take long would be forgotten in a crash."""
    watching = await asyncpg.connect(url)
    # The servers of the tests wait for no disk.
    await watching.execute(
        f'alter database "{await watching.fetchval("select current_database()")}" set synchronous_commit = on'
    )
    store = PostgresStore(url)
    mine, rooms = card_of("anna"), {"default": 30}
    await store.sign_on(mine, LEASE_S)
    await stage.put(150)
    is_run = False
    for _ in range(4):
        is_run = is_run or not store._marks.ranges(["default"]).asks_waiting
        before = await watching.fetchval("select pg_current_wal_insert_lsn()")
        assert len((await store.lease(mine.incarnation, rooms, 30)).leases) == 30
        assert await watching.fetchval("select pg_current_wal_flush_lsn()") > before
    assert is_run, "full looks, one behind another"
    await watching.close()
    await store.close()
