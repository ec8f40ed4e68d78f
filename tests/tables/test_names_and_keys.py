"""Whatever a table and its columns are called, and whatever its key is: names are quoted, never formatted."""

import uuid
from typing import Any

import pytest

from everpoll.tables import Guard
from tables.stages import JOBS, MAPPED, Kind, TableStage, keys

HOSTILE = [
    "order",
    "Select",
    "with space",
    'quo"te',
    "apo'strophe",
    "back\\slash",
    "semi;colon",
    "%s",
    "$1",
    "{name}",
    "ünïcödé ☃",
    "x); drop table jobs; --",
    "a" * 63,
]
"""Reserved words, quotes, what formats or binds, other scripts, and an attack."""


@pytest.mark.parametrize("name", HOSTILE)
async def test_any_name_is_a_table_and_its_columns(stage: TableStage, name: str) -> None:
    """Each column is called after it, too."""
    short = name[:40]
    renamed = {column: f"{short} {number}" for number, column in enumerate(JOBS)} | {"id": "id"}
    columns: dict[str, Kind] = {renamed[column]: kind for column, kind in JOBS.items()}
    await stage.create(columns, table=name)
    uses = ("status", "worker", "started_at", "order_by", "version")
    defaults = dict(zip(uses, ("status", "worker_id", "started_at", "created_at", "version"), strict=True))
    roles = {**defaults, **{use: value for use, value in MAPPED.items() if isinstance(value, str) and value in JOBS}}
    options: dict[str, Any] = {use: renamed[column] for use, column in roles.items()}
    options |= {"columns": (renamed["payload"],), "results": (renamed["report"],), "guard": "version"}
    await stage.insert({"id": 1, renamed["status"]: "queued", renamed["payload"]: name}, table=name)
    async with stage.claimer(stage.mapping(name, **options)) as worker:
        lease = await worker.take_one()
        assert dict(lease.values) == {renamed["payload"]: name}
        assert (await worker.beat(lease)).canceled == ()
        assert await worker.retry(lease) == set()
        lease = await worker.take_one()
        results: dict[str, Any] = {renamed["report"]: [name]}
        assert await worker.end(lease, **results) == set()
    [row] = await stage.rows(name)
    assert row[renamed["status"]] == "completed"


@pytest.mark.parametrize("word", ["it's done", 'say "done"', "'); drop table jobs; --", "☃", "back\\slash", "%s $1"])
async def test_any_word_is_a_status(stage: TableStage, word: str) -> None:
    await stage.create()
    words = {"queued": f"q {word}", "running": f"r {word}", "done": f"d {word}", "failed": f"f {word}"}
    await stage.insert(*({"id": number, "status": words["queued"]} for number in range(3)))
    async with stage.claimer(stage.mapping(**words)) as worker:
        done, failed, back = await worker.take()
        await worker.end(done)
        await worker.end(failed, state="failed")
        await worker.hand_back(back)
    assert list((await stage.statuses()).values()) == [words["done"], words["failed"], words["queued"]]


@pytest.mark.parametrize("kind", ["number key", "uuid key", "text key"])
async def test_any_key_identifies_its_row(stage: TableStage, kind: Kind, guard: Guard) -> None:
    ids: dict[Kind, list[Any]] = {
        "number key": [2**40 + 3, 1, 2**62],
        "uuid key": [str(uuid.UUID(int=number)) for number in (2**127, 7, 2**64)],
        "text key": ["b", "A'; drop table jobs; --", "ü"],
    }
    await stage.create(JOBS | {"id": kind})
    await stage.queue(*ids[kind])
    async with stage.claimer(stage.mapping(guard=guard)) as worker:
        leases = await worker.take()
        assert list(map(str, keys(leases))) == list(map(str, ids[kind]))
        first, second, third = leases
        assert (await worker.beat(*leases)).canceled == ()
        assert await worker.end(first, second, report={"a": 1}) == set()
        assert await worker.retry(third, delay_s=0) == set()
        assert str((await worker.take_one()).row_key) == str(ids[kind][2])


async def test_the_words_of_one_table_are_not_those_of_another(stage: TableStage) -> None:
    """Several tables in one database, each with its own mapping and its own words."""
    await stage.create()
    await stage.create(table="audits")
    await stage.queue(1)
    await stage.queue(2, table="audits")
    async with stage.claimer() as jobs, stage.claimer(stage.mapping("audits", done="fine")) as audits:
        assert keys(await jobs.take()) == [1]
        lease = await audits.take_one()
        await audits.end(lease)
    assert await stage.statuses() == {1: "running"}
    assert await stage.statuses("audits") == {2: "fine"}
