"""A role without a right that a worker needs: a start ends with the GRANT to run; a running worker waits for it."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import asyncpg
import pytest

from everpoll import Everpoll, RightsMissing
from everpoll.tables import Table
from servers.databases import PostgresServers

PATIENCE_S = 60.0
ROLE = "clerk"
ALL_RIGHTS = f"""grant usage on schema everpoll to {ROLE};
    grant select, insert, update, delete on all tables in schema everpoll to {ROLE};
    grant usage, select on all sequences in schema everpoll to {ROLE}"""


class Office:
    """A database, its administrator, and a clerk with as few rights as a test wants."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.clerk_url = url.replace("postgres@", f"{ROLE}@")

    async def order(self, sql: str) -> None:
        connection = await asyncpg.connect(self.url)
        try:
            await connection.execute(sql)
        finally:
            await connection.close()

    async def migrate(self) -> None:
        app = Everpoll(self.url)
        await app.store()
        await app.close()
        await self.order(ALL_RIGHTS)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[asyncio.Queue[int]]:
        """An app of the clerk's, with a job that tells its number."""
        app, answer = Everpoll(self.clerk_url, lease="2s"), asyncio.Queue[int]()

        @app.job(name="tell")
        async def tell(number: int) -> None:
            answer.put_nowait(number)

        async with asyncio.timeout(PATIENCE_S), app:
            yield answer


@pytest.fixture
def office(major: int, postgres_servers: PostgresServers, bare_url: str) -> Iterator[Office]:
    office = Office(bare_url)
    asyncio.run(office.order(f"create role {ROLE} login"))
    yield office
    asyncio.run(office.order(f"drop owned by {ROLE}; drop role {ROLE}"))


async def refusal(office: Office) -> str:
    with pytest.raises(RightsMissing) as refused:
        async with office.running():
            raise AssertionError("it started")
    return str(refused.value)


def grant_of(text: str) -> str:
    return text.split("run: ", 1)[1].partition("; or ")[0]


async def test_the_first_start_without_the_right_to_create_a_schema(office: Office) -> None:
    text = await refusal(office)
    assert "may not create the schema everpoll" in text
    await office.order(grant_of(text))
    async with office.running():
        pass


@pytest.mark.parametrize(
    ("revoked", "grant"),
    [
        ("usage on schema everpoll", "grant usage on schema everpoll to clerk"),
        ("insert on everpoll.workers", "grant insert on table everpoll.workers to clerk"),
        ("select on everpoll.tasks", "grant select on table everpoll.tasks to clerk"),
        ("insert, select on everpoll.events", "grant select, insert on table everpoll.events to clerk"),
        ("usage on sequence everpoll.tasks_id_seq", "grant usage on sequence everpoll.tasks_id_seq to clerk"),
        ("all on sequence everpoll.events_id_seq", "grant select, usage on sequence everpoll.events_id_seq to clerk"),
        ("select on everpoll.migrations", "grant select, insert, update, delete on table everpoll.migrations to clerk"),
    ],
)
async def test_each_right_is_named_with_its_grant(office: Office, revoked: str, grant: str) -> None:
    """What the message says to run is all that it takes."""
    await office.migrate()
    await office.order(f"revoke {revoked} from {ROLE}")
    text = await refusal(office)
    assert grant_of(text) == grant
    await office.order(grant)
    async with office.running():
        pass


async def test_all_that_is_missing_is_said_at_once(office: Office) -> None:
    await office.migrate()
    await office.order(f"revoke all on everpoll.events, everpoll.losses from {ROLE}")
    text = await refusal(office)
    assert "everpoll.losses" in text
    assert "everpoll.events" in text


async def test_run_ends_as_well(office: Office) -> None:
    """`app.run()`, which waits for a database that is away, does not wait for a right."""
    await office.migrate()
    await office.order(f"revoke insert on everpoll.workers from {ROLE}")
    app = Everpoll(office.clerk_url)
    app.job(name="tell")(print)
    async with asyncio.timeout(PATIENCE_S):
        with pytest.raises(RightsMissing, match=r"grant insert on table everpoll\.workers to clerk"):
            await app.run()


async def test_a_role_that_may_not_migrate_is_told_so(office: Office) -> None:
    await office.order(f"create schema everpoll; grant usage on schema everpoll to {ROLE}")
    assert "run `everpoll migrate` as the role that owns it" in await refusal(office)


async def test_a_running_worker_goes_on_when_the_right_is_back(office: Office) -> None:
    """The worker logs what it lacks, and works again as soon as it may."""
    await office.migrate()
    boss = Everpoll(office.url)

    @boss.job(name="tell")
    async def tell(number: int) -> None: ...

    here, lacking = asyncio.get_running_loop(), asyncio.Event()

    class Watcher(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "run: grant select, insert, update, delete on table everpoll." in record.getMessage():
                here.call_soon_threadsafe(lacking.set)

    watcher = Watcher()
    logging.getLogger("everpoll").addHandler(watcher)
    try:
        async with office.running() as answer:
            await tell.enqueue(1)
            assert await answer.get() == 1
            await office.order(f"revoke all on everpoll.tasks, everpoll.workers from {ROLE}")
            await lacking.wait()
            await office.order(ALL_RIGHTS)
            await tell.enqueue(2)
            while await answer.get() != 2:
                pass
    finally:
        logging.getLogger("everpoll").removeHandler(watcher)
        await boss.close()


async def test_an_adopted_table_that_may_not_be_changed(office: Office) -> None:
    await office.order(
        f"""create table parcels (id bigint primary key, status text, created_at timestamptz, worker_id text,
            started_at timestamptz); grant select on parcels to {ROLE}"""
    )
    app = Everpoll("memory://")
    parcels = app.table(Table("parcels"), url=office.clerk_url)
    parcels.handler(lambda row: None)
    with pytest.raises(RightsMissing, match=r'run: grant update on table "public"."parcels" to clerk'):
        async with app:
            raise AssertionError("it started")
    await office.order('grant update on table "public"."parcels" to clerk')
    async with app:
        assert app.health().healthy
