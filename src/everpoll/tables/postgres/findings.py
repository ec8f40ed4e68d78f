"""What only Postgres can tell of a table: rights, the index and its use, the key, push. See `tables/findings.py`."""

import json
from collections.abc import Iterator
from typing import Any

from everpoll.drivers.postgres.lane import Connection, Lane
from everpoll.errors import RightsMissing
from everpoll.tables import findings
from everpoll.tables.contract import Finding
from everpoll.tables.findings import SAMPLE, is_written, judged
from everpoll.tables.mapping import Table
from everpoll.tables.postgres.ddl import TRIGGER, ddl_of
from everpoll.tables.postgres.push import push_channel
from everpoll.tables.postgres.shape import Relation
from everpoll.tables.postgres.statements import Statements

# Of a table with few rows the planner reads all of them, rightly. To see whether the index would serve a large one, the
# other ways are made expensive, in a transaction of our own.
NUDGES = "set local enable_seqscan = off; set local enable_bitmapscan = off; set local enable_sort = off"
LIKELY_BATCH = "50"
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
LACKING_RIGHTS = """select distinct w.right_name, quote_ident(current_user)
    from unnest($2::text[], $3::text[]) as w (right_name, name)
    where not has_column_privilege($1::bigint::oid, w.name, w.right_name) order by 1"""


async def check_rights(connection: Connection, table: Table, relation: Relation) -> None:
    """Raise `RightsMissing` with the GRANT for what the role lacks, column by column."""
    wanted = [("select", name) for name in table.used.values()]
    wanted += [("update", name) for role, name in table.used.items() if is_written(table, role)]
    lacking = await connection.fetch(LACKING_RIGHTS, relation.oid, *map(list, zip(*wanted, strict=True)))
    if lacking:
        rights, role = ", ".join(row[0] for row in lacking), lacking[0][1]
        raise RightsMissing(
            f"table {table.name!r}: the role {role} lacks rights that its worker needs; "
            f"run: grant {rights} on table {relation.sql} to {role}"
        )


async def words_in_use(lane: Lane, statements: Statements) -> tuple[set[str], Finding]:
    """Sample the statuses of the table's rows; return them, and a finding about them."""
    sample = f"select {statements.text('status')} as word from {statements.name} limit {SAMPLE}"
    rows = await lane.rows(f"select distinct word from ({sample}) as sampled where word is not null")
    seen, queued = {row[0] for row in rows}, statements.has_status(statements.table.queued)
    has_waiting = await lane.value(f"select exists(select from {statements.name} where {queued})")
    return seen, findings.words_in_use(statements.table, seen, has_waiting=has_waiting)


async def key(lane: Lane, table: Table, relation: Relation) -> Finding:
    """Judge the key column: rows are written by their key."""
    is_unique = await lane.value(UNIQUE, relation.oid, table.key) is not None
    bad = "has no unique index of its own: writes search for their row, and rows that share a key are written together"
    return judged("key", is_fit=is_unique, good="unique", bad=bad)


async def index(lane: Lane, statements: Statements) -> Finding:
    """Find out whether the poll query reads waiting rows from an index, in order."""
    table, relation = statements.table, statements.relation
    sql = statements.poll_of(LIKELY_BATCH)

    async def explained(connection: Connection) -> tuple[str | None, str | None]:
        now = await _used(connection, relation, table, sql)
        if now is not None:
            return now, None
        async with connection.transaction():
            await connection.execute(NUDGES)
            return None, await _used(connection, relation, table, sql)

    now, later = await lane.call(explained)
    small = f"{later} serves the poll; the table is so small that Postgres reads it all for now"
    return judged(
        "index",
        is_fit=(now or later) is not None,
        good=small if now is None else f"the poll uses {now} (EXPLAIN)",
        bad="no index has the waiting rows in order: every poll reads the whole table",
        ddl=ddl_of(table, relation).index(),
        is_needed=True,
    )


async def due_index(lane: Lane, table: Table, relation: Relation) -> Finding:
    """Judge the index for the next due time, which an idle worker asks for."""
    is_there = await lane.value(FIRST_OF_INDEX, relation.oid, table.due_at, table.status) is not None
    return findings.due_index(is_there, ddl_of(table, relation))


async def _used(connection: Connection, relation: Relation, table: Table, sql: str) -> str | None:
    """Return the index that finds waiting rows in order; None: the plan sorts, or also reads rows that do not wait."""
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
    """Yield every node of a plan."""
    yield plan
    for child in plan.get("Plans", ()):
        yield from walked(child)


async def push(lane: Lane, table: Table, relation: Relation) -> Finding:
    """Find out whether an insert notifies workers."""
    is_fit = await push_channel(lane, relation) is not None
    bad = "no trigger tells of new rows: they are found by polling, within 5 to 30 s"
    ddl = ";\n".join(ddl_of(table, relation).extras["push"])
    return judged("push", is_fit=is_fit, good=f"trigger {TRIGGER}", bad=bad, ddl=ddl)
