"""A statement that Postgres rolled back for a rival's sake is repeated by the store; its caller never hears of it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest

from everpoll.errors import StoreUnavailable
from everpoll.stores.contract import NewTask, TaskFilter
from everpoll.stores.flows import FlowTask
from everpoll.stores.postgres.repeats import TRIES
from stores.stage import Stage, done

# A sequence counts what is rolled back as well.
LOSE = """create sequence public.races;
    create function public.lose() returns trigger language plpgsql as $$
    begin
        if nextval('public.races') <= {times} then
            raise exception 'lost a race' using errcode = '{state}';
        end if;
        return coalesce(new, old);
    end $$;
    create trigger lose before {when} on everpoll.tasks for each row execute function public.lose()"""
WIN = "drop function public.lose cascade; drop sequence public.races"


@asynccontextmanager
async def losing(stage: Stage, when: str, times: int, state: str = "40P01") -> AsyncIterator[None]:
    """The first so many statements of this kind are rolled back, as the victims of a deadlock are."""
    connection = await asyncpg.connect(stage.backend.url)
    try:
        await connection.execute(LOSE.format(when=when, times=times, state=state))
        try:
            yield
        finally:
            await connection.execute(WIN)
    finally:
        await connection.close()


@pytest.mark.parametrize("state", ["40P01", "40001"])
@pytest.mark.parametrize("key", [None, "k"])
async def test_an_enqueue(stage: Stage, state: str, key: str | None) -> None:
    async with losing(stage, "insert", TRIES - 1, state):
        [answer] = await stage.store.enqueue([NewTask(name="f", key=key)])
    assert answer.is_new
    assert [one.id for one in (await stage.store.tasks(TaskFilter())).tasks] == [answer.id]


async def test_a_large_enqueue_in_one_transaction(stage: Stage) -> None:
    async with losing(stage, "insert", 2):
        answers = await stage.store.enqueue([NewTask(name="f")] * 5_001)
    assert len({answer.id for answer in answers}) == 5_001


async def test_a_flow(stage: Stage) -> None:
    """What the loser has begun is rolled back: the next statement finds the connection as it was."""
    async with losing(stage, "insert", 2):
        answers = await stage.store.enqueue_flow(
            [FlowTask(NewTask(name="f"), takes="end"), FlowTask(NewTask(name="g"), 0)]
        )
    assert [one.id for one in (await stage.store.tasks(TaskFilter())).tasks] == [answers[1].id, answers[0].id]


async def test_a_settlement(stage: Stage) -> None:
    worker = await stage.worker()
    lease = await stage.running(worker)
    async with losing(stage, "delete", 2):
        assert await stage.store.settle(worker, [done(lease)]) == set()
    assert (await stage.show(lease.id)).state == "done"


async def test_a_race_that_is_always_lost_is_an_outage(stage: Stage) -> None:
    async with losing(stage, "insert", 1_000):
        with pytest.raises(StoreUnavailable, match="lost a race"):
            await stage.store.enqueue([NewTask(name="f")])
    assert (await stage.store.tasks(TaskFilter())).tasks == ()


async def test_any_other_outage_is_not_repeated(stage: Stage) -> None:
    """Its outcome is unknown: a repeat might enqueue twice."""
    async with losing(stage, "insert", 1, "57014"):
        with pytest.raises(StoreUnavailable, match="lost a race"):
            await stage.store.enqueue([NewTask(name="f")])
