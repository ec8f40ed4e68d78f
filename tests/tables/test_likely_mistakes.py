"""What a user who adopts a first table gets wrong is told in the words of the table."""

import asyncio
import logging
from pathlib import Path

import pytest

import warm_processes
from everpoll import Everpoll
from everpoll.errors import TableUnfit
from everpoll.tables import Row
from tables.postgrest_stage import PostgRestStage
from tables.sqlite_stage import SqliteStage
from tables.stages import BARE, TableStage


async def nothing(row: Row) -> None:
    """Do nothing."""


async def test_a_status_word_that_no_row_has_is_told_at_the_start_and_by_the_check(
    stage: TableStage, caplog: pytest.LogCaptureFixture
) -> None:
    if isinstance(stage, PostgRestStage):
        pytest.skip("over HTTPS a worker reads only rows that wait")
    await stage.create(BARE)
    await stage.queue(1, 2)
    mapping = stage.bare(queued="pending")
    async with stage.working(nothing, mapping):
        pass
    wanted = "no row has 'pending' (queued), and some have 'queued', which the mapping does not know"
    assert wanted in caplog.text
    source = stage.source(mapping)
    try:
        [found] = [one for one in await source.inspect() if one.what == "words in use"]
    finally:
        await source.close()
    assert (found.is_fit, found.is_needed) == (False, False)
    assert found.detail.startswith(wanted)


@pytest.mark.parametrize("word", ["queued", "completed", None])
async def test_a_table_of_known_words_is_not_complained_about(
    stage: TableStage, caplog: pytest.LogCaptureFixture, word: str | None
) -> None:
    await stage.create(BARE)
    if word is not None:
        await stage.insert({"id": 1, "status": word}, {"id": 2, "status": "draft"})
    async with stage.working(nothing, stage.bare()):
        pass
    assert "does not know" not in caplog.text
    if word == "queued" and not isinstance(stage, PostgRestStage):
        source = stage.source(stage.bare())
        details = [one.detail for one in await source.inspect() if one.what == "words in use"]
        await source.close()
        assert details == ["'queued', 'running', 'completed', 'failed'; workers leave alone: 'draft'"]


async def test_a_column_of_another_name_is_told_with_the_names_that_there_are(stage: TableStage) -> None:
    if isinstance(stage, PostgRestStage):
        pytest.skip("PostgREST tells no names to who may not see them all")
    await stage.create(BARE)
    source = stage.source(stage.bare(worker="worker"))
    with pytest.raises(TableUnfit, match=r"it lacks worker.*; it has id, status, created_at, worker_id, started_at"):
        await source.open()
    await source.close()


async def test_a_table_without_a_handler_is_told(stage: TableStage, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    await stage.create(BARE)
    app = Everpoll("memory://")
    stage.adopt(app, stage.bare())
    async with asyncio.timeout(20), app:
        pass
    assert "table jobs has no handler: its rows are left alone" in caplog.text


@pytest.mark.parametrize("command", ["ddl", "check"])
async def test_commands_that_look_leave_the_file_as_it_is(
    sqlite_stage: SqliteStage, tmp_path: Path, command: str
) -> None:
    await sqlite_stage.create(BARE)
    (tmp_path / "shop.py").write_text(
        "from everpoll import Everpoll\nfrom everpoll.tables import Table\n"
        f"app = Everpoll({sqlite_stage.url!r})\nexecutions = app.table(Table('jobs'))\n"
    )
    before = sqlite_stage.path.read_bytes()
    asked = ["-m", "everpoll", "tables", command, "shop:app"]
    done = await asyncio.to_thread(warm_processes.run, asked, cwd=tmp_path)
    assert done.returncode == (1 if command == "check" else 0), done.stderr
    assert "create index" in done.stdout
    assert sqlite_stage.path.read_bytes() == before
