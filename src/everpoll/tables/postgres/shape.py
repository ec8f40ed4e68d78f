"""The shape of a table, read from the catalog of Postgres when the table is opened.

Names without a schema follow the connection's `search_path`. Values of a domain are sent and read as its base type,
while words are cast to the column's own type.
"""

import contextlib
from typing import Any

import asyncpg

from everpoll.drivers.postgres.lane import Connection
from everpoll.tables.findings import READ_ONLY
from everpoll.tables.mapping import Table
from everpoll.tables.shape import INSTANT, NUMBER, TEXT, Column, Shape
from everpoll.tables.sql_names import identifier, literal

RELATION = """select c.oid::bigint, n.nspname, c.relname, c.relkind::text, c.relhassubclass
    from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.oid = to_regclass($1)"""
COLUMNS = """with recursive made_of (number, type, modifier, is_nullable) as (
    select attnum, atttypid, atttypmod, not attnotnull from pg_attribute
    where attrelid = $1::bigint::oid and attnum > 0 and not attisdropped
    union all
    select m.number, t.typbasetype, case when m.modifier = -1 then t.typtypmod else m.modifier end,
        m.is_nullable and not t.typnotnull
    from made_of m join pg_type t on t.oid = m.type where t.typtype = 'd')
select a.attname as name, format_type(a.atttypid, -1) as type, format_type(a.atttypid, a.atttypmod) as declared,
    t.typname as base, t.typcategory::text as category, not m.is_nullable as is_required,
    a.attgenerated <> '' as is_generated,
    case when t.typname in ('varchar', 'bpchar') and m.modifier > 4 then m.modifier - 4 end as length
from pg_attribute a join made_of m on m.number = a.attnum
join pg_type t on t.oid = m.type and t.typtype <> 'd'
where a.attrelid = $1::bigint::oid and a.attnum > 0"""
CHECKS = """select c.conname, pg_get_expr(c.conbin, c.conrelid) as expression from pg_constraint c
    join pg_attribute a on a.attrelid = c.conrelid and array[a.attnum] = c.conkey
    where c.conrelid = $1::bigint::oid and c.contype = 'c' and a.attname = $2"""
KINDS = {"r": "table", "p": "table", "v": "view", "m": "materialized view", "f": "foreign table"}

INSTANT_TYPES = ("timestamptz", "timestamp")
INTEGER_TYPES = ("int2", "int4", "int8", "numeric")
UNORDERED = ("json", "xml", "point")


class PostgresColumn(Column, frozen=True, kw_only=True):
    """One column."""

    type: str
    """As SQL writes it, without a length: a cast to it cuts nothing off."""
    base: str
    """The base type of a domain, else the type itself, by Postgres's internal name: int8, timestamptz, …"""
    category: str
    length: int | None


class Relation(Shape[PostgresColumn], frozen=True, kw_only=True):
    """The table as it is."""

    oid: int
    kind: str
    """`table`, `view`, …"""
    schema: str
    name: str
    has_parts: bool
    """Partitions, or tables that inherit from it."""

    @property
    def sql(self) -> str:
        """The table's quoted name with its schema."""
        return f"{identifier(self.schema)}.{identifier(self.name)}"


async def read(connection: Connection, table: Table) -> Relation | None:
    """Read the table's columns; None: there is no table of that name."""
    found = await connection.fetchrow(RELATION, ".".join(map(identifier, table.parts)))
    if found is None or found["relkind"] not in KINDS:
        return None
    columns = {row["name"]: _column(row) for row in await connection.fetch(COLUMNS, found["oid"])}
    flaws = {}
    for role in READ_ONLY & table.used.keys():
        column = columns.get(table.used[role])
        if column is not None and column.base in UNORDERED:
            flaws[role] = f"is {column.declared}, which has no order"
    if table.status in columns:
        refused = await _refused_words(connection, table, found["oid"], columns[table.status])
        if refused:
            flaws["status"] = "; ".join(f"cannot hold {word!r}: {why}" for word, why in refused.items())
    return Relation(
        columns=columns,
        flaws=flaws,
        oid=found["oid"],
        kind=KINDS[found["relkind"]],
        schema=found["nspname"],
        name=found["relname"],
        has_parts=found["relhassubclass"],
    )


def _column(row: Any) -> PostgresColumn:
    holds = {
        TEXT: row["category"] == "S",
        INSTANT: row["base"] in INSTANT_TYPES,
        NUMBER: row["base"] in INTEGER_TYPES,
    }
    return PostgresColumn(**row, holds=frozenset(kind for kind, is_so in holds.items() if is_so))


async def _refused_words(connection: Connection, table: Table, oid: int, column: PostgresColumn) -> dict[str, str]:
    """Return the words that the status column cannot hold, and why: an enum, a domain, a length or a constraint."""
    checks = await connection.fetch(CHECKS, oid, table.status)
    refused: dict[str, str] = {}
    for word in table.words:
        if column.length is not None and len(word) > column.length:
            refused[word] = f"it is longer than {column.length} characters"
        elif (why := await _refusal(connection, column, literal(word), checks)) is not None:
            refused[word] = why
    return refused


async def _refusal(connection: Connection, column: PostgresColumn, word: str, checks: list[Any]) -> str | None:
    try:
        await connection.fetchval(f"select ({word}::{column.type})::text")
    except (asyncpg.DataError, asyncpg.IntegrityConstraintViolationError) as error:
        return str(error)
    for name, expression in checks:
        # A condition that this role may not evaluate is left to the first claim.
        with contextlib.suppress(asyncpg.SyntaxOrAccessError):
            row = f"select {word}::{column.type} as {identifier(column.name)}"
            if await connection.fetchval(f"select ({expression}) from ({row}) as one") is False:
                return f"the constraint {name} does not allow it"
    return None
