"""Settling: a mixed batch in one transaction, each row under its fence.

Settlements that write the same into every row are one statement. Those that differ in errors, delays or results are
joined with arrays; results are read from JSON as the columns' own types.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from everpoll.drivers.postgres.lane import Connection, Lane
from everpoll.stores.contract import Ended, Settlement, encode
from everpoll.tables.changes import Pattern, pattern_of
from everpoll.tables.claims import Claim
from everpoll.tables.outcome import RowWrite, written
from everpoll.tables.postgres.statements import Statements


class Group:
    """Settlements that one statement writes; those of one start where it needs no join."""

    __slots__ = ("claims", "numbers", "pattern", "writes")

    def __init__(self, pattern: Pattern) -> None:
        self.pattern = pattern
        self.numbers: list[int] = []
        self.claims: list[Claim] = []
        self.writes: list[RowWrite] = []


class Settling:
    """The lane for settlements of one table, in one process."""

    def __init__(self, lane: Lane, statements: Statements) -> None:
        self._lane = lane
        self._statements = statements
        self._done = pattern_of(RowWrite(status=statements.table.done, is_end=True))

    async def settle(self, settlements: Sequence[Settlement], claims: Mapping[int, Claim]) -> set[int]:
        """Write the settlements; return the numbers of the claims that were lost."""
        groups = self._grouped(settlements, claims)
        if len(groups) == 1:
            return await self._lane.call(lambda connection: self._write(connection, groups[0]))
        return await self._lane.call(lambda connection: self._write_all(connection, groups))

    def _grouped(self, settlements: Sequence[Settlement], claims: Mapping[int, Claim]) -> list[Group]:
        groups: dict[Any, Group] = {}
        plain, plain_start = Group(self._done), None
        for one in settlements:
            claim = claims.get(one.id)
            if claim is None:
                continue
            if type(one) is Ended and one.result is None and one.note is None and one.state == "done":
                # The ordinary end, most often of one claim after the other.
                if claim.started_at is not plain_start:
                    plain_start = claim.started_at
                    plain = groups.setdefault((self._done, plain_start), Group(self._done))
                group = plain
            else:
                write = written(self._statements.table, one)
                pattern = pattern_of(write)
                group = groups.setdefault((pattern, claim.started_at if pattern.is_plain else None), Group(pattern))
                group.writes.append(write)
            group.numbers.append(one.id)
            group.claims.append(claim)
        return list(groups.values())

    async def _write_all(self, connection: Connection, groups: list[Group]) -> set[int]:
        lost: set[int] = set()
        async with connection.transaction():
            for group in groups:
                lost |= await self._write(connection, group)
        return lost

    async def _write(self, connection: Connection, group: Group) -> set[int]:
        sql, first = self._statements.settle(group.pattern), group.claims[0]
        keys = [claim.key for claim in group.claims]
        if group.pattern.is_plain:
            changed = await connection.fetchval(sql, keys, first.started_at, first.worker)
        else:
            starts = [claim.started_at for claim in group.claims]
            errors = [write.error for write in group.writes]
            delays = [write.delay_s for write in group.writes]
            results = [encode(write.results) for write in group.writes]
            changed = await connection.fetchval(sql, keys, starts, first.worker, errors, delays, results)
        if changed is None:
            return set()
        kept = set(changed)
        return {number for number, key in zip(group.numbers, keys, strict=True) if key not in kept}
