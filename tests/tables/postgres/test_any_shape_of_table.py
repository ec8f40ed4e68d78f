"""Tables as people have them: enums, domains, schemas, constraints, times without zones, partitions, triggers."""

import uuid
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from everpoll import BadInput
from everpoll.errors import TableUnfit
from everpoll.tables import Guard, Table
from everpoll.tables.urls import source_for
from tables.postgres_stage import PostgresStage
from tables.stages import JOBS, Claimer, keys

FENCE = "worker_id text, started_at timestamptz, created_at timestamptz not null default clock_timestamp()"


async def lived_through(stage: PostgresStage, mapping: Table) -> list[str]:
    """Three rows: one is done, one fails, one is given back; their statuses after a heartbeat and all that."""
    async with stage.claimer(mapping) as worker:
        done, failed, back = await worker.take()
        assert (await worker.beat(done, failed, back)).canceled == ()
        assert await worker.end(done) == set()
        assert await worker.end(failed, state="failed") == set()
        assert await worker.hand_back(back) == set()
        assert keys(await worker.take()) == [back.row_key]
    rows = await stage.fetch(f"select status::text from {stage_name(mapping)} order by id")  # noqa: S608
    return [row[0] for row in rows]


def stage_name(mapping: Table) -> str:
    return ".".join(f'"{part}"' for part in mapping.parts)


@pytest.mark.parametrize(
    ("made", "kind"),
    [
        ("create type mood as enum ('queued', 'running', 'completed', 'failed')", "mood"),
        ("create type \"Odd Type\" as enum ('queued', 'running', 'completed', 'failed')", '"Odd Type"'),
        ("create domain mood as text check (value in ('queued', 'running', 'completed', 'failed'))", "mood"),
        ("create domain calm as varchar(9); create domain mood as calm not null", "mood"),
        ("", "varchar(9)"),
        ("", "char(12)"),
        ("", "text collate \"C\" check (status in ('queued', 'running', 'completed', 'failed'))"),
    ],
)
async def test_a_status_of_any_type_serves(postgres_stage: PostgresStage, made: str, kind: str, guard: Guard) -> None:
    await postgres_stage.execute(made or "select 1")
    extra = "version int, updated_at timestamptz default now()"
    await postgres_stage.execute(f"create table jobs (id int primary key, status {kind}, {FENCE}, {extra})")
    await postgres_stage.queue(1, 2, 3)
    mapping = Table("jobs", guard=guard)
    assert [one.strip() for one in await lived_through(postgres_stage, mapping)] == ["completed", "failed", "running"]


async def test_a_status_may_be_a_number(postgres_stage: PostgresStage) -> None:
    """Words are cast to the column's own type, whatever it is."""
    await postgres_stage.execute(f"create table jobs (id int primary key, status int, {FENCE})")
    await postgres_stage.execute("insert into jobs (id, status) values (1, 0), (2, 0), (3, 0)")
    mapping = Table("jobs", queued="0", running="1", done="2", failed="3")
    assert await lived_through(postgres_stage, mapping) == ["2", "3", "1"]


async def test_a_schema_may_be_named_or_found_by_the_search_path(postgres_stage: PostgresStage) -> None:
    """The same name in another schema is another table."""
    for schema in ('"My App"', "other"):
        await postgres_stage.execute(f"drop schema if exists {schema} cascade; create schema {schema}")
        await postgres_stage.execute(f"create table {schema}.jobs (id int primary key, status text, {FENCE})")
        await postgres_stage.execute(
            f"insert into {schema}.jobs (id, status) select n, 'queued' from generate_series(1, 3) n"  # noqa: S608
        )
    assert await lived_through(postgres_stage, Table("My App.jobs")) == ["completed", "failed", "running"]
    source = source_for(f"{postgres_stage.url}?search_path=other", Table("jobs"))
    try:
        await source.open()
        worker = Claimer(source, "worker-1")
        await worker.sign_on()
        assert keys(await worker.take()) == [1, 2, 3]
        worker.close()
    finally:
        await source.close()
    source = source_for(postgres_stage.url, Table("jobs"))
    with pytest.raises(TableUnfit, match="search_path"):
        await source.open()
    await source.close()
    await postgres_stage.execute('drop schema "My App" cascade; drop schema other cascade')


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("smallint", ["1", "2", "3"]),
        ("integer", ["1", "2", "3"]),
        ("numeric(30, 2)", ["1.00", "2.50", "99999999999999999999.01"]),
        ("char(4)", ["a   ", "b   ", "c   "]),
        ("date", ["2020-01-01", "2020-01-02", "2020-01-03"]),
        ("order_no", ["1", "2", "3"]),
        ("code", ["a", "b", "c'; --"]),
        ("mood", ["bad", "fair", "good"]),
    ],
)
async def test_keys_of_other_types_travel_as_texts(
    postgres_stage: PostgresStage, kind: str, values: list[str], guard: Guard
) -> None:
    await postgres_stage.execute("create type mood as enum ('bad', 'fair', 'good')")
    await postgres_stage.execute("create domain order_no as bigint check (value > 0); create domain code as text")
    extra = "version int, updated_at timestamptz default now()"
    await postgres_stage.execute(f"create table jobs (id {kind} primary key, status text, {FENCE}, {extra})")
    sql = f"insert into jobs (id, status) select v::{kind}, 'queued' from unnest($1::text[]) v"  # noqa: S608
    await postgres_stage.fetch(sql, values)
    assert await lived_through(postgres_stage, Table("jobs", guard=guard)) == ["completed", "failed", "running"]


@pytest.mark.parametrize("kind", ["timestamp", "timestamptz(0)", "timestamp(0)", "timestamptz(3)"])
async def test_times_of_any_precision_and_without_a_zone_serve(
    postgres_stage: PostgresStage, kind: str, guard: Guard
) -> None:
    """The fence is what was really stored. Wherever the server stands: here in Kathmandu, 5:45 east of Greenwich."""
    await postgres_stage.execute("alter database adopted set timezone to 'Asia/Kathmandu'")
    try:
        names = ("started_at", "last_heartbeat", "finished_at", "due_at", "updated_at")
        times = ", ".join(f"{name} {kind}" for name in names)
        await postgres_stage.execute(
            f"""create table jobs (id int primary key, status text, worker_id text, retry_count int, version int,
            error text, priority int, created_at timestamptz default clock_timestamp(), payload text, report jsonb,
            {times})"""
        )
        await postgres_stage.queue(1, 2, 3)
        mapping = postgres_stage.mapping(guard=guard)
        assert await lived_through(postgres_stage, mapping) == ["completed", "failed", "running"]
        async with postgres_stage.claimer(mapping) as worker:
            assert (await worker.beat()).rescued == 0
            await postgres_stage.age(200, "last_heartbeat")
            assert (await worker.beat()).rescued == 0
            await postgres_stage.age(101, "last_heartbeat")
            assert (await worker.beat()).rescued == 1
            await worker.retry(await worker.take_one(), delay_s=100)
            due_s = (await worker.look()).next_due_s
            assert due_s is not None
            assert 90 < due_s <= 101
    finally:
        await postgres_stage.execute("alter database adopted reset timezone")


async def test_columns_that_may_not_be_empty_keep_what_they_have(postgres_stage: PostgresStage) -> None:
    """A hand-back empties worker, start and heartbeat only where it may."""
    await postgres_stage.execute(
        """create table jobs (id int primary key, status text not null,
        created_at timestamptz default clock_timestamp(), worker_id text not null default '',
        started_at timestamptz not null default '-infinity', last_heartbeat timestamptz,
        error varchar(8) not null default 'x')"""
    )
    await postgres_stage.queue(1, 2)
    mapping = Table("jobs", heartbeat="last_heartbeat", error="error")
    async with postgres_stage.claimer(mapping) as worker:
        one, two = await worker.take()
        await worker.hand_back(one)
        row = await postgres_stage.one(1)
        assert (row["status"], row["worker_id"], row["last_heartbeat"]) == ("queued", "worker-1", None)
        await worker.end(two, state="failed")
        assert (await postgres_stage.one(2))["error"] == "Boom: it"
        await worker.end(await worker.take_one())
        assert (await postgres_stage.one(1))["error"] == ""


async def test_results_have_the_types_of_their_columns(postgres_stage: PostgresStage) -> None:
    kinds = {
        "a": "jsonb", "b": "json", "c": "text", "d": "numeric(12, 2)", "e": "timestamptz", "f": "int[]", "g": "bytea",
        "h": "boolean", "i": "uuid", "j": "interval", "k": "date", "l": "text[]", "m": "varchar(5)", "n": "float8",
    }  # fmt: skip
    columns = ", ".join(f"{name} {kind}" for name, kind in kinds.items())
    await postgres_stage.execute(f"create table jobs (id int primary key, status text, {FENCE}, error text, {columns})")
    await postgres_stage.queue(1, 2, 3)
    at = datetime(2025, 11, 25, 12, 30, tzinfo=UTC)
    given: dict[str, Any] = {
        "a": {"x": [1, {"y": None}]}, "b": [1, 2], "c": "it's \\ \"text\"", "d": Decimal("12345.67"), "e": at,
        "f": [3, 1, 2], "g": b"\x00\xff", "h": True, "i": uuid.UUID(int=5), "j": timedelta(hours=25, seconds=1),
        "k": date(2025, 11, 25), "l": ["x", "y'z"], "m": "ümlau", "n": 1.5,
    }  # fmt: skip
    mapping = Table("jobs", results=tuple(kinds), error="error")
    async with postgres_stage.claimer(mapping) as worker:
        one, two, three = await worker.take()
        assert await worker.end(one, **given) == set()
        assert await worker.end(two, c="only this", d=None) == set()
        with pytest.raises(BadInput):
            await worker.end(three, m="too long for it")
        assert await worker.end(three, state="failed") == set()
    [row] = await postgres_stage.fetch("select * from jobs where id = 1")
    found = {name: row[name] for name in kinds}
    assert found == {**given, "a": '{"x": [1, {"y": null}]}', "b": "[1,2]"}
    [other] = await postgres_stage.fetch("select * from jobs where id = 2")
    assert {name for name in kinds if other[name] is not None} == {"c"}


async def test_a_result_that_does_not_fit_its_column_fails_its_row_and_no_other(postgres_stage: PostgresStage) -> None:
    await postgres_stage.execute(f"create table jobs (id int primary key, status text, {FENCE}, error text, score int)")
    await postgres_stage.queue(1, 2, 3)

    async def handle(row: Any) -> dict[str, object]:
        return {"score": "many" if row.id == 2 else row.id}

    async with postgres_stage.working(handle, Table("jobs", results=("score",), error="error")):
        rows = await postgres_stage.until_all("completed", "failed")
    assert [(row["status"], row["score"]) for row in rows] == [("completed", 1), ("failed", None), ("completed", 3)]
    assert "cannot be stored" in rows[1]["error"]


async def test_handlers_read_values_as_python_has_them(postgres_stage: PostgresStage) -> None:
    await postgres_stage.execute("create type mood as enum ('bad', 'good'); create domain code as text")
    await postgres_stage.execute(
        f"""create table jobs (id int primary key, status text, {FENCE}, a jsonb, b json, c numeric, d uuid,
        e timestamptz, f int[], g mood, h code, i bytea, j text[], k numeric[], l date, m boolean)"""
    )
    await postgres_stage.execute(
        """insert into jobs values (1, 'queued', null, null, now(), '{"x": [1]}', '[null]', 1.50,
        '00000000-0000-0000-0000-000000000005', '2025-11-25 12:30+00', '{1,2}', 'good', 'c', '\\x00ff', '{a,b}',
        '{1.5}', '2025-11-25', true)"""
    )
    await postgres_stage.queue(2)
    columns = tuple("abcdefghijklm")
    async with postgres_stage.claimer(Table("jobs", columns=columns)) as worker:
        full, empty = await worker.take()
        assert dict(full.values) == {
            "a": {"x": [1]}, "b": [None], "c": Decimal("1.50"), "d": uuid.UUID(int=5),
            "e": datetime(2025, 11, 25, 12, 30, tzinfo=UTC), "f": [1, 2], "g": "good", "h": "c", "i": b"\x00\xff",
            "j": ["a", "b"], "k": [Decimal("1.5")], "l": date(2025, 11, 25), "m": True,
        }  # fmt: skip
        assert dict(empty.values) == dict.fromkeys(columns)


async def test_a_partitioned_table_serves(postgres_stage: PostgresStage, guard: Guard) -> None:
    extra = "version int, updated_at timestamptz default now()"
    await postgres_stage.execute(
        f"""create table jobs (id int, status text, {FENCE}, {extra}) partition by range (id);
        create table jobs_low partition of jobs for values from (0) to (2);
        create table jobs_high partition of jobs for values from (2) to (10)"""
    )
    await postgres_stage.queue(1, 2, 3)
    mapping = Table("jobs", guard=guard)
    assert await lived_through(postgres_stage, mapping) == ["completed", "failed", "running"]


async def test_a_trigger_that_writes_the_start_by_itself_does_not_break_the_fence(
    postgres_stage: PostgresStage,
) -> None:
    """Each row of a claim may have another start then."""
    await postgres_stage.create()
    await postgres_stage.execute(
        """create function stamp() returns trigger language plpgsql as $$ begin
            if old.status = 'queued' then new.started_at = clock_timestamp() - new.id * interval '1 hour'; end if;
            new.updated_at = clock_timestamp(); return new; end $$;
        create trigger stamp before update on jobs for each row execute function stamp()"""
    )
    await postgres_stage.queue(1, 2, 3)
    mapping = postgres_stage.mapping(guard="timestamp")
    assert await lived_through(postgres_stage, mapping) == ["completed", "failed", "running"]


async def test_empty_priorities_come_last(postgres_stage: PostgresStage) -> None:
    await postgres_stage.execute(f"create table jobs (id int primary key, status text, {FENCE}, priority int)")
    await postgres_stage.queue(1)
    await postgres_stage.queue(2, priority=-5)
    await postgres_stage.queue(3, priority=5)
    async with postgres_stage.claimer(Table("jobs", priority="priority")) as worker:
        assert keys(await worker.take()) == [3, 2, 1]


FLAWS = [
    ("status", "status mood", "cannot hold 'running'"),
    ("status", "status varchar(6)", "it is longer than 6 characters"),
    ("status", "status text check (status in ('queued', 'completed', 'failed'))", "the constraint jobs_status_check"),
    ("worker_id", "worker_id int", "worker_id (worker) is integer, and must be a text"),
    ("started_at", "started_at date", "started_at is date, and must be a timestamp"),
    ("started_at", "started_at text", "must be a timestamp"),
    ("retry_count", "retry_count text", "retry_count (retries) is text, and must be a whole number"),
    ("error", "error jsonb", "error is jsonb, and must be a text"),
    ("created_at", "created_at json", "which has no order"),
    ("report", "report text generated always as ('x') stored", "report is generated, and cannot be written"),
]


@pytest.mark.parametrize(("column", "declared", "words"), FLAWS, ids=[one[1][:40] for one in FLAWS])
async def test_columns_of_the_wrong_type_are_told(
    postgres_stage: PostgresStage, column: str, declared: str, words: str
) -> None:
    """And another one that is missing, in the same message."""
    await postgres_stage.execute("create type mood as enum ('queued', 'completed', 'failed', 'canceled')")
    await postgres_stage.create({name: kind for name, kind in JOBS.items() if name not in {column, "priority"}})
    await postgres_stage.execute(f"alter table jobs add column {declared}")
    source = postgres_stage.source(postgres_stage.mapping())
    try:
        with pytest.raises(TableUnfit) as caught:
            await source.open()
    finally:
        await source.close()
    assert words in str(caught.value)
    assert "it lacks priority" in str(caught.value)
    assert caught.value.ddl == ['alter table "public"."jobs" add column "priority" integer not null default 0']


async def test_a_worker_whose_name_does_not_fit_is_told(postgres_stage: PostgresStage) -> None:
    await postgres_stage.execute(
        """create table jobs (id int primary key, status text, worker_id varchar(8), started_at timestamptz,
        created_at timestamptz)"""
    )
    with pytest.raises(TableUnfit, match="holds 8 characters"):
        async with postgres_stage.claimer(Table("jobs"), "worker-number-1"):
            pytest.fail("it signed on")


async def test_a_column_that_is_dropped_under_way_is_told(postgres_stage: PostgresStage) -> None:
    """The poller goes on, and says what is wrong at every look."""
    await postgres_stage.create()
    async with postgres_stage.claimer() as worker:
        await worker.take()
        await postgres_stage.execute("alter table jobs drop column retry_count")
        with pytest.raises(TableUnfit, match="everpoll tables check"):
            await worker.take()
        await postgres_stage.execute("alter table jobs add column retry_count int not null default 0")
        await postgres_stage.queue(1)
        assert keys(await worker.take()) == [1]
