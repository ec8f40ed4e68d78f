"""A store follows its caller: into another event loop, into a child process, into another isolation level."""

import asyncio
import gc
import os

import asyncpg
import pytest

from everpoll.drivers.postgres.address import read_address
from everpoll.errors import BadInput
from everpoll.stores.contract import NewTask
from everpoll.stores.postgres import PostgresStore
from stores.stage import Stage, card_of, done


async def use(store: PostgresStore) -> int:
    """Each lane once."""
    [answer] = await store.enqueue([NewTask(name="job")])
    card = card_of()
    await store.sign_on(card, 60.0)
    [lease] = (await store.lease(card.incarnation, {"default": 5}, 5)).leases
    assert await store.settle(card.incarnation, [done(lease)]) == set()
    return answer.id


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_one_event_loop_after_another(url: str) -> None:
    """As scripts do that call asyncio.run for each thing. What the first one left open, it left open."""
    store = PostgresStore(url)
    ids = [asyncio.run(use(store)) for _ in range(3)]
    assert len(set(ids)) == 3
    asyncio.run(store.close())
    gc.collect()


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_parent_and_child_after_a_fork(url: str) -> None:
    """Neither speaks on the other's connection."""
    store = PostgresStore(url)
    with asyncio.Runner() as runner:
        first = runner.run(use(store))
        child = os.fork()
        if child == 0:
            ended = 1
            try:
                asyncio.set_event_loop(None)
                asyncio.events._set_running_loop(None)
                fresh = asyncio.new_event_loop()
                ended = 0 if fresh.run_until_complete(use(store)) > first else 2
            finally:
                os._exit(ended)
        assert os.waitpid(child, 0)[1] == 0
        assert runner.run(use(store)) > first
        runner.run(store.close())
    gc.collect()


async def test_closing_and_going_on(stage: Stage) -> None:
    """Closed is not over: the next call connects again."""
    store = stage.store
    await stage.put(2)
    await store.close()
    await stage.put(1)
    assert len(await stage.take(await stage.worker())) == 3


async def test_a_database_with_another_isolation_by_default(url: str) -> None:
    """Every statement is written for READ COMMITTED, so we insist on it."""
    database = url.rsplit("/", 1)[1]
    admin = await asyncpg.connect(url)
    try:
        await admin.execute(f"alter database {database} set default_transaction_isolation = 'serializable'")
        store = PostgresStore(url)
        await store.open()
        for lane in (store._leasing._lane, store._settlements, store._entrance, store._queries):
            assert await lane.value("select current_setting('transaction_isolation')") == "read committed"
        await use(store)
        await store.close()
    finally:
        await admin.execute(f"alter database {database} reset default_transaction_isolation")
        await admin.close()


def test_own_options_are_taken_out_of_the_address() -> None:
    """The driver would send them to the server, which does not know them."""
    plain = read_address("postgres://u@h:1/d")
    assert (plain.dsn, plain.statement_cache, plain.command_timeout_s) == ("postgres://u@h:1/d", 100, 30.0)
    own = read_address(
        "postgresql://u:p%40@h/d?sslmode=require&statement_cache=0&command_timeout=2.5&host=%2Ftmp&connect_timeout=3"
    )
    assert own.dsn == "postgresql://u:p%40@h/d?sslmode=require&host=%2Ftmp"
    assert (own.statement_cache, own.command_timeout_s, own.connect_timeout_s) == (0, 2.5, 3.0)
    assert own.masked("p@ p%40 u") == "*** *** u"


@pytest.mark.parametrize(
    "option", ["statement_cache=-1", "command_timeout=0", "connect_timeout=soon", "command_timeout="]
)
def test_odd_options_are_refused(option: str) -> None:
    with pytest.raises(BadInput, match=option.partition("=")[0]):
        read_address(f"postgresql://u@h/d?{option}")
