"""What `everpoll tables check` tells about a table in Postgres, and that the DDL it offers puts it right."""

import pytest

from everpoll.tables import Table
from everpoll.tables.contract import Finding
from tables.postgres_stage import PostgresStage
from tables.stages import BARE, JOBS


async def inspected(stage: PostgresStage, mapping: Table) -> dict[str, Finding]:
    source = stage.source(mapping)
    try:
        return {one.what: one for one in await source.inspect()}
    finally:
        await source.close()


async def test_the_ddl_makes_every_finding_fit(postgres_stage: PostgresStage) -> None:
    """From no table at all: the statements of `ddl()` in order, and again, which changes nothing."""
    mapping = postgres_stage.mapping(guard="version")
    before = await inspected(postgres_stage, mapping)
    assert list(before) == ["table"]
    source = postgres_stage.source(mapping)
    for statement in source.ddl():
        await postgres_stage.execute(statement)
    for statement in source.ddl()[1:]:
        await postgres_stage.execute(statement)
    after = await inspected(postgres_stage, mapping)
    assert {name: one.is_fit for name, one in after.items()} == dict.fromkeys(after, True)
    assert "so small that Postgres reads it all" in after["index"].detail


async def test_the_trigger_of_the_ddl_is_found_once_the_schema_is_known(postgres_stage: PostgresStage) -> None:
    await postgres_stage.create()
    mapping = postgres_stage.mapping()
    push = (await inspected(postgres_stage, mapping))["push"]
    assert (push.is_fit, push.is_needed) == (False, False)
    assert push.ddl is not None
    await postgres_stage.execute(push.ddl)
    assert (await inspected(postgres_stage, mapping))["push"].is_fit
    await postgres_stage.execute("alter table jobs disable trigger everpoll_wake")
    assert not (await inspected(postgres_stage, mapping))["push"].is_fit


async def test_a_key_that_identifies_no_row_is_told_at_the_start(
    postgres_stage: PostgresStage, caplog: pytest.LogCaptureFixture
) -> None:
    await postgres_stage.create()
    await postgres_stage.execute("alter table jobs drop constraint jobs_pkey")
    async with postgres_stage.claimer():
        pass
    assert "rows that share a key are written together" in caplog.text


async def test_names_may_look_like_parts_of_a_statement(postgres_stage: PostgresStage) -> None:
    await postgres_stage.execute("""create table "limit $1" (id int primary key, status text, created_at timestamptz,
        worker_id text, started_at timestamptz, payload text)""")
    assert not (await inspected(postgres_stage, postgres_stage.bare("limit $1")))["index"].is_fit


async def test_a_view_is_called_a_view(postgres_stage: PostgresStage) -> None:
    await postgres_stage.create()
    await postgres_stage.execute("create view waiting as select * from jobs")
    found = await inspected(postgres_stage, postgres_stage.mapping("waiting"))
    assert found["table"].detail == "it is a view, whose rows cannot be claimed"
    assert found["table"].ddl is None


@pytest.mark.parametrize(
    ("index", "is_fit"),
    [
        ("", False),
        ("create index mine on jobs (status)", False),
        ("create index mine on jobs (created_at)", False),
        ("create index mine on jobs (status, created_at)", True),
        ("create index mine on jobs (status, created_at desc)", True),
        ("create index mine on jobs (created_at, id) where status = 'queued'", True),
        ("create index mine on jobs (status, priority desc, created_at)", False),
    ],
)
async def test_an_index_serves_or_not(postgres_stage: PostgresStage, index: str, is_fit: bool) -> None:
    """Whichever user made it."""
    await postgres_stage.create(JOBS)
    await postgres_stage.execute(index or "select 1")
    finding = (await inspected(postgres_stage, postgres_stage.bare()))["index"]
    assert finding.is_fit is is_fit, finding.detail
    assert (finding.ddl is None) is is_fit
    if finding.ddl is not None:
        await postgres_stage.execute(finding.ddl)
        assert (await inspected(postgres_stage, postgres_stage.bare()))["index"].is_fit


async def test_with_priorities_the_index_has_them(postgres_stage: PostgresStage) -> None:
    await postgres_stage.create(JOBS)
    mapping = postgres_stage.mapping()
    await postgres_stage.execute("create index mine on jobs (status, created_at)")
    assert not (await inspected(postgres_stage, mapping))["index"].is_fit
    await postgres_stage.execute("create index yours on jobs (status, priority desc, created_at)")
    assert (await inspected(postgres_stage, mapping))["index"].is_fit


async def test_a_table_ordered_by_its_key_needs_an_index_of_what_waits(postgres_stage: PostgresStage) -> None:
    """The primary key has the order, and every row that has ended as well."""
    await postgres_stage.create(BARE)
    mapping = postgres_stage.bare(order_by="id")
    finding = (await inspected(postgres_stage, mapping))["index"]
    assert not finding.is_fit
    assert finding.ddl is not None
    await postgres_stage.execute(finding.ddl)
    assert (await inspected(postgres_stage, mapping))["index"].is_fit


async def test_a_key_without_a_unique_index_is_told(postgres_stage: PostgresStage) -> None:
    await postgres_stage.create(BARE)
    assert (await inspected(postgres_stage, postgres_stage.bare()))["key"].is_fit
    await postgres_stage.execute("alter table jobs drop constraint jobs_pkey")
    key = (await inspected(postgres_stage, postgres_stage.bare()))["key"]
    assert (key.is_fit, key.is_needed) == (False, False)
