"""`everpoll tables ddl` and `everpoll tables check`: what is missing, the statements for it, and an exit code."""

import asyncio
import contextlib
import json
import os
import sqlite3
from pathlib import Path

import asyncpg
import pytest

import warm_processes

EVERPOLL = ["-m", "everpoll"]
SHOP = """
import os
from everpoll import Everpoll
from everpoll.tables import Table

app = Everpoll("memory://")
executions = app.table(Table("execution_jobs", heartbeat="last_heartbeat"), url=os.environ["SHOP_URL"])
audits = app.table(Table("audits"), url=os.environ["SHOP_URL"])
none = Everpoll("memory://")
"""


class Shop:
    """A folder with an app in it, a database, and the shell."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.url = url
        (folder / "shop.py").write_text(SHOP)
        self.env = {**os.environ, "SHOP_URL": url, "COLUMNS": "200"}

    def everpoll(self, *arguments: str, code: int = 0) -> str:
        ended = warm_processes.run([*EVERPOLL, *arguments], cwd=self.folder, env=self.env)
        assert ended.returncode == code, ended.stdout + ended.stderr
        return ended.stdout + ended.stderr

    def execute(self, sql: str) -> None:
        async def executed() -> None:
            connection = await asyncpg.connect(self.url)
            await connection.execute(sql)
            await connection.close()

        asyncio.run(executed())


@pytest.fixture
def shop(tmp_path: Path, postgres_url: str) -> Shop:
    return Shop(tmp_path, postgres_url)


def test_what_ddl_prints_makes_check_content(shop: Shop) -> None:
    """From no table at all, and from one that lacks columns."""
    shop.execute("create table audits (id uuid primary key, status text not null)")
    missing = shop.everpoll("tables", "check", "shop:app", code=1)
    assert "there is no such table" in " ".join(missing.split())
    assert "column worker_id" in missing
    printed = shop.everpoll("tables", "ddl", "shop:app")
    offered = [line for line in printed.splitlines() if not line.startswith("-- ")]
    assert [line for line in offered if line not in missing.splitlines()] == [], "check prints what ddl prints"
    assert 'create table "execution_jobs"' in printed
    assert 'alter table "public"."audits" add column "worker_id" text;' in printed
    shop.execute(printed)
    content = shop.everpoll("tables", "check", "shop:app")
    assert "missing" not in content
    assert "trigger everpoll_wake" in content
    assert "better with" in content, "audits maps no heartbeat"
    assert shop.everpoll("tables", "ddl", "shop:app") == "-- execution_jobs\n-- audits\n"


def test_check_is_json_for_scripts(shop: Shop) -> None:
    shop.execute(shop.everpoll("tables", "ddl", "shop:app", "audits"))
    found = json.loads(shop.everpoll("tables", "check", "shop:app", "audits", "--json"))
    by_name = {one["what"]: one for one in found["audits"]}
    assert by_name["column status"]["is_fit"] is True
    assert by_name["heartbeat"]["is_needed"] is False
    assert by_name["heartbeat"]["ddl"] is None, "a column that the mapping does not name would be of no use"
    assert "heartbeat=" in by_name["heartbeat"]["detail"]
    assert by_name["index"]["is_fit"] is True


def test_a_missing_index_is_needed(shop: Shop) -> None:
    """It works without; and every poll reads the whole table."""
    shop.execute(shop.everpoll("tables", "ddl", "shop:app", "audits"))
    shop.execute("drop index audits_everpoll_queue")
    output = shop.everpoll("tables", "check", "shop:app", "audits", code=1)
    assert 'create index if not exists "audits_everpoll_queue"' in output


def test_a_missing_index_is_needed_on_sqlite_as_well(tmp_path: Path) -> None:
    shop = Shop(tmp_path, f"sqlite:///{tmp_path}/shop.db")
    with contextlib.closing(sqlite3.connect(tmp_path / "shop.db")) as connection:
        connection.executescript(shop.everpoll("tables", "ddl", "shop:app", "audits"))
        shop.everpoll("tables", "check", "shop:app", "audits")
        connection.executescript('drop index "audits_queue"')
    output = shop.everpoll("tables", "check", "shop:app", "audits", code=1)
    assert 'create index if not exists "audits_queue"' in output


def test_ddl_prints_nothing_where_check_is_content(shop: Shop) -> None:
    """An index of the owner's own serves as well as ours."""
    shop.execute(shop.everpoll("tables", "ddl", "shop:app", "audits"))
    shop.execute("drop index audits_everpoll_queue; create index own on audits (status, created_at, id)")
    shop.everpoll("tables", "check", "shop:app", "audits")
    assert shop.everpoll("tables", "ddl", "shop:app", "audits") == "-- audits\n"


def test_rows_and_workers_of_a_table_are_shown(shop: Shop) -> None:
    """`tables list`, `workers --app` and `why TABLE:KEY`."""
    shop.execute(shop.everpoll("tables", "ddl", "shop:app", "execution_jobs"))
    assert "No worker holds rows of the app's tables" in shop.everpoll("workers", "--app", "shop:app", code=2)
    shop.execute(
        "insert into execution_jobs (status, worker_id, started_at, last_heartbeat) values "
        "('queued', null, null, null), ('running', 'web-1', now(), now())"
    )
    listed = shop.everpoll("tables", "list", "shop:app")
    assert "1 queued, 1 running, 0 completed, 0 failed" in listed
    assert "table 'audits': there is no such table" in " ".join(listed.split())
    found = json.loads(shop.everpoll("tables", "list", "shop:app", "execution_jobs", "--json"))
    assert found[0]["workers"][0]["label"] == "web-1"
    beside = shop.everpoll("workers", "--app", "shop:app", code=2)
    assert "web-1" in beside, "a table that cannot be read hides no worker of another one"
    assert "table 'audits': there is no such table" in beside
    shop.execute(shop.everpoll("tables", "ddl", "shop:app", "audits"))
    workers = shop.everpoll("workers", "--app", "shop:app")
    assert workers.splitlines()[-1].split()[:4] == ["web-1", "alive", "execution_jobs", "1"]
    assert json.loads(shop.everpoll("workers", "--app", "shop:app", "--json"))[0]["table"] == "execution_jobs"
    assert "runs on worker web-1" in shop.everpoll("why", "execution_jobs:2", "--app", "shop:app")
    assert "waits for a free slot" in shop.everpoll("why", "execution_jobs:1", "--app", "shop:app")
    assert "waits for a free slot" in shop.everpoll("why", "execution_jobs#1", "--app", "shop:app"), "as logs write it"
    assert "has no row '9'" in shop.everpoll("why", "execution_jobs:9", "--app", "shop:app", code=2)


def test_what_cannot_be_meant_is_told(shop: Shop) -> None:
    assert "adopted: execution_jobs, audits" in shop.everpoll("tables", "check", "shop:app", "orders", code=2)
    assert "has adopted no tables" in shop.everpoll("tables", "ddl", "shop:none", code=2)
