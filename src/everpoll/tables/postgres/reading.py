"""What people ask about a table in Postgres: see `overview`."""

import asyncpg

from everpoll.drivers.postgres.lane import Lane
from everpoll.errors import BadInput
from everpoll.tables.overview import (
    COUNT_LIMIT,
    HELD_LIMIT,
    INSTANT_ROLES,
    Held,
    RowState,
    StatusCount,
    TableWorker,
    counted,
    state_roles,
    table_workers,
)
from everpoll.tables.postgres.statements import Phrases


async def counts(lane: Lane, phrases: Phrases) -> list[StatusCount]:
    """Rows by status. The index has queued and running rows only: those that ended are counted in a small table."""
    table, most = phrases.table, COUNT_LIMIT + 1
    sample = f"select {phrases.at('status')}::text as word from {phrases.name} limit {most}"
    rows = dict(await lane.rows(f"select word, count(*) from ({sample}) as sampled group by word"))
    if sum(rows.values()) <= COUNT_LIMIT:
        return [StatusCount(status=word, rows=rows.get(word, 0)) for word in table.words]
    found = [StatusCount(status=word, rows=None) for word in table.words]
    for place, word in enumerate(table.words):
        if word in {table.queued, table.running}:
            some = f"select from {phrases.name} where {phrases.has_status(word)} limit {most}"
            found[place] = counted(word, await lane.value(f"select count(*) from ({some}) as some"))
    return found


async def workers(lane: Lane, phrases: Phrases) -> list[TableWorker]:
    """Workers that hold rows."""
    table = phrases.table
    beat = "null::timestamptz" if table.heartbeat is None else phrases.instant("heartbeat")
    columns = f"{phrases.at('worker')}::text, {phrases.instant('started_at')}, {beat}"
    running = phrases.has_status(table.running)
    rows = await lane.rows(f"select {columns} from {phrases.name} where {running} limit {HELD_LIMIT}")
    return table_workers(table, (Held(*row) for row in rows), await lane.value("select now()"))


async def row_state(lane: Lane, phrases: Phrases, key: str) -> RowState | None:
    """One row; None: there is none with this key."""
    roles = state_roles(phrases.table)
    columns = ", ".join(_column(phrases, role) for role in roles)
    typed = f"$1::text::{phrases.column_of('key').type}"
    try:
        row = await lane.row(f"select now(), {columns} from {phrases.name} where {phrases.key} = {typed}", key)
    except (asyncpg.DataError, BadInput):
        return None  # a text that the key's type does not take is the key of no row
    return None if row is None else RowState(row[0], **dict(zip(roles, row[1:], strict=True)))


def _column(phrases: Phrases, role: str) -> str:
    if role in INSTANT_ROLES:
        return phrases.instant(role)
    return f"{phrases.at(role)}::{'int8' if role == 'retries' else 'text'}"
