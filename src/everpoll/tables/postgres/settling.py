"""Settling in Postgres: a mixed batch in one transaction. See `tables/settling.py`.

Settlements that write the same into every row are one statement. Those that differ in errors, delays or results are
joined with arrays; results are read from JSON as the columns' own types.
"""

from collections.abc import Sequence

from everpoll.drivers.postgres.lane import Connection, Lane
from everpoll.tables.claims import grouped
from everpoll.tables.postgres.statements import Statements
from everpoll.tables.settling import Settled, lost_of


async def settle(lane: Lane, statements: Statements, batch: Sequence[Settled]) -> set[int]:
    """Write the batch; return the numbers of the claims that were lost."""
    groups = grouped(batch, lambda one: (one.pattern, one.claim.started_at if one.write.is_plain else None))

    async def write(connection: Connection) -> set[int]:
        lost: set[int] = set()
        for group in groups:
            changed = await connection.fetchval(*statements.settle(group))
            if changed is not None:
                lost |= lost_of(group, changed)
        return lost

    async def write_all(connection: Connection) -> set[int]:
        async with connection.transaction():
            return await write(connection)

    return await lane.call(write if len(groups) == 1 else write_all)
