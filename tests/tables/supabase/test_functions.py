"""Guard "skip_locked" over HTTP: by a function that is offered, found, and callable by no other role."""

from typing import Any

import asyncpg
import pytest
from aiohttp import web

from everpoll.errors import TableUnfit
from everpoll.stores.contract import Again, Ended, Settlement, encode
from everpoll.tables import Table
from everpoll.tables.contract import Finding
from everpoll.tables.supabase import SupabaseTable
from servers.postgrest import PostgRest, token
from servers.supabase import Gateway
from tables.postgrest_stage import PostgRestStage
from tables.stages import keys


async def test_without_the_function_it_is_refused_with_the_ddl_that_makes_it(postgrest_stage: PostgRestStage) -> None:
    stage = postgrest_stage
    await stage.create()
    source = SupabaseTable(stage.url, stage.mapping(), token())
    with pytest.raises(TableUnfit, match='write guard="status" to do without') as caught:
        await source.open()
    await stage.execute(";\n".join(caught.value.ddl))
    await source.open()
    await source.close()


async def test_a_claim_is_one_round_trip_that_skips_what_is_locked(
    postgrest_stage: PostgRestStage, gateway: Gateway
) -> None:
    stage = postgrest_stage
    await stage.create()
    await stage.queue(1, 2, 3)
    mapping = stage.mapping()
    async with stage.claimer(mapping) as worker:
        other = await asyncpg.connect(stage.database_url)
        try:
            async with other.transaction():
                await other.fetch("select from jobs where id = 1 for update")
                asked = len(gateway.asked)
                assert keys(await worker.take(2)) == [2, 3]
                assert [one[0] for one in gateway.asked[asked:]] == ["POST"]
        finally:
            await other.close()
        assert keys(await worker.take(2)) == [1]


async def test_a_batch_is_settled_in_one_round_trip_and_one_transaction(
    postgrest_stage: PostgRestStage, gateway: Gateway
) -> None:
    """Rows that end in as many ways as there are, each with its own results; one that is not ours is left alone."""
    stage = postgrest_stage
    await stage.create()
    await stage.queue(*range(6))
    async with stage.claimer(stage.mapping()) as worker:
        one, two, failed, again, back, lost = await worker.take()
        await stage.change(lost.row_key, status="draft")
        asked = len(gateway.asked)
        batch: list[Settlement] = [
            Ended(one.id, 1, "done", encode({"report": {"n": 1}})),
            Ended(two.id, 1, "done", encode({"report": "☃"})),
            Ended(failed.id, 1, "failed", None, encode({"what": "failed", "error": "it's broken", "type": "Boom"})),
            Again(again.id, 1, 60.0, note=encode({"what": "retry", "error": "once more", "type": "Boom"})),
            Again(back.id, 1, None, refund=True, note=encode({"what": "hand-back", "why": "it shuts down"})),
            Ended(lost.id, 1, "done", encode({"report": "never"})),
        ]
        assert await worker.settle(*batch) == {lost.id}
        assert [request[0] for request in gateway.asked[asked:]] == ["POST"]
    rows = await stage.rows()
    assert [row["status"] for row in rows] == ["completed", "completed", "failed", "queued", "queued", "draft"]
    assert [row["report"] for row in rows] == [{"n": 1}, "☃", None, None, None, None]
    assert [row["error"] for row in rows] == [None, None, "Boom: it's broken", "Boom: once more", None, None]
    assert [row["retry_count"] for row in rows] == [0, 0, 1, 1, 0, 0]
    assert [row["worker_id"] for row in rows] == ["worker-1"] * 3 + [None, None, "worker-1"]
    assert all(row["finished_at"] is not None for row in rows[:3])
    [[xmins]] = await stage.fetch("select count(distinct xmin::text) from jobs where id < 5")
    assert xmins == 1


async def test_another_mapping_needs_another_function(postgrest_stage: PostgRestStage) -> None:
    """So a function of an older mapping is never called by a newer one."""
    stage = postgrest_stage
    await stage.create()
    await stage.prepare(stage.mapping())
    source = SupabaseTable(stage.url, stage.mapping(running="in_progress"), token())
    with pytest.raises(TableUnfit, match="everpoll_claim_"):
        await source.open()
    await source.close()


async def test_only_the_service_role_may_call_it(postgrest_stage: PostgRestStage) -> None:
    """Supabase grants every new function to all users who are signed in; this grant is taken back."""
    stage = postgrest_stage
    await stage.create()
    await stage.prepare(stage.mapping())
    may = await stage.fetch(
        "select rolname::text, has_function_privilege(rolname, p.oid, 'execute') from pg_roles, pg_proc p "
        "where proname like 'everpoll_%' and rolname in ('anon', 'authenticated', 'service_role') order by 1"
    )
    roles = [("anon", False), ("authenticated", False), ("service_role", True)]
    assert [tuple(row) for row in may] == [one for one in roles for _ in range(2)]
    made = await stage.fetch("select prosecdef, proconfig from pg_proc where proname like 'everpoll_%'")
    assert [tuple(one) for one in made] == [(True, ["search_path=pg_catalog, pg_temp"])] * 2


async def test_the_ddl_may_be_run_twice_and_gives_a_bare_table_everything(postgrest_stage: PostgRestStage) -> None:
    stage = postgrest_stage
    await stage.execute("create table jobs (id bigint primary key)")
    await stage.execute("create publication supabase_realtime")
    try:
        mapping = stage.mapping()
        await stage.execute(";\n".join(SupabaseTable(stage.url, mapping, token()).ddl() * 2))
        await stage.insert({"id": 1})
        async with stage.claimer(mapping) as worker:
            assert await worker.end(await worker.take_one(), report={"a": 1}) == set()
        [answer] = await stage.fetch("select tablename::text from pg_publication_tables")
        assert tuple(answer) == ("jobs",)
    finally:
        await stage.execute("drop publication supabase_realtime")


async def test_a_table_that_is_not_there_is_offered_whole(postgrest_stage: PostgRestStage) -> None:
    stage = postgrest_stage
    mapping = stage.mapping()
    source = SupabaseTable(stage.url, mapping, token())
    with pytest.raises(TableUnfit, match="'jobs': there is no such table"):
        await source.open()
    statements = source.ddl()
    assert statements[0].startswith('create table if not exists "public"."jobs" (')
    await stage.execute(";\n".join(statements))
    await source.open()
    assert [one for one in source.ddl() if "add column" in one or "create table" in one] == []
    await source.close()
    await stage.insert({"payload": "first"})
    async with stage.claimer(mapping) as worker:
        assert await worker.end(await worker.take_one(), report={"a": 1}) == set()


@pytest.mark.parametrize("more", [{}, {"priority": None}, {"due_at": None, "priority": None}])
async def test_looks_use_the_index_that_is_offered(postgrest_stage: PostgRestStage, more: dict[str, Any]) -> None:
    """Told by the plans of a server that shows them; elsewhere the finding says that it cannot be seen."""
    stage = postgrest_stage
    await stage.create()
    await stage.execute("insert into jobs (id, status) select n, 'completed' from generate_series(1, 20000) n")
    await stage.queue(*range(-500, 0))
    mapping = stage.mapping(guard="status", **more)
    hidden = await index_of(SupabaseTable(stage.url, mapping, token()))
    assert not hidden.is_fit
    assert "cannot be seen" in hidden.detail
    open_server = PostgRest(stage.database_url, PGRST_DB_PLAN_ENABLED="true")
    try:
        source = SupabaseTable(open_server.url, mapping, token())
        before = await index_of(source)
        assert (before.is_fit, before.detail) == (False, "every look reads and sorts the whole table")
        assert before.ddl is not None
        await stage.execute(f"{before.ddl}; analyze jobs")
        after = await index_of(source)
        assert (after.is_fit, after.ddl) == (True, None)
    finally:
        open_server.close()


async def index_of(source: SupabaseTable) -> Finding:
    [found] = [one for one in await source.inspect() if one.what == "index"]
    return found


@pytest.mark.parametrize("guard", ["skip_locked", "status", "version", "timestamp"])
async def test_a_table_of_another_schema(postgrest_stage: PostgRestStage, guard: str) -> None:
    """`public` is named here, so its profile is asked for; a schema that is not served is told."""
    stage = postgrest_stage
    await stage.create()
    await stage.queue(1)
    mapping = stage.mapping("public.jobs", guard=guard)
    async with stage.claimer(mapping) as worker:
        assert await worker.end(await worker.take_one()) == set()
    source = SupabaseTable(stage.url, Table("hidden.jobs", guard="status"), token())
    with pytest.raises(TableUnfit, match="hidden"):
        await source.open()
    await source.close()


async def test_wrong_types_are_found_at_the_start_all_at_once(postgrest_stage: PostgRestStage) -> None:
    stage = postgrest_stage
    await stage.execute(
        "create type state as enum ('queued', 'running');"
        "create table jobs (id uuid primary key, status state, created_at timestamptz, worker_id uuid, "
        "started_at date, retries text, heartbeat timestamp)"
    )
    mapping = Table("jobs", guard="status", retries="retries", heartbeat="heartbeat")
    source = SupabaseTable(stage.url, mapping, token())
    with pytest.raises(TableUnfit) as caught:
        await source.open()
    await source.close()
    message = str(caught.value)
    for words in (
        "cannot hold 'completed', 'failed'",
        "worker_id (worker) is uuid, and must be a text",
        "started_at is date, and must be a timestamp",
        "retries is text, and must be a whole number",
    ):
        assert words in message
    assert "heartbeat is" not in message


async def test_a_server_without_a_description_is_asked_column_by_column(
    postgrest_stage: PostgRestStage, gateway: Gateway
) -> None:
    stage = postgrest_stage
    await stage.execute("create table jobs (id bigint primary key, status text, created_at timestamptz)")
    gateway.fault = lambda request: web.json_response({}, status=404) if request.path == "/rest/v1/" else None
    source = SupabaseTable(gateway.url, stage.bare(guard="status"), token())
    with pytest.raises(TableUnfit) as caught:
        await source.open()
    message = str(caught.value)
    assert [name for name in ("worker_id", "started_at", "payload") if name not in message] == []
    assert "column status" not in message
    await stage.execute(";\n".join(caught.value.ddl))
    await source.open()
    await source.close()
