"""The schema is brought up to date once, by any process; a database that does not fit is refused with advice."""

import asyncio
import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from everpoll.errors import EverpollError, SchemaOutdated
from everpoll.stores.contract import NewTask, Store, TaskFilter
from everpoll.stores.postgres import schema as postgres_schema
from everpoll.stores.sqlite import schema as sqlite_schema
from stores.backends import Backend
from stores.stage import Stage, done
from warm_processes import PIPE, WarmProcess


async def use(store: Store) -> None:
    """A little of everything."""
    stage = Stage.around(store)
    worker = await stage.worker()
    [answer] = await store.enqueue([NewTask(name="job")])
    lease = await stage.take_one(worker)
    assert lease.id == answer.id
    assert await store.settle(worker, [done(lease)]) == set()


async def test_opening_makes_everything(bare_backend: Backend) -> None:
    store = bare_backend.store()
    await store.open()
    await use(store)
    assert await store.migrate() == []
    await store.close()


async def test_migrating_tells_what_was_applied(bare_backend: Backend) -> None:
    """Without opening first, as the command does; a second time there is nothing to do."""
    store = bare_backend.store()
    applied = await store.migrate()
    assert applied
    assert applied == sorted(set(applied))
    assert await store.migrate() == []
    await store.open(migrate=False)
    await use(store)
    await store.close()


async def test_without_migrating_an_empty_database_is_refused(bare_backend: Backend) -> None:
    """And left as it is."""
    store = bare_backend.store()
    for _ in range(2):
        with pytest.raises(SchemaOutdated, match="everpoll migrate"):
            await store.open(migrate=False)
    await store.close()
    assert await store.migrate()
    await store.close()


async def test_without_migrating_a_current_database_is_fine(stage: Stage) -> None:
    store = stage.backend.store()
    await store.open(migrate=False)
    await use(store)
    await store.close()


async def test_a_newer_schema_is_refused(bare_backend: Backend) -> None:
    """An old release would not know what it breaks. An unreleased version's database is refused by the same words."""
    store = bare_backend.store()
    await store.open()
    await store.close()
    await bare_backend.pretend_newer()
    for migrate in (True, False):
        old = bare_backend.store()
        with pytest.raises(EverpollError, match=r"upgrade everpoll.* begin with a new database"):
            await old.open(migrate=migrate)
        await old.close()


async def test_opening_and_closing_may_be_repeated(stage: Stage) -> None:
    task_id = await stage.put_one()
    await stage.store.open()
    await stage.store.close()
    await stage.store.close()
    await stage.store.open()
    await stage.store.open()
    assert set(await stage.store.info([task_id])) == {task_id}
    store = stage.backend.store()
    await store.close()


async def test_many_open_at_once(bare_backend: Backend) -> None:
    stores = [bare_backend.store() for _ in range(6)]
    await asyncio.gather(*(store.open() for store in stores))
    for store in stores:
        await use(store)
    assert len((await stores[0].tasks(TaskFilter())).tasks) == 6
    await asyncio.gather(*(store.close() for store in stores))


def test_many_processes_migrate_at_once(bare_backend: Backend) -> None:
    """One of them does it, the others wait for it."""
    assert bare_backend.url is not None
    migrator = (
        "import asyncio, sys; from everpoll.stores.urls import store_for\n"
        "sys.stdout.write('ready\\n'); sys.stdout.flush(); sys.stdin.readline()\n"
        "sys.stdout.write(str(len(asyncio.run(store_for(sys.argv[1]).migrate()))))"
    )
    processes = [
        WarmProcess(["-c", migrator, bare_backend.url], cwd=Path(__file__).parent, stdin=PIPE, stdout=PIPE)
        for _ in range(4)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    said = [process.communicate("go\n", timeout=120)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * 4
    assert sorted(said)[:3] == ["0"] * 3
    assert int(max(said)) > 0


def test_the_same_columns_have_the_same_names_in_both_databases() -> None:
    """What only one of them has is listed here, with its reason."""
    only_postgres = {
        "tasks.held_by": "the index of line 2; SQLite has an index of leased rows",
        "tasks.worker": "a label that outlives the row of its worker",
        "history.worker": "as above",
        "workers.is_clear": "a rescue reads it instead of all workers of the last day",
        "health_services.packed_ms": "SQLite has it in health_heads",
    }
    only_sqlite = {
        "history.was_leased": "Postgres clears the owner of a row that no worker holds",
        "health_looks.id": "SQLite has the looks at one service in a chain",
        "health_looks.previous": "as above",
    }
    postgres = columns(postgres_schema.migrations().values(), "everpoll.")
    sqlite = columns(sqlite_schema.migrations().values(), "everpoll_")
    assert {table for table in sqlite if table not in postgres} == {"health_heads"}
    assert {table for table in postgres if table not in sqlite} == set()
    shared = postgres.keys() & sqlite.keys()
    assert {f"{one}.{name}" for one in shared for name in postgres[one] - sqlite[one]} == set(only_postgres)
    assert {f"{one}.{name}" for one in shared for name in sqlite[one] - postgres[one]} == set(only_sqlite)


def columns(scripts: Iterable[str], prefix: str) -> dict[str, set[str]]:
    """The columns of each table that these scripts make."""
    text = re.sub(r"--.*", "", "\n".join(scripts))
    tables = re.findall(rf"create table {re.escape(prefix)}(\w+) \((.*?)\n\)", text, re.DOTALL)
    added = re.findall(rf"alter table {re.escape(prefix)}(\w+)(.*?);", text, re.DOTALL)
    found = {name: set(re.findall(r"(?:^|,)\s*(\w+)\s+(?!key\b|\()[a-z]", body)) for name, body in tables}
    for name, body in added:
        found[name] |= set(re.findall(r"add column (?:if not exists )?(\w+)", body))
    return {name: some - {"primary", "unique"} for name, some in found.items()}
