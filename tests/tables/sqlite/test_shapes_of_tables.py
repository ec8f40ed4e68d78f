"""Whatever a table looks like, it is used if it can be; if not, everything that is wrong with it is said at once."""

import sqlite3
from contextlib import closing
from typing import Any

import pytest

from everpoll.errors import BadInput, TableUnfit
from everpoll.tables import Table
from tables.sqlite_stage import SqliteStage, quoted
from tables.stages import BARE, JOBS, keys

AWKWARD = {
    "key": 'the "key"',
    "status": "st`at'us",
    "order_by": "order",
    "worker": "select",
    "started_at": "start[ed] at",
    "finished_at": "fin.ished",
    "error": "100%",
    "heartbeat": ":beat",
    "retries": "?1",
    "priority": "größe",
    "due_at": "due;--",
    "version": "$version",
    "columns": ("pay load",),
    "results": ("re\nport",),
}
PLAIN = "id, status text, created_at text, worker_id text, started_at text, payload text"
NUMBERED = PLAIN.replace("id,", "id integer primary key,", 1)


async def test_names_that_need_quotes(sqlite_stage: SqliteStage) -> None:
    columns = [value if isinstance(value, str) else value[0] for value in AWKWARD.values()]
    key, *defined = [quoted(name) for name in columns]
    table = quoted("a `wild'")
    await sqlite_stage.execute(f"create table {table} ({key} integer primary key, {', '.join(defined)})")
    options: dict[str, Any] = {**AWKWARD, "guard": "version", "queued": "it's", "failed": '"; drop'}
    mapping = Table("a `wild'", **options)
    await sqlite_stage.insert({"st`at'us": "it's", "order": 1, "pay load": "x"}, table="a `wild'")
    async with sqlite_stage.claimer(mapping) as worker:
        lease = await worker.take_one()
        assert dict(lease.values) == {"pay load": "x"}
        assert (await worker.beat(lease)).canceled == ()
        await worker.retry(lease, delay_s=0)
        results: dict[str, Any] = {"re\nport": [1]}
        await worker.end(await worker.take_one(), **results)
        for statement in worker.source.ddl():
            await sqlite_stage.execute(statement)
        assert all(one.is_fit for one in await worker.source.inspect())
    [row] = await sqlite_stage.rows("a `wild'", 'the "key"')
    assert (row["st`at'us"], row["re\nport"], row["?1"]) == ("completed", "[1]", 1)


@pytest.mark.parametrize(
    ("defined", "given"),
    [
        ("create table jobs (id text primary key, {0}) without rowid", ["b", "a"]),
        ("create table jobs (id text primary key not null, {0})", ["b", "a", "ä'\"`"]),
        ("create table jobs (id text unique, {0})", ["b", "a"]),
        ("create table jobs (id blob primary key, {0})", [b"\x00\xff", b"\x00"]),
        ("create table jobs (id, {0}); create unique index by_id on jobs (id)", ["b", 1, "1", 2.5]),
        ("create table jobs (n integer primary key, id integer unique, {0})", [2**63 - 1, -(2**63)]),
        ("create table jobs (id int primary key, {0}) without rowid", [3, 1]),
        ("create table JOBS (ID integer primary key, {0}) strict", [3, 1]),
    ],
)
async def test_keys_of_any_kind(sqlite_stage: SqliteStage, defined: str, given: list[Any]) -> None:
    for statement in defined.format(PLAIN.removeprefix("id, ")).split(";"):
        await sqlite_stage.execute(statement)
    await sqlite_stage.insert(
        *({"id": key, "status": "queued", "created_at": f"{at:02}"} for at, key in enumerate(given))
    )
    async with sqlite_stage.claimer(sqlite_stage.bare()) as worker:
        leases = await worker.take()
        assert keys(leases) == given
        assert (await worker.beat(*leases)).canceled == ()
        assert await worker.hand_back(leases[0]) == set()
        [again] = await worker.take()
        assert again.row_key == given[0]
        assert await worker.end(*leases) == {leases[0].id}
        assert await worker.end(again) == set()
    assert {row["status"] for row in await sqlite_stage.rows()} == {"completed"}


async def test_a_row_without_a_key_is_passed_over(sqlite_stage: SqliteStage) -> None:
    """SQLite lets NULL into such a key; the row could be neither claimed nor fenced, and would block the others."""
    await sqlite_stage.execute(f"create table jobs ({PLAIN.replace('id,', 'id text primary key,', 1)})")
    await sqlite_stage.insert({"id": None, "status": "queued"}, {"id": "b", "status": "queued", "created_at": "z"})
    async with sqlite_stage.claimer(sqlite_stage.bare()) as worker:
        assert keys(await worker.take(1)) == ["b"]
        assert keys(await worker.take(1)) == []


async def test_columns_that_take_no_null(sqlite_stage: SqliteStage) -> None:
    await sqlite_stage.execute(
        """create table jobs (id integer primary key, status text not null, created_at text not null default '',
        worker_id text not null default '', started_at text not null default '', finished_at text not null default '',
        error text not null default '', last_heartbeat text not null default '', retry_count integer,
        priority integer, due_at text, payload text, report text)"""
    )
    await sqlite_stage.queue(1)
    async with sqlite_stage.claimer() as worker:
        first = await worker.take_one()
        assert await worker.hand_back(first) == set()
        second = await worker.take_one()
        assert await worker.retry(second, delay_s=0) == set()
        await sqlite_stage.age(3600, "last_heartbeat")
        third = await worker.take_one()
        await sqlite_stage.age(3600, "last_heartbeat")
        assert (await worker.beat()).rescued == 1
        fourth = await worker.take_one()
        assert await worker.end(first, second, third, fourth) == {first.id, second.id, third.id}
    row = await sqlite_stage.one(1)
    assert (row["status"], row["error"], row["retry_count"]) == ("completed", "", 2)


async def test_names_are_found_whatever_their_case(sqlite_stage: SqliteStage) -> None:
    await sqlite_stage.execute(f"create table Jobs ({PLAIN.upper().replace('ID,', 'ID integer primary key,', 1)})")
    await sqlite_stage.queue(1)
    async with sqlite_stage.claimer(sqlite_stage.bare("jobs")) as worker:
        assert keys(await worker.take()) == [1]


async def test_the_files_own_schema_may_be_named_and_no_other(sqlite_stage: SqliteStage) -> None:
    await sqlite_stage.create()
    await sqlite_stage.queue(1)
    async with sqlite_stage.claimer(sqlite_stage.mapping("main.jobs")) as worker:
        assert keys(await worker.take()) == [1]
    with pytest.raises(BadInput, match=r"'public\.jobs': an SQLite file has no schemas; write 'jobs'"):
        sqlite_stage.source(sqlite_stage.mapping("public.jobs"))


async def test_everything_that_is_missing_is_said_at_once(sqlite_stage: SqliteStage) -> None:
    await sqlite_stage.execute("create table jobs (id integer primary key, status text, retry_count text)")
    with pytest.raises(TableUnfit) as refused:
        await sqlite_stage.source(sqlite_stage.mapping()).open()
    said = str(refused.value)
    assert str(sqlite_stage.path) in said
    assert "lacks created_at (order_by), worker_id (worker), started_at, finished_at, error, last_heartbeat" in said
    assert "retry_count (retries) is TEXT, and must be a whole number" in said
    assert len(refused.value.ddl) == len(JOBS) - len(("id", "status", "retry_count", "version", "updated_at"))


@pytest.mark.parametrize("strict", ["", "strict"])
@pytest.mark.parametrize("guard", ["status", "version", "timestamp"])
async def test_the_ddl_gives_a_table_what_it_lacks(sqlite_stage: SqliteStage, strict: str, guard: Any) -> None:
    await sqlite_stage.execute(f"create table jobs (id integer primary key, note text) {strict}")
    await sqlite_stage.execute("insert into jobs (note) values ('there before')")
    mapping = sqlite_stage.mapping(guard=guard)
    source = sqlite_stage.source(mapping)
    with pytest.raises(TableUnfit) as refused:
        await source.open()
    assert refused.value.ddl == source.ddl()
    for statement in source.ddl():
        await sqlite_stage.execute(statement)
    assert source.ddl() == []
    async with sqlite_stage.claimer(mapping) as worker:
        assert [one.what for one in await worker.source.inspect() if not one.is_fit] == []
        [lease] = await worker.take()
        assert await worker.end(lease, report={"n": 1}) == set()
    [row] = await sqlite_stage.rows()
    assert (row["note"], row["report"]) == ("there before", {"n": 1})


@pytest.mark.parametrize("has_file", [False, True])
async def test_the_ddl_makes_a_table_where_there_is_none(sqlite_stage: SqliteStage, has_file: bool) -> None:
    """And nothing is made by itself."""
    if has_file:
        await sqlite_stage.execute("create table other (id)")
    source = sqlite_stage.source(sqlite_stage.mapping())
    with pytest.raises(TableUnfit, match="there is no such table" if has_file else "there is no file") as refused:
        await source.open()
    assert sqlite_stage.path.exists() is has_file
    for statement in refused.value.ddl:
        await sqlite_stage.execute(statement)
    await sqlite_stage.queue(1)
    async with sqlite_stage.claimer() as worker:
        assert keys(await worker.take()) == [1]
        assert all(one.is_fit for one in await worker.source.inspect())


@pytest.mark.parametrize(
    ("defined", "words"),
    [
        ("create table other (id); create view jobs as select * from other", "it is a view"),
        (f"create table jobs ({PLAIN})", "id (key) does not identify a row"),
        (f"create table jobs ({PLAIN}, primary key (id, payload))", "id (key) does not identify a row"),
        (f"create table jobs ({PLAIN}); create unique index one on jobs (id) where status = 'x'", "does not identify"),
        (f"create table jobs ({PLAIN}); create unique index one on jobs (id, status)", "does not identify"),
        (f"create table jobs ({PLAIN}); create unique index one on jobs (lower(id))", "does not identify"),
        (
            f"create table jobs ({NUMBERED.replace('worker_id text', 'worker_id as (1)')})",
            "worker_id (worker) is generated, and cannot be written",
        ),
        (
            f"create table jobs ({NUMBERED.replace('worker_id text', 'worker_id real')}) strict",
            "worker_id (worker) is REAL, and must be a text",
        ),
        (f"create table jobs ({PLAIN[4:]})", "it lacks id (key)"),
    ],
)
async def test_what_cannot_be_used_is_refused(sqlite_stage: SqliteStage, defined: str, words: str) -> None:
    for statement in defined.split(";"):
        await sqlite_stage.execute(statement)
    with pytest.raises(TableUnfit) as refused:
        await sqlite_stage.source(sqlite_stage.bare()).open()
    assert words in str(refused.value)


async def test_columns_of_the_handlers_may_have_the_names_of_roles(sqlite_stage: SqliteStage) -> None:
    """A text called `version` is just a column, where no guard wants it."""
    await sqlite_stage.create(BARE | {"version": "text", "due_at": "text", "heartbeat": "text", "priority": "text"})
    await sqlite_stage.queue(1, version="1.0", due_at="never", heartbeat="b", priority="p")
    names = ("version", "due_at", "heartbeat", "priority")
    async with sqlite_stage.claimer(sqlite_stage.bare(columns=names)) as worker:
        assert list((await worker.take_one()).values.values()) == ["1.0", "never", "b", "p"]


@pytest.mark.parametrize(
    ("more", "refused"),
    [
        ("check (status in ('queued', 'running', 'failed'))", ["completed"]),
        ("name text not null check (length(name) < 9), check (status <> 'failed')", ["failed"]),
        ("name text not null check (length(name) > 9)", []),
        ("check (status <> 'running' or worker_id is null)", []),
        ("check (unknown_here(status))", []),
    ],
)
async def test_words_that_a_constraint_refuses_are_told(
    sqlite_stage: SqliteStage, more: str, refused: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Rows whose end cannot be written would run again and again."""
    with closing(sqlite_stage.connect()) as con:
        con.create_function("unknown_here", 1, lambda _: 1)
        con.execute(f"create table jobs ({NUMBERED}, {more})")
    source = sqlite_stage.source(sqlite_stage.bare())
    [found] = [one for one in await source.inspect() if one.what == "status words"]
    assert [
        one for one in ("queued", "running", "completed", "failed") if f"'{one}' is refused" in found.detail
    ] == refused
    await source.open()
    await source.close()
    assert ("is refused: CHECK constraint failed" in caplog.text) is bool(refused)


async def test_a_table_in_the_order_of_its_keys(sqlite_stage: SqliteStage) -> None:
    await sqlite_stage.execute(f"create table jobs ({PLAIN.replace('id,', 'id text primary key,', 1)})")
    await sqlite_stage.insert({"id": "b", "status": "queued"}, {"id": "a", "status": "queued"})
    mapping = sqlite_stage.bare(order_by="id")
    [ddl] = sqlite_stage.source(mapping).ddl()
    await sqlite_stage.execute(ddl)
    async with sqlite_stage.claimer(mapping) as worker:
        assert keys(await worker.take()) == ["a", "b"]
        assert worker.source.ddl() == []


@pytest.mark.parametrize("content", [b"not a database at all" * 100])
async def test_what_is_no_database_is_said(sqlite_stage: SqliteStage, content: bytes) -> None:
    sqlite_stage.path.write_bytes(content)
    with pytest.raises(BadInput, match=f"{sqlite_stage.path}: it is not an SQLite database"):
        await sqlite_stage.source(sqlite_stage.mapping()).open()
    with pytest.raises(BadInput, match="not an SQLite database"):
        await sqlite_stage.source(sqlite_stage.mapping()).inspect()


async def test_looking_changes_nothing(sqlite_stage: SqliteStage) -> None:
    """`check` and `ddl` leave the file as it is, its journal mode too."""
    await sqlite_stage.create()
    before = sqlite_stage.path.read_bytes()
    source = sqlite_stage.source(sqlite_stage.mapping(heartbeat=None))
    found = {one.what: one for one in await source.inspect()}
    source.ddl()
    assert sqlite_stage.path.read_bytes() == before
    assert list(sqlite_stage.path.parent.iterdir()) == [sqlite_stage.path]
    assert (found["index"].is_fit, found["index"].is_needed) == (False, True)
    for what in ("journal mode", "heartbeat", "index of due times"):
        assert (found[what].is_fit, found[what].is_needed) == (False, False), what
    assert found["push"].is_fit
    assert found["column status"].is_fit


async def test_the_switch_to_wal_is_said_once(sqlite_stage: SqliteStage, caplog: pytest.LogCaptureFixture) -> None:
    await sqlite_stage.create()
    for _ in range(2):
        source = sqlite_stage.source(sqlite_stage.mapping())
        await source.open()
        await source.close()
    assert [one.message for one in caplog.records if "WAL" in one.message] == [
        f"{sqlite_stage.path} was switched to WAL mode, and stays in it"
    ]
    assert (await sqlite_stage.fetch("pragma journal_mode"))[0][0] == "wal"


async def test_what_a_handler_returns_is_stored_natively(sqlite_stage: SqliteStage) -> None:
    names = ("a", "b", "c", "d", "e", "f")
    await sqlite_stage.execute(f"create table jobs ({NUMBERED}, {', '.join(names)})")
    await sqlite_stage.queue(1)
    async with sqlite_stage.claimer(sqlite_stage.bare(results=names)) as worker:
        values: dict[str, Any] = {"a": 1, "b": 2.5, "c": True, "d": "ä", "e": {"x": [None]}, "f": None}
        assert await worker.end(await worker.take_one(), **values) == set()
    [row] = await sqlite_stage.fetch("select a, b, c, d, e, f from jobs")
    assert tuple(row) == (1, 2.5, 1, "ä", '{"x":[null]}', None)


async def test_json_is_written_where_it_is_declared(sqlite_stage: SqliteStage) -> None:
    """What is read again is what was returned, whatever it was."""
    await sqlite_stage.create(BARE | {"report": "json"})
    given: list[Any] = ["text", True, 5, 2.5, None, [1], {"a": "ä"}]
    await sqlite_stage.queue(*range(len(given)))
    async with sqlite_stage.claimer(sqlite_stage.bare(results=("report",))) as worker:
        for lease in await worker.take():
            assert await worker.end(lease, report=given[lease.row_key]) == set()
    await sqlite_stage.execute("update jobs set status = 'queued'")
    async with sqlite_stage.claimer(sqlite_stage.bare(columns=("report",))) as worker:
        assert [one.values["report"] for one in await worker.take()] == given


async def test_json_is_read_as_what_it_says(sqlite_stage: SqliteStage) -> None:
    await sqlite_stage.create(BARE | {"config": "json"})
    await sqlite_stage.queue(1, config={"a": [1]})
    await sqlite_stage.queue(2, config="no json")
    await sqlite_stage.queue(3)
    async with sqlite_stage.claimer(sqlite_stage.bare(columns=("config",))) as worker:
        assert [one.values["config"] for one in await worker.take()] == [{"a": [1]}, "no json", None]


async def test_a_dropped_column_is_an_error_and_no_word(sqlite_stage: SqliteStage) -> None:
    """In double quotes SQLite would take the name for a text, compare it, and find nothing for ever."""
    await sqlite_stage.create(BARE | {"due_at": "instant"})
    async with sqlite_stage.claimer(sqlite_stage.bare(due_at="due_at")) as worker:
        assert await worker.take() == []
        await sqlite_stage.execute("alter table jobs drop column due_at")
        with pytest.raises(sqlite3.OperationalError, match="no such column: due_at"):
            await worker.take()
