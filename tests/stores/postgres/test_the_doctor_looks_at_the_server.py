"""The doctor on real Postgres: each check is made red on purpose, by an administrator, a pooler or an outage."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import asyncpg

from everpoll.doctor import Check, diagnose
from everpoll.drivers.postgres.address import read_address
from everpoll.stores.contract import NewTask
from everpoll.stores.postgres.examination import PostgresExaminer
from everpoll.stores.urls import store_for
from servers.postgres import FAST, Cluster, cluster
from stores.postgres.pooler import Pooler

ROLE = "doctor_role"


async def checks(url: str, age_s: float = 300.0, ahead_s: float = 0.0) -> dict[str, Check]:
    found = await diagnose(PostgresExaminer(read_address(url), lambda: time.time() + ahead_s), age_s)
    return {one.name: one for one in found.checks}


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


async def order(url: str, sql: str) -> None:
    async with connected(url) as connection:
        await connection.execute(sql)


@asynccontextmanager
async def role(url: str, rights: str = "") -> AsyncIterator[str]:
    """The address of a role with these rights, for the length of the block."""
    await order(url, f"create role {ROLE} login; {rights}")
    try:
        yield url.replace("postgres@", f"{ROLE}@")
    finally:
        await order(url, f"drop owned by {ROLE}; drop role {ROLE}")


async def migrate(url: str) -> None:
    store = store_for(url)
    await store.open()
    await store.close()


async def test_a_database_without_everpoll_is_a_problem_and_stays_without(bare_url: str) -> None:
    found = await checks(bare_url)
    assert (found["database"].level, found["schema"].level) == ("ok", "problem")
    assert "everpoll migrate" in found["schema"].remedy
    assert found["clock"].level == found["connections"].level == found["notifications"].level == "ok"
    assert found["leases"].level == "warning"
    async with connected(bare_url) as connection:
        assert not await connection.fetchval("select to_regnamespace('everpoll') is not null")


async def test_an_older_a_newer_and_an_incomplete_schema_are_problems(bare_url: str) -> None:
    await migrate(bare_url)
    await order(bare_url, "delete from everpoll.migrations where name = '0001_tables'")
    assert "0001_tables" in (await checks(bare_url))["schema"].says
    await order(bare_url, "insert into everpoll.migrations values ('0001_tables'), ('9999_future')")
    found = (await checks(bare_url))["schema"]
    assert "9999_future" in found.says
    assert "upgrade" in found.remedy
    await order(bare_url, "delete from everpoll.migrations where name = '9999_future'")
    await order(bare_url, "delete from everpoll.function_sets")
    found = (await checks(bare_url))["schema"]
    assert found.level == "problem"
    assert "functions" in found.says


async def test_missing_and_invalid_indexes_are_problems_with_their_statements(bare_url: str) -> None:
    await migrate(bare_url)
    await order(bare_url, "drop index everpoll.tasks_ready")
    found = (await checks(bare_url))["indexes"]
    assert found.level == "problem"
    assert "tasks_ready" in found.says
    await order(bare_url, found.remedy.removeprefix("run: "))
    assert (await checks(bare_url))["indexes"].level == "ok"
    await order(bare_url, "update pg_index set indisvalid = false where indexrelid = 'everpoll.tasks_key'::regclass")
    found = (await checks(bare_url))["indexes"]
    assert found.level == "problem"
    assert "invalid: tasks_key" in found.says
    await order(bare_url, found.remedy.removeprefix("run: "))
    assert (await checks(bare_url))["indexes"].level == "ok"


async def test_an_index_that_the_planner_leaves_alone_is_a_warning(bare_url: str) -> None:
    await migrate(bare_url)
    await order(bare_url, "drop index everpoll.tasks_waiting; create index tasks_waiting on everpoll.tasks (args)")
    found = (await checks(bare_url))["indexes"]
    assert found.level == "warning"
    assert "tasks_waiting" in found.says


async def test_a_clock_that_differs_is_told(url: str) -> None:
    assert (await checks(url))["clock"].level == "ok"
    ahead = (await checks(url, ahead_s=-10.0))["clock"]
    assert ahead.level == "warning"
    assert "ahead of this machine's clock" in ahead.says
    behind = (await checks(url, ahead_s=600.0))["clock"]
    assert behind.level == "problem"
    assert "behind this machine's clock" in behind.says


async def test_a_transaction_that_is_held_is_told_with_the_statement_that_ends_it(url: str) -> None:
    async with connected(f"{url}?application_name=reports") as holder:
        await holder.execute("begin; select 1")
        warned = (await checks(url, age_s=0.001))["transactions"]
        assert (await checks(url, age_s=3600.0))["transactions"].level == "ok"
        pid = holder.get_server_pid()
        assert warned.level in {"warning", "problem"}
        assert "reports" in warned.says
        assert "idle in transaction" in warned.says
        assert f"select pg_terminate_backend({pid})" in warned.remedy


async def test_a_prepared_transaction_is_told(major: int) -> None:
    with cluster(major, {**FAST, "max_prepared_transactions": "2"}) as server:
        url = server.url()
        await order(url, "begin; create table prepared_here (id int); prepare transaction 'it''s left'")
        found = (await checks(url, age_s=0.001))["transactions"]
    assert "prepared transaction" in found.says
    assert "rollback prepared 'it''s left'" in found.remedy


async def test_a_role_that_may_not_see_other_sessions_says_so(bare_url: str) -> None:
    await migrate(bare_url)
    async with connected(bare_url), role(bare_url) as theirs:
        found = (await checks(theirs))["transactions"]
        assert found.level == "warning"
        assert "cannot be seen" in found.says
        assert f"grant pg_read_all_stats to {ROLE}" in found.remedy
        await order(bare_url, f"grant pg_read_all_stats to {ROLE}")
        assert (await checks(theirs))["transactions"].level == "ok"


async def test_a_role_without_rights_says_what_it_could_not_see(bare_url: str) -> None:
    """Neither on the schema nor on the views of statistics: each check has its reason, and some its GRANT."""
    await migrate(bare_url)
    hidden = "revoke select on pg_stat_activity, pg_stat_user_tables, pg_prepared_xacts from public"
    shown = "grant select on pg_stat_activity, pg_stat_user_tables, pg_prepared_xacts to public"
    try:
        async with role(bare_url, hidden) as theirs:
            found = await checks(theirs)
    finally:
        await order(bare_url, shown)
    assert found["database"].level == "ok"
    assert "permission denied for schema everpoll" in found["schema"].says
    assert found["schema"].remedy == f"run: grant usage on schema everpoll to {ROLE}"
    for name in ("transactions", "connections", "dead rows"):
        assert found[name].level == "warning"
        assert "permission denied" in found[name].says
    assert found["clock"].level == found["notifications"].level == "ok"


async def test_connections_near_their_limit_are_told(bare_url: str) -> None:
    await migrate(bare_url)
    async with role(bare_url, f"alter role {ROLE} connection limit 10") as theirs, AsyncExitStack() as until:
        for _ in range(7):
            await until.enter_async_context(connected(theirs))
        found = (await checks(theirs))["connections"]
        assert found.level == "warning"
        assert f"8 of 10 connections of the role {ROLE}" in found.says
        for _ in range(3):
            await until.enter_async_context(connected(theirs))
        found = (await checks(theirs))["database"]
        assert found.level == "problem"
        assert "connections=2" in found.remedy


async def test_behind_a_transaction_pooler_it_says_that_workers_poll(url: str) -> None:
    async with Pooler(url) as pooler:
        found = await checks(f"{pooler.url}?statement_cache=0")
    assert found["notifications"].level == "warning"
    assert "poll" in found["notifications"].says
    assert found["schema"].level == found["leases"].level == "ok"


async def test_dead_rows_that_no_vacuum_takes_are_told(bare_url: str) -> None:
    await migrate(bare_url)
    async with connected(bare_url) as connection:
        await connection.execute("alter table everpoll.losses set (autovacuum_enabled = false)")
        await connection.execute(
            "insert into everpoll.losses (task_id, note) select i, '' from generate_series(1, 12000) i"
        )
        await connection.execute("delete from everpoll.losses")
        await connection.fetchval("select pg_stat_force_next_flush()")
        await connection.fetchval("select 1")
        found = (await checks(bare_url))["dead rows"]
        assert found.level == "warning"
        assert "everpoll.losses has 12,000 dead rows" in found.says
        assert "vacuum (analyze) everpoll.losses" in found.remedy


async def test_a_server_that_is_away_is_a_problem(own_server: Cluster) -> None:
    url = own_server.url()
    own_server.stop()
    try:
        found = await checks(url)
    finally:
        own_server.start()
    assert found["database"].level == "problem"
    assert {"schema", "indexes", "clock", "leases", "transactions"} <= found.keys()
    assert found["schema"].says == "not looked at: the database does not answer"


async def test_a_wrong_password_is_told_and_not_shown(url: str) -> None:
    found = await checks(url.replace("postgres@", "nobody:geheim@"))
    assert found["database"].level == "problem"
    assert not any("geheim" in one.says + one.remedy for one in found.values())


async def test_a_table_that_is_locked_delays_nobody_for_long(bare_url: str) -> None:
    """Every question has its limit: the diagnosis comes, and says what it could not see."""
    await migrate(bare_url)
    async with connected(bare_url) as holder, asyncio.timeout(60), holder.transaction():
        await holder.execute("lock table everpoll.pauses in access exclusive mode")
        found = await checks(bare_url)
    assert found["queues"].level == "warning"
    assert "not looked at" in found["queues"].says
    assert found["schema"].level == "ok"


async def test_a_diagnosis_leaves_no_session_behind(url: str) -> None:
    store = store_for(url)
    await store.open()
    await store.enqueue([NewTask(name="job")])
    await store.close()
    async with connected(url) as connection:
        sessions = "select count(*) from pg_stat_activity where datname = current_database()"
        await checks(url)

        async def gone() -> None:
            # This one, and the one of the fixture, are left.
            while await connection.fetchval(sessions) > 2:  # noqa: ASYNC110 - the server is what it waits for
                await asyncio.sleep(0.02)

        await asyncio.wait_for(gone(), 30)
