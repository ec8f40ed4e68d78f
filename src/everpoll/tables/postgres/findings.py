"""What people want to know about a table before they rely on it: columns, the index and its use, push, heartbeat."""

import json
from collections.abc import Iterator
from typing import Any

from everpoll.drivers.postgres.lane import Connection, Lane
from everpoll.tables.contract import Finding
from everpoll.tables.findings import heartbeat_finding
from everpoll.tables.mapping import Table
from everpoll.tables.postgres import ddl
from everpoll.tables.postgres.claiming import poll
from everpoll.tables.postgres.fitness import Flaw
from everpoll.tables.postgres.push import push_channel
from everpoll.tables.postgres.shape import Relation
from everpoll.tables.postgres.statements import Phrases
from everpoll.tables.unmapped_statuses import SAMPLE, words_finding

# Of a table with few rows the planner reads all of them, rightly. To see whether the index would serve a large one, the
# other ways are made expensive, in a transaction of our own.
NUDGES = "set local enable_seqscan = off; set local enable_bitmapscan = off; set local enable_sort = off"
LIKELY_BATCH = 50
STARTS_WITH = """select x.indpred is not null, a.attname from pg_index x join pg_class c on c.oid = x.indexrelid
    left join pg_attribute a on a.attrelid = x.indrelid and a.attnum = x.indkey[0]
    where x.indrelid = $1::bigint::oid and c.relname = $2"""
FIRST_OF_INDEX = """select 1 from pg_index x
    join pg_attribute a on a.attrelid = x.indrelid and a.attnum = x.indkey[0]
    left join pg_attribute b on b.attrelid = x.indrelid and b.attnum = x.indkey[1] and x.indnkeyatts > 1
    where x.indrelid = $1::bigint::oid and x.indisvalid
      and (a.attname = $2 and x.indpred is not null or a.attname = $3 and b.attname = $2)"""
UNIQUE = """select 1 from pg_index x join pg_attribute a on a.attrelid = x.indrelid and a.attnum = x.indkey[0]
    where x.indrelid = $1::bigint::oid and x.indisunique and x.indnkeyatts = 1 and x.indpred is null and x.indisvalid
      and a.attname = $2"""


def columns(table: Table, relation: Relation, found: list[Flaw]) -> list[Finding]:
    """One finding for each that is mapped."""
    flawed = {one.column: one for one in found}
    findings = []
    for use, name in table.used.items():
        flaw, column = flawed.get(name), relation.columns.get(name)
        detail = flaw.problem if flaw else f"{use}: {column.declared}" if column else ""
        what = f"column {name}"
        findings.append(Finding(what=what, is_fit=flaw is None, detail=detail, ddl=flaw.ddl if flaw else None))
    return [*findings, heartbeat_finding(table)]


async def seen_words(lane: Lane, phrases: Phrases) -> set[str]:
    """Those of a sample of its rows."""
    sample = f"select {phrases.at('status')}::text as word from {phrases.name} limit {SAMPLE}"
    rows = await lane.rows(f"select distinct word from ({sample}) as sampled where word is not null")
    return {row[0] for row in rows}


async def words(lane: Lane, phrases: Phrases) -> Finding:
    """Whether the table's rows speak the mapping's language."""
    waits = f"select exists(select from {phrases.name} where {phrases.has_status(phrases.table.queued)})"
    return words_finding(phrases.table, await seen_words(lane, phrases), has_waiting=await lane.value(waits))


async def key(lane: Lane, table: Table, relation: Relation) -> Finding:
    """Rows are written by their key."""
    is_unique = await lane.value(UNIQUE, relation.oid, table.key) is not None
    detail = "unique" if is_unique else "has no unique index of its own: every write about a row searches for it"
    return Finding(what="key", is_fit=is_unique, is_needed=False, detail=detail)


async def index(lane: Lane, phrases: Phrases) -> Finding:
    """Find out whether the poll query reads waiting rows from an index, in order."""
    table, relation = phrases.table, phrases.relation

    async def explained(connection: Connection) -> Finding:
        sql = poll(phrases).replace("limit $1", f"limit {LIKELY_BATCH}")
        now = await _used(connection, relation, table, sql)
        if now is not None:
            return Finding(what="index", is_fit=True, detail=f"the poll uses {now} (EXPLAIN)")
        async with connection.transaction():
            await connection.execute(NUDGES)
            later = await _used(connection, relation, table, sql)
        if later is not None:
            detail = f"{later} serves the poll; the table is so small that Postgres reads it all for now"
            return Finding(what="index", is_fit=True, detail=detail)
        detail = "no index has the waiting rows in order: every poll reads the whole table"
        return Finding(what="index", is_fit=False, detail=detail, ddl=ddl.create_index(table, relation))

    return await lane.call(explained)


async def due_index(lane: Lane, table: Table, relation: Relation) -> list[Finding]:
    """For the next due time, which an idle worker asks for."""
    if table.due_at is None:
        return []
    is_there = await lane.value(FIRST_OF_INDEX, relation.oid, table.due_at, table.status) is not None
    detail = "found by an index" if is_there else "an idle worker reads all rows that wait to find the next due time"
    wanted = None if is_there else ddl.create_due_index(table, relation)
    return [Finding(what="index of due times", is_fit=is_there, is_needed=False, detail=detail, ddl=wanted)]


async def _used(connection: Connection, relation: Relation, table: Table, sql: str) -> str | None:
    """The index that finds waiting rows in order; None: the plan sorts, or reads what does not wait."""
    plan = json.loads(await connection.fetchval(f"explain (format json) {sql}"))[0]["Plan"]
    nodes = list(walked(plan))
    if any(node["Node Type"] == "Sort" for node in nodes):
        return None
    for node in nodes:
        if node["Node Type"] in {"Index Scan", "Index Only Scan"}:
            facts = await connection.fetchrow(STARTS_WITH, relation.oid, node["Index Name"])
            # Of a partitioned table each partition has its own index, under another name.
            if facts is None or facts[0] or facts[1] == table.status:
                return str(node["Index Name"])
    return None


def walked(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Every node of a plan."""
    yield plan
    for child in plan.get("Plans", ()):
        yield from walked(child)


async def push(lane: Lane, table: Table, relation: Relation) -> Finding:
    """Find out whether an insert notifies workers."""
    if await push_channel(lane, relation) is not None:
        return Finding(what="push", is_fit=True, is_needed=False, detail=f"trigger {ddl.TRIGGER}")
    detail = "no trigger tells of new rows: they are found by polling, within 5 to 30 s"
    statements = ";\n".join(ddl.create_trigger(table, relation))
    return Finding(what="push", is_fit=False, is_needed=False, detail=detail, ddl=statements)
