"""The trigger that we offer wakes workers at once; where it is missing or goes missing, polling goes on."""

import asyncio
import logging
import time

import pytest

from everpoll.policy import Backoff
from everpoll.tables import Row, Table
from everpoll.tables.postgres import PostgresTable, ddl
from tables.postgres_stage import PostgresStage
from tables.stages import BARE, QUICK, Working

NEVER = Backoff("1h", factor=1, cap="1h", jitter=0)
PUSH_S = 1.0


async def nothing(row: Row) -> None:
    """A handler."""


def source_of(working: Working) -> PostgresTable:
    source = working.adopted.source
    assert isinstance(source, PostgresTable)
    return source


async def with_trigger(stage: PostgresStage, mapping: Table) -> None:
    """The very statements that an open source offers."""
    source = stage.source(mapping)
    try:
        await source.open()
        for statement in source.ddl():
            await stage.execute(statement)
            await stage.execute(statement)
    finally:
        await source.close()


async def until_pushed(working: Working) -> None:
    """Wait until its poller rests and trusts the push."""
    async with asyncio.timeout(20):
        while (health := working.adopted.health()) is None or health.waiting_s is None or not health.push:  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def test_an_insert_wakes_a_worker_in_under_a_second(postgres_stage: PostgresStage) -> None:
    """By plain SQL, by many rows at once, and by a status that is set back by hand. The poller itself would rest."""
    await postgres_stage.create()
    mapping = postgres_stage.mapping()
    await with_trigger(postgres_stage, mapping)
    async with postgres_stage.working(nothing, mapping, poll=NEVER) as working:
        for number, sql in enumerate(
            (
                "insert into jobs (id, status) values (1, 'queued')",
                "insert into jobs (id, status) select n, 'queued' from generate_series(2, 300) n",
                "insert into jobs (id, status) values (301, 'draft'); update jobs set status = 'queued' where id = 301",
            )
        ):
            await until_pushed(working)
            began = time.monotonic()
            await postgres_stage.execute(sql)
            await postgres_stage.until_all("completed")
            print(f"push {number}: {(time.monotonic() - began) * 1000:.0f} ms")  # noqa: T201 - for people
            assert time.monotonic() - began < PUSH_S * 20, "a poller that was not woken rests for an hour"


async def test_what_does_not_wait_wakes_no_worker(postgres_stage: PostgresStage) -> None:
    """Our own claims and ends least of all: a notification takes a lock that all commits share."""
    await postgres_stage.create()
    mapping = postgres_stage.mapping()
    await with_trigger(postgres_stage, mapping)
    heard: list[str] = []
    connection = await postgres_stage.connection()
    await connection.add_listener(ddl.channel(Table("public.jobs"), None), lambda *answer: heard.append(answer[-1]))
    await postgres_stage.execute("insert into jobs (id, status) values (1, 'draft')")
    await postgres_stage.execute("insert into jobs (id, status) select n, 'queued' from generate_series(2, 100) n")
    async with postgres_stage.claimer(mapping) as worker:
        leases = await worker.take()
        await worker.beat(*leases)
        await worker.end(*leases[1:])
        await worker.hand_back(leases[0])
    await connection.fetchval("select 1")
    assert heard == ["", ""]


async def test_without_the_trigger_polling_goes_on_and_says_so_once(
    postgres_stage: PostgresStage, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "everpoll.tables")
    await postgres_stage.create(BARE)
    async with postgres_stage.working(nothing, postgres_stage.bare(), poll=QUICK) as working:
        assert not working.adopted.source.has_push
        await postgres_stage.queue(1, 2)
        await postgres_stage.until_all("completed")
    assert sum("has no trigger that tells of new rows" in record.getMessage() for record in caplog.records) == 1


async def test_a_trigger_that_is_added_later_is_found_and_one_that_goes_is_missed(
    postgres_stage: PostgresStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("everpoll.tables.postgres.push.RECHECK_S", 0.05)
    await postgres_stage.create(BARE)
    mapping = postgres_stage.bare()
    async with postgres_stage.working(nothing, mapping, poll=NEVER) as working:
        assert not source_of(working).has_push
        await postgres_stage.queue(1)  # no notification: found when the trigger is
        await with_trigger(postgres_stage, mapping)
        await postgres_stage.until_all("completed")
        await until_pushed(working)
        await postgres_stage.execute("alter table jobs disable trigger everpoll_wake")
        await postgres_stage.until(lambda _: not source_of(working).has_push)
        await postgres_stage.execute("alter table jobs enable trigger everpoll_wake")
        await postgres_stage.until(lambda _: source_of(working).has_push)


async def test_a_listener_that_is_cut_off_listens_again_and_loses_nothing(postgres_stage: PostgresStage) -> None:
    await postgres_stage.create(BARE)
    mapping = postgres_stage.bare()
    await with_trigger(postgres_stage, mapping)
    async with postgres_stage.working(nothing, mapping, poll=NEVER) as working:
        for key in range(3):
            await until_pushed(working)
            await postgres_stage.cut_connections()
            await postgres_stage.queue(key)
            await postgres_stage.until_all("completed")


async def test_a_trigger_goes_on_telling_when_its_table_is_renamed(postgres_stage: PostgresStage) -> None:
    await postgres_stage.create(BARE)
    for statement in ddl.create_trigger(postgres_stage.bare(), None):
        await postgres_stage.execute(statement)
    await postgres_stage.execute("alter table jobs rename to tasks")
    async with postgres_stage.working(nothing, postgres_stage.bare("tasks"), poll=NEVER) as working:
        await until_pushed(working)
        await postgres_stage.queue(1, table="tasks")
        await postgres_stage.until_all("completed", table="tasks")


async def test_a_hand_back_and_a_retry_are_seen_by_their_own_worker_without_any_push(
    postgres_stage: PostgresStage,
) -> None:
    """At once, or when they are due: the poller does not sleep over it."""
    attempts: list[int] = []

    async def handle(row: Row) -> None:
        attempts.append(row.attempt)
        if row.attempt < 3:
            raise ValueError("not yet")

    await postgres_stage.create()
    await postgres_stage.queue(1)
    soon = Backoff("30ms", factor=1, cap="30ms", jitter=0)
    async with postgres_stage.working(handle, postgres_stage.mapping(backoff=soon), poll=NEVER):
        await postgres_stage.until_all("completed")
    assert attempts == [1, 2, 3]


async def test_channels_of_long_names_are_hashed_and_differ(postgres_stage: PostgresStage) -> None:
    """Postgres cuts names off at 63 bytes; a channel that is cut off is another one."""
    names = ["ü" * 31, "ü" * 30 + "x"]
    channels = [ddl.channel(Table(name), None) for name in names]
    assert len(set(channels)) == 2
    assert all(len(one.encode()) <= 63 for one in channels)
    await postgres_stage.create(BARE, table=names[0])
    mapping = postgres_stage.bare(names[0])
    await with_trigger(postgres_stage, mapping)
    async with postgres_stage.working(nothing, mapping, poll=NEVER) as working:
        await until_pushed(working)
        await postgres_stage.queue(1, table=names[0])
        await postgres_stage.until_all("completed", table=names[0])
