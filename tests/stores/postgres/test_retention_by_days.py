"""History is kept by days: partitions are made ahead, dropped whole, and never missed by a settlement."""

import asyncio

import asyncpg
import pytest

from everpoll.errors import StoreUnavailable
from everpoll.stores.contract import NewTask
from everpoll.stores.postgres import PostgresStore
from stores.stage import HOUR_S, LEASE_S, Stage

DAY_S = 86_400.0
PARTS = """select c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid
    where i.inhparent = 'everpoll.history'::regclass order by 1"""
MAKE_DAY = """do $$ declare day date := (now() at time zone 'UTC')::date - {days}; begin
    execute format('create table everpoll.history_%s partition of everpoll.history for values from (%L) to (%L)',
        to_char(day, 'YYYYMMDD'), day::timestamp at time zone 'UTC', (day + 1)::timestamp at time zone 'UTC'); end $$"""


def beat_once(store: PostgresStore, worker: int) -> bool:
    heartbeat = store.heartbeat_connection()
    try:
        return heartbeat.beat(worker, LEASE_S, []).is_alive
    finally:
        heartbeat.close()


async def parts(store: PostgresStore) -> list[str]:
    return [str(row[0]) for row in await store._queries.rows(PARTS)]


async def test_a_week_is_made_ahead(stage: Stage, store: PostgresStore) -> None:
    """By migrating, and by any beat once it runs short."""
    made = await parts(store)
    assert len(made) >= 9
    for part in made[2:-1]:
        await store._queries.row(f"drop table everpoll.{part}")
    assert await parts(store) != made
    await stage.beat(await stage.worker())
    assert await parts(store) == made


async def test_tasks_end_in_the_partition_of_their_day(stage: Stage, store: PostgresStore) -> None:
    task_id = await stage.ended(await stage.worker())
    sql = "select tableoid::regclass::text = 'everpoll.history_' || to_char(ended_at at time zone 'UTC', 'YYYYMMDD') from everpoll.history where id = $1"  # noqa: E501
    assert await store._queries.value(sql, task_id)


async def test_without_partition_a_task_ends_all_the_same(stage: Stage, store: PostgresStore) -> None:
    """The default one takes it; the beat that would make today's leaves it alone then, and raises nothing."""
    made = await parts(store)
    for part in made:
        if part != "history_rest":
            await store._queries.row(f"drop table everpoll.{part}")
    worker = await stage.worker()
    task_id = await stage.ended(worker)
    assert (await stage.show(task_id)).state == "done"
    assert (await stage.beat(worker)).is_alive
    today, *others = made
    assert await parts(store) == others
    assert (await stage.show(task_id)).state == "done"
    await store.prune(0.0)
    await store._queries.row("drop table everpoll." + others[2])
    assert (await stage.beat(worker)).is_alive
    assert set(await parts(store)) == {today, *others}


async def test_old_days_are_dropped_whole(stage: Stage, store: PostgresStore) -> None:
    """One statement for any number of rows, and only whole days."""
    for days in (2, 3, 10):
        await store._queries.row(MAKE_DAY.format(days=days))
    worker = await stage.worker(lease_s=100 * DAY_S)
    old = [await stage.ended(worker) for _ in range(3)]
    await stage.pass_time(10 * DAY_S)
    young = await stage.ended(worker)
    before = await parts(store)
    assert await store.prune(4 * DAY_S) == 1
    assert len(await parts(store)) == len(before) - 1
    assert set(await store.info([*old, young])) == {young}
    assert await store.prune(4 * DAY_S) == 0
    assert await store.prune(DAY_S) == 2
    await stage.beat(worker)


async def test_less_than_a_day_is_deleted_by_the_row(stage: Stage, store: PostgresStore) -> None:
    worker = await stage.worker(lease_s=100 * DAY_S)
    old = [await stage.ended(worker) for _ in range(3)]
    await stage.pass_time(2 * HOUR_S)
    young = await stage.ended(worker)
    assert await store.prune(HOUR_S) == 3
    assert set(await store.info([*old, young])) == {young}


async def test_a_long_reader_is_not_waited_for(stage: Stage, store: PostgresStore, url: str) -> None:
    """What cannot be dropped now is dropped the next time; no statement queues behind the attempt."""
    await store._queries.row(MAKE_DAY.format(days=9))
    reader = await asyncpg.connect(url)
    try:
        async with reader.transaction():
            await reader.fetch("select * from everpoll.history limit 1")
            assert await store.prune(2 * DAY_S) == 0
            worker = await stage.worker()
            await stage.ended(worker)
        assert await store.prune(2 * DAY_S) == 1
    finally:
        await reader.close()


async def test_workers_that_are_gone_are_forgotten(stage: Stage, store: PostgresStore) -> None:
    """A day after their end, and only if nothing of theirs is left."""
    gone, messy = await stage.worker("gone"), await stage.worker("messy")
    await stage.running(messy)
    await store.sign_off(gone)
    await store.sign_off(messy)
    await stage.pass_time(DAY_S + 1)
    await store.prune(DAY_S)
    count = "select count(*) from everpoll.workers"
    assert await store._queries.value(count) == 1
    finder = await stage.worker("finder")
    assert await stage.rescue(finder) == 1
    await store.prune(DAY_S)
    assert await store._queries.value(count) == 1
    del finder


async def test_a_role_without_rights_on_the_schema_still_beats(stage: Stage, store: PostgresStore, url: str) -> None:
    """Workers may run with fewer rights than who migrates: partitions are then made by others."""
    await store._queries.call(
        lambda connection: connection.execute(
            """drop role if exists humble; create role humble login;
               grant usage on schema everpoll to humble;
               grant select, insert, update, delete on all tables in schema everpoll to humble;
               grant usage, select on all sequences in schema everpoll to humble"""
        )
    )
    for part in (await parts(store))[3:-1]:
        await store._queries.row(f"drop table everpoll.{part}")
    humble = PostgresStore(url.replace("postgres@", "humble@"))
    await humble.open()
    stage.store = humble
    worker = await stage.worker()
    task_id = await stage.ended(worker)
    assert await asyncio.to_thread(beat_once, humble, worker)
    assert (await stage.show(task_id)).state == "done"
    assert await humble.enqueue([NewTask(name="job", key="k")])
    await humble.close()
    stage.store = store
    await store._queries.call(lambda connection: connection.execute("drop owned by humble; drop role humble"))
    await stage.beat(await stage.worker())
    assert len(await parts(store)) >= 9


async def test_a_role_that_may_not_drop_days_is_told_what_it_lacks(
    stage: Stage, store: PostgresStore, url: str
) -> None:
    """In everpoll's words, and as an error that may pass: an administrator may grant it."""
    await store._queries.row(MAKE_DAY.format(days=40))
    await store._queries.row("drop role if exists everpoll_guest")
    await store._queries.row("create role everpoll_guest login")
    for what in ("usage on schema everpoll", "all on all tables in schema everpoll"):
        await store._queries.row(f"grant {what} to everpoll_guest")
    guest = PostgresStore(url.replace("postgres@", "everpoll_guest@"))
    try:
        assert await guest.queues() == []
        with pytest.raises(
            StoreUnavailable, match=r"must be owner of table history_.*grant the right to everpoll_guest, or connect as"
        ):
            await guest.prune(DAY_S)
    finally:
        await guest.close()
        await store._queries.row("drop owned by everpoll_guest")
        await store._queries.row("drop role everpoll_guest")
    assert await stage.store.prune(DAY_S) >= 1
