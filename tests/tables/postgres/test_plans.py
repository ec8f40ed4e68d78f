"""At a million rows the poll reads waiting rows from the index, in order, whatever the guard, and nothing else."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from everpoll.tables import Guard, Table
from everpoll.tables.claims import Claim
from everpoll.tables.outcome import RowWrite
from everpoll.tables.postgres import PostgresTable
from everpoll.tables.postgres.ddl import ddl_of
from everpoll.tables.postgres.findings import walked
from everpoll.tables.postgres.statements import Statements
from everpoll.tables.settling import Settled
from servers.databases import PostgresServers
from tables.postgres_stage import PostgresStage
from tables.stages import MAPPED

ROWS = 1_000_000
BATCH = 100
FILL = """insert into jobs (id, status, created_at, worker_id, started_at, finished_at, last_heartbeat, payload)
    select n, case n % 10 when 0 then 'failed' else 'completed' end, now() - n * interval '1 second', 'w', now(), now(),
        now(), 'x' from generate_series(1, $1::int) n"""
PAGES_A_ROW = 20
"""Of a batch: its index entries, its row, its key, and what their update writes."""


@pytest.fixture(scope="module")
def million(major: int, postgres_servers: PostgresServers) -> Iterator[PostgresStage]:
    """A table of a million rows that have ended, with the index that we offer."""
    stage = PostgresStage("postgres", postgres_servers[major].lasting("million"))

    async def fill() -> None:
        await stage.begin()
        await stage.create()
        await stage.execute(ddl_of(Table("jobs", **MAPPED), None).index())
        await stage.execute(ddl_of(Table("jobs", **MAPPED), None).due_index())
        await stage.fetch(FILL, ROWS)
        await stage.execute("vacuum analyze jobs")
        await stage.close()

    asyncio.run(fill())
    yield stage
    asyncio.run(drop(stage))


async def drop(stage: PostgresStage) -> None:
    await stage.begin()
    await stage.close()


async def explained(stage: PostgresStage, sql: str, *args: Any) -> dict[str, Any]:
    """What really happened, rolled back."""
    connection = await stage.connection()
    transaction = connection.transaction()
    await transaction.start()
    try:
        text = await connection.fetchval(f"explain (analyze, buffers, format json) {sql}", *args)
    finally:
        await transaction.rollback()
    found: dict[str, Any] = json.loads(text)[0]
    return found


def assert_reads_the_index(found: dict[str, Any], most_rows: int) -> None:
    """No sequential scan, no sort of more than the batch, and hardly a page."""
    nodes = list(walked(found["Plan"]))
    kinds = [node["Node Type"] for node in nodes]
    assert "Seq Scan" not in kinds, kinds
    assert "jobs_everpoll_queue" in {node.get("Index Name") for node in nodes}
    for node in nodes:
        read = node["Actual Rows"] + node.get("Rows Removed by Filter", 0)
        assert read <= max(most_rows, 1), f"{node['Node Type']} reads {read} rows"
    pages = found["Plan"]["Shared Hit Blocks"] + found["Plan"]["Shared Read Blocks"]
    assert pages <= 40 + PAGES_A_ROW * most_rows, f"{pages} pages"


async def statements_of(stage: PostgresStage, guard: Guard) -> Statements:
    source = stage.source(Table("jobs", **MAPPED, guard=guard))
    assert isinstance(source, PostgresTable)
    try:
        await source.open()
        return source._at_work().statements
    finally:
        await source.close()


async def test_an_empty_poll_of_a_million_rows_costs_nearly_nothing(million: PostgresStage, guard: Guard) -> None:
    """Far below a millisecond in the database; pages and rows decide here, the time is shown."""
    statements = await statements_of(million, guard)
    found = await explained(million, statements.poll, BATCH)
    assert_reads_the_index(found, 0)
    waits = await explained(million, statements.waits)
    claim = await explained(million, statements.claim, "w", BATCH)
    print(  # noqa: T201 - for people
        f"guard {guard}: empty poll {found['Execution Time']:.3f} ms, claim {claim['Execution Time']:.3f} ms, "
        f"next due {waits['Execution Time']:.3f} ms"
    )
    for one in (waits, claim):
        assert "Seq Scan" not in [node["Node Type"] for node in walked(one["Plan"])]
        assert one["Plan"]["Shared Hit Blocks"] + one["Plan"]["Shared Read Blocks"] < 40
    await million.close()


async def test_a_claim_among_a_million_rows_reads_its_batch_only(million: PostgresStage, guard: Guard) -> None:
    """Also where statistics know nothing of what waits: it was inserted just now."""
    statements = await statements_of(million, guard)
    connection = await million.connection()
    await million.execute(
        """insert into jobs (id, status, created_at)
        select 10 * n, 'queued', now() from generate_series(200000, 202000) n"""
    )
    try:
        seen = await connection.fetch(statements.poll, BATCH)
        poll = await explained(million, statements.poll, BATCH)
        assert_reads_the_index(poll, BATCH)
        if guard == "skip_locked":
            claim = await explained(million, statements.claim, "w", BATCH)
            assert_reads_the_index(claim, BATCH)
        else:
            columns = [[row[number] for row in seen] for number in range(len(seen[0]))]
            claim = await explained(million, statements.claim_seen, "w", *columns)
            kinds = [node["Node Type"] for node in walked(claim["Plan"])]
            assert "Seq Scan" not in kinds, kinds
        print(f"guard {guard}: poll {poll['Execution Time']:.3f} ms, claim {claim['Execution Time']:.3f} ms")  # noqa: T201
    finally:
        await million.execute("delete from jobs where status = 'queued'")
        await million.close()


async def test_rescue_and_heartbeat_read_what_runs_and_no_more(million: PostgresStage) -> None:
    statements = await statements_of(million, "skip_locked")
    await million.execute(
        """insert into jobs (id, status, worker_id, started_at, last_heartbeat, created_at)
        select 10 * n, 'running', 'w', now(), now() - interval '1 hour', now() from generate_series(200000, 200050) n"""
    )
    try:
        assert_reads_the_index(await explained(million, *statements.rescues()[0]), 60)
        rows = await million.fetch("select id, started_at from jobs where status = 'running'")
        claims = [Claim(row[0], "w", row[1]) for row in rows]
        beat = await explained(million, *statements.beats(claims)[0])
        assert "Seq Scan" not in [node["Node Type"] for node in walked(beat["Plan"])]
        recover = await explained(million, *statements.recover("w", claims))
        assert_reads_the_index(recover, 60)
    finally:
        await million.execute("delete from jobs where status = 'running'")
        await million.close()


async def test_a_settlement_reads_its_own_rows_among_all_that_run(million: PostgresStage) -> None:
    """Whatever the fleet has in hand, and though statistics know of none of it."""
    statements = await statements_of(million, "skip_locked")
    await million.execute(
        """insert into jobs (id, status, worker_id, started_at, last_heartbeat, created_at)
        select 10 * n, 'running', 'w', now(), now(), now() from generate_series(200000, 202000) n"""
    )
    try:
        rows = await million.fetch("select id, started_at from jobs where status = 'running' limit 50")
        claims = [Claim(row[0], "w", row[1]) for row in rows]
        done = RowWrite(status="completed", is_end=True)
        reported = RowWrite(status="completed", is_end=True, results={"report": 1})
        plain, joined = [
            await explained(million, *statements.settle([Settled(0, one, write, write.pattern) for one in claims]))
            for write in (done, reported)
        ]
        beat = await explained(million, *statements.beats(claims)[0])
        for found in (plain, joined, beat):
            assert found["Plan"]["Actual Rows"] > 0
            for node in walked(found["Plan"]):
                read = (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
                assert read <= 50, f"{node['Node Type']} reads {read} rows"
    finally:
        await million.execute("delete from jobs where status = 'running'")
        await million.close()


async def test_inspection_proves_the_use_of_the_index(million: PostgresStage, guard: Guard) -> None:
    """By EXPLAIN of the poll itself; an index of the user's own serves as well."""
    source = million.source(Table("jobs", **MAPPED, guard=guard))
    try:
        [index] = [one for one in await source.inspect() if one.what == "index"]
        assert (index.is_fit, index.detail) == (True, "the poll uses jobs_everpoll_queue (EXPLAIN)")
    finally:
        await source.close()
    await million.close()
