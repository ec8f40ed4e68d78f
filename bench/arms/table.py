"""Rows of the user's own table: through everpoll's public API, and by the loop that people write by hand."""

import time
from collections.abc import Sequence
from typing import Any

import asyncpg

from bench.arms import gate
from bench.arms.everpoll import Tally
from everpoll import Everpoll
from everpoll.stores.contract import Settlement
from everpoll.tables import Row, Table

# The document's own table, as its queries use it.
TABLE = """create table execution_jobs (
    id uuid primary key default gen_random_uuid(), status text not null default 'queued',
    created_at timestamptz not null default clock_timestamp(), started_at timestamptz, finished_at timestamptz,
    worker_id text, last_heartbeat timestamptz, retry_count integer not null default 0, error text,
    recording_id bigint, csv_data text, config jsonb, version integer not null default 1,
    updated_at timestamptz not null default now());"""
FILL = """insert into execution_jobs (recording_id, csv_data, config)
    select n, $1, '{"headless": true}' from generate_series(1, $2) n"""
READ = ("recording_id", "csv_data", "config")
MAPPINGS: dict[str, dict[str, Any]] = {
    "lean": {"finished_at": "finished_at"},
    "full": {"finished_at": "finished_at", "heartbeat": "last_heartbeat", "retries": "retry_count", "error": "error"},
}
SELECT = "select * from execution_jobs where status = 'queued' order by created_at limit 1"
CLAIM = """update execution_jobs set status = 'running', started_at = now(), worker_id = $2
    where id = $1 and status = 'queued' returning *"""
FINISH = "update execution_jobs set status = 'completed', finished_at = now() where id = $1"


def mapping(order: gate.Order) -> Table:
    """As the order says."""
    return Table("execution_jobs", columns=READ, guard=order.get("guard", "skip_locked"), **MAPPINGS[order["mapping"]])


async def filled(order: gate.Order) -> asyncpg.Connection:
    """The table, with everpoll's index: it serves the loop as well."""
    connection = await asyncpg.connect(order["url"])
    await connection.execute(TABLE)
    app = Everpoll("memory://")
    source = app.table(mapping(order), url=order["url"]).source
    await source.open()
    for statement in source.ddl():
        if statement.startswith("create index"):
            await connection.execute(statement)
    await source.close()
    await connection.execute(FILL, gate.PAYLOAD, order["jobs"])
    return connection


async def drain(order: gate.Order) -> None:
    """All rows, by everpoll."""
    connection, tally, jobs = await filled(order), Tally(), order["jobs"]
    app = Everpoll("memory://")
    adopted = app.table(mapping(order), url=order["url"], slots=order["slots"])

    @adopted.handler
    async def noop(row: Row) -> None:
        if not tally.began:
            tally.began = time.perf_counter()

    settle = adopted.source.settle

    async def settled(incarnation: int, settlements: Sequence[Settlement]) -> set[int]:
        lost = await settle(incarnation, settlements)
        tally.settle([one.id for one in settlements if one.id not in lost])
        return lost

    adopted.source.settle = settled  # type: ignore[method-assign]
    gate.ready()
    cpu_s = time.process_time()
    async with app:
        ended = await tally.reaches(jobs)
        cpu_s = time.process_time() - cpu_s
        done = await connection.fetchval("select count(*) from execution_jobs where status = 'completed'")
        assert done == jobs, done
        await gate.report(rate=jobs / (ended - tally.began), python_us=cpu_s / jobs * 1e6)
    await connection.close()


async def loop(order: gate.Order) -> None:
    """All rows, one after another: look for one, claim it, do nothing, finish it."""
    connection, jobs = await filled(order), order["jobs"]
    gate.ready()
    began, cpu_s, done = 0.0, time.process_time(), 0
    while (row := await connection.fetchrow(SELECT)) is not None:
        began = began or time.perf_counter()  # as for the others: when the first one is in hand
        if await connection.fetchrow(CLAIM, row["id"], "worker-1") is not None:
            await connection.execute(FINISH, row["id"])
            done += 1
    ended, cpu_s = time.perf_counter(), time.process_time() - cpu_s
    assert done == jobs
    await gate.report(rate=done / (ended - began), python_us=cpu_s / done * 1e6)
    await connection.close()


if __name__ == "__main__":
    gate.main({"drain": drain, "loop": loop})
