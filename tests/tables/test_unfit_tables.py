"""A table that is not as its mapping says is refused at the start: everything at once, with the DDL that mends it."""

import re

import pytest

from everpoll import Everpoll
from everpoll.errors import TableUnfit
from everpoll.tables import Row
from tables.stages import BARE, Kind, TableStage


async def nothing(row: Row) -> None:
    """A handler."""


async def test_everything_that_is_missing_is_named_at_once(stage: TableStage) -> None:
    await stage.create({"id": "number key", "status": "text", "created_at": "since"})
    source = stage.source(stage.mapping(guard="version"))
    try:
        with pytest.raises(TableUnfit) as caught:
            await source.open()
    finally:
        await source.close()
    missing = ["worker_id", "started_at", "finished_at", "error", "last_heartbeat", "retry_count", "priority", "due_at"]
    missing += ["version", "payload", "report"]
    message = str(caught.value)
    assert [name for name in missing if name not in message] == []
    assert "everpoll tables ddl" in message
    assert "'jobs'" in message


async def test_the_ddl_of_the_error_makes_it_fit(stage: TableStage) -> None:
    await stage.create({"id": "number key", "status": "text", "created_at": "since"})
    mapping = stage.mapping(guard="version")
    source = stage.source(mapping)
    try:
        with pytest.raises(TableUnfit) as caught:
            await source.open()
        for statement in caught.value.ddl:
            await stage.execute(statement)
        await source.open()
    finally:
        await source.close()
    await stage.queue(1)
    async with stage.claimer(mapping) as worker:
        assert await worker.end(await worker.take_one(), report={"a": 1}) == set()


async def test_an_app_does_not_start_on_an_unfit_table(stage: TableStage) -> None:
    await stage.create(BARE)
    app = Everpoll("memory://")
    stage.adopt(app, stage.mapping()).handler(nothing)
    with pytest.raises(TableUnfit, match="last_heartbeat"):
        async with app:
            pytest.fail("it started")


async def test_a_table_that_is_not_there_is_told(stage: TableStage) -> None:
    source = stage.source(stage.mapping("nowhere"))
    try:
        with pytest.raises(TableUnfit, match="'nowhere'"):
            await source.open()
    finally:
        await source.close()


async def test_inspection_tells_what_is_there_and_what_is_not(stage: TableStage) -> None:
    await stage.create({name: kind for name, kind in BARE.items() if name != "worker_id"})
    source = stage.source(stage.bare())
    try:
        findings = {one.what: one for one in await source.inspect()}
    finally:
        await source.close()
    assert findings["column status"].is_fit
    worker = findings["column worker_id"]
    assert (worker.is_fit, worker.is_needed) == (False, True)
    assert worker.ddl is not None
    assert "worker_id" in worker.ddl
    heartbeat = findings["heartbeat"]
    assert (heartbeat.is_fit, heartbeat.is_needed) == (False, False)


@pytest.mark.parametrize("columns", [BARE, {name: kind for name, kind in BARE.items() if name != "worker_id"}])
@pytest.mark.parametrize("has_heartbeat", [True, False])
async def test_every_statement_that_check_proposes_is_printed_by_ddl(
    stage: TableStage, columns: dict[str, Kind], has_heartbeat: bool
) -> None:
    """On a table without an index or a trigger; with a mapping that names columns which are missing."""
    await stage.create(columns)
    mapping = stage.bare(heartbeat="last_heartbeat", due_at="due_at") if has_heartbeat else stage.bare()
    source = stage.source(mapping)
    try:
        proposed = [one.ddl for one in await source.inspect() if one.ddl is not None]
        printed = ";\n\n".join(source.ddl())
    finally:
        await source.close()
    assert proposed
    for statement in (part for one in proposed for part in re.split(r";\n+(?=create )", one)):
        assert statement in printed


async def test_what_is_needed_is_the_same_on_every_database(stage: TableStage) -> None:
    """The index is, where it can be seen whether there is one; a worker starts without it all the same."""
    await stage.create(BARE)
    await stage.prepare(stage.bare())
    source = stage.source(stage.bare())
    try:
        findings = await source.inspect()
        await source.open()
    finally:
        await source.close()
    [index] = [one for one in findings if one.what == "index"]
    is_seen = "cannot be seen" not in index.detail
    assert [one.what for one in findings if one.is_needed and not one.is_fit] == (["index"] if is_seen else [])
    assert not any(one.keeps_from_use for one in findings)
