"""Settling: a mixed batch in one transaction, each row under its fence.

Settlements that write the same into every row are one statement: the ordinary end of a batch, whose rows share one
start, needs no join. Those that differ in errors, delays or results are joined with arrays; results are read from JSON
as the columns' own types.

Promises: what is not ours any more is left alone and reported as lost.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from everpoll.drivers.postgres.lane import Connection, Lane
from everpoll.stores.contract import Settlement, encode
from everpoll.tables.claims import Claim, Claims
from everpoll.tables.outcome import RowWrite, written
from everpoll.tables.postgres.names import identifier
from everpoll.tables.postgres.phrases import SECOND, Phrases


class Shape(Struct, frozen=True):
    """What a group of settlements has in common."""

    status: str
    is_end: bool
    retries: int
    keeps_error: bool
    has_errors: bool
    has_delays: bool
    results: tuple[str, ...]

    @property
    def is_plain(self) -> bool:
        """Nothing differs from row to row."""
        return not (self.has_errors or self.has_delays or self.results)


class Written(Struct, frozen=True, gc=False):
    """One settlement: its number, its claim, and what is written."""

    number: int
    claim: Claim
    write: RowWrite


class Settling:
    """The lane for settlements of one table, in one process."""

    def __init__(self, lane: Lane, phrases: Phrases, claims: Claims) -> None:
        self._lane = lane
        self._phrases = phrases
        self._claims = claims
        self._statements: dict[Shape, str] = {}
        self._show = show(phrases)
        self._lost: dict[int, Claim] = {}

    async def settle(self, settlements: Sequence[Settlement]) -> set[int]:
        """See the contract."""
        claims = self._claims.of(settlements)
        groups = self._grouped(settlements, claims)
        if len(groups) == 1:
            [(shape, rows)] = groups
            lost = await self._lane.call(lambda connection: self._write(connection, shape, rows))
        else:
            lost = await self._lane.call(lambda connection: self._write_all(connection, groups))
        self._lost = {number: claims[number] for number in lost}
        self._claims.let_go(claims)
        return lost | {one.id for one in settlements if one.id not in claims}

    def _grouped(
        self, settlements: Sequence[Settlement], claims: dict[int, Claim]
    ) -> list[tuple[Shape, list[Written]]]:
        groups: dict[tuple[Shape, Any], list[Written]] = defaultdict(list)
        for one in settlements:
            if (claim := claims.get(one.id)) is not None:
                row = Written(one.id, claim, written(self._phrases.table, one))
                shape = shape_of(row.write)
                groups[shape, (claim.worker, claim.started_at) if shape.is_plain else claim.worker].append(row)
        return [(shape, rows) for (shape, _), rows in groups.items()]

    async def _write_all(self, connection: Connection, groups: list[tuple[Shape, list[Written]]]) -> set[int]:
        lost: set[int] = set()
        async with connection.transaction():
            for shape, rows in groups:
                lost |= await self._write(connection, shape, rows)
        return lost

    async def _write(self, connection: Connection, shape: Shape, rows: list[Written]) -> set[int]:
        sql = self._statements.get(shape)
        if sql is None:
            sql = self._statements[shape] = (plain if shape.is_plain else joined)(self._phrases, shape)
        first = rows[0].claim
        keys = [row.claim.key for row in rows]
        if shape.is_plain:
            changed = await connection.fetchval(sql, keys, first.started_at, first.worker)
        else:
            writes = [row.write for row in rows]
            changed = await connection.fetchval(
                sql,
                keys,
                [row.claim.started_at for row in rows],
                first.worker,
                [write.error for write in writes],
                [write.delay_s for write in writes],
                [encode(write.results) for write in writes],
            )
        if changed is None:
            return set()
        kept = set(changed)
        return {row.number for row in rows if row.claim.key not in kept}

    async def settled_before(self, settlements: Sequence[Settlement]) -> set[int]:
        """Of those that were lost just now, the ones that the table shows as this worker would have left them."""
        claims = self._lost
        keys = [claim.key for claim in claims.values()]
        shown = {row[0]: row[1:] for row in await self._lane.rows(self._show, keys)}
        found = set()
        for one in settlements:
            claim = claims.get(one.id)
            if claim is not None and (row := shown.get(claim.key)) is not None:
                write = written(self._phrases.table, one)
                if _is_as_left(write, claim, self._phrases.table.running, *row):
                    found.add(one.id)
        return found


def _is_as_left(write: RowWrite, claim: Claim, running: str, status: str, worker: str | None, started_at: Any) -> bool:
    is_ours = (worker, started_at) == (claim.worker, claim.started_at)
    if write.is_end:
        return is_ours and status == write.status
    # It waits, or somebody has claimed it since: given back it was, by us or by a rescue that nobody can tell from us.
    return status == write.status or (status == running and not is_ours)


def shape_of(write: RowWrite) -> Shape:
    """The group that a settlement belongs to."""
    return Shape(
        write.status,
        write.is_end,
        write.retries,
        write.keeps_error,
        write.error is not None,
        write.delay_s is not None,
        tuple(sorted(write.results)),
    )


def plain(phrases: Phrases, shape: Shape) -> str:
    """$1 keys, $2 start, $3 worker."""
    start = f"{phrases.at('started_at')} = $2::{phrases.start_type}"
    where = f"{phrases.key} = any($1::{phrases.keys_in}) and {start} and {phrases.is_ours('$3')}"
    return _answered(phrases, f"update {phrases.name} set {_writes(phrases, shape)} where {where}")


def joined(phrases: Phrases, shape: Shape) -> str:
    """$1 keys, $2 starts, $3 worker, $4 errors, $5 delays, $6 results."""
    rows = f"{phrases.held(', $4::text[], $5::float8[], $6::text[]')} as u (k, s, e, d, j)"
    if shape.results:
        fields = ", ".join(f"{identifier(name)} {_field(phrases, name)}" for name in shape.results)
        rows += f" cross join lateral json_to_record(u.j::json) as j ({fields})"
    where = f"{phrases.key} = u.k and {phrases.at('started_at')} = u.s and {phrases.is_ours('$3')}"
    return _answered(phrases, f"update {phrases.name} set {_writes(phrases, shape)} from {rows} where {where}")


def _answered(phrases: Phrases, update: str) -> str:
    """Nothing where all were changed, which is nearly always; else the keys that were."""
    return (
        f"with changed as ({update} returning {phrases.key_out}) select "
        "case when count(*) < cardinality($1) then coalesce(array_agg(k), '{}') end from changed"
    )


def _writes(phrases: Phrases, shape: Shape) -> str:
    values = {"status": phrases.word(shape.status)}
    values |= {"finished_at": "now()"} if shape.is_end else phrases.emptied
    if shape.retries:
        values["retries"] = f"{phrases.retries} + {shape.retries}"
    if not shape.keeps_error:
        values["error"] = phrases.error("u.e" if shape.has_errors else None)
    if shape.has_delays:
        values["due_at"] = f"now() + u.d * {SECOND}"
    return ", ".join([phrases.sets(values), *(_result(phrases, name) for name in shape.results)])


def _result(phrases: Phrases, name: str) -> str:
    value = f"j.{identifier(name)}"
    is_bytes = phrases.relation.columns[name].base == "bytea"
    return f"{identifier(name)} = " + (f"decode({value}, 'base64')" if is_bytes else value)


def _field(phrases: Phrases, name: str) -> str:
    column = phrases.relation.columns[name]
    # In JSON, bytes are base64.
    return "text" if column.base == "bytea" else column.declared


def show(phrases: Phrases) -> str:
    """What rows look like now, whoever has written it. $1 keys."""
    outputs = f"{phrases.key_out}, {phrases.at('status')}::text, {phrases.at('worker')}::text"
    where = f"{phrases.key} = any($1::{phrases.keys_in})"
    return f"select {outputs}, {phrases.at('started_at')} from {phrases.name} where {where}"
