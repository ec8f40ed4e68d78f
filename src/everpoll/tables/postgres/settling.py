"""Settling: a mixed batch in one transaction, each row under its fence.

Settlements that write the same into every row are one statement: the ordinary end of a batch, whose rows share one
start, needs no join. Those that differ in errors, delays or results are joined with arrays; results are read from JSON
as the columns' own types.

Promises: what is not ours any more is left alone and reported as lost.
"""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from everpoll.drivers.postgres.lane import Connection, Lane
from everpoll.stores.contract import Ended, Settlement, encode
from everpoll.tables.claims import Claim, Claims
from everpoll.tables.outcome import RowWrite, is_as_left, written
from everpoll.tables.postgres.statements import SECOND, Phrases
from everpoll.tables.sql_names import identifier

LOST_LIMIT = 1_000


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


class Group:
    """Settlements that one statement writes; those of one start where it needs no join."""

    __slots__ = ("claims", "numbers", "shape", "writes")

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.numbers: list[int] = []
        self.claims: list[Claim] = []
        self.writes: list[RowWrite] = []


class Settling:
    """The lane for settlements of one table, in one process."""

    def __init__(self, lane: Lane, phrases: Phrases, claims: Claims) -> None:
        self._lane = lane
        self._phrases = phrases
        self._claims = claims
        self._statements: dict[Shape, str] = {}
        self._show = show(phrases)
        self._lost: dict[int, Claim] = {}
        self.lost_keys: dict[int, Any] = {}
        """For the log, which takes them out."""
        self._done = shape_of(RowWrite(status=phrases.table.done, is_end=True))

    async def settle(self, settlements: Sequence[Settlement]) -> set[int]:
        """See the contract."""
        claims = self._claims.of(settlements)
        groups = self._grouped(settlements, claims)
        if len(groups) == 1:
            lost = await self._lane.call(lambda connection: self._write(connection, groups[0]))
        else:
            lost = await self._lane.call(lambda connection: self._write_all(connection, groups))
        self._lost = {number: claims[number] for number in lost}
        if len(self.lost_keys) < LOST_LIMIT:
            self.lost_keys |= {number: claim.key for number, claim in self._lost.items()}
        self._claims.let_go(claims)
        return lost if len(claims) == len(settlements) else lost | {one.id for one in settlements} - claims.keys()

    def _grouped(self, settlements: Sequence[Settlement], claims: dict[int, Claim]) -> list[Group]:
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
                write = written(self._phrases.table, one)
                shape = shape_of(write)
                group = groups.setdefault((shape, claim.started_at if shape.is_plain else None), Group(shape))
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
        shape = group.shape
        sql = self._statements.get(shape)
        if sql is None:
            sql = self._statements[shape] = (plain if shape.is_plain else joined)(self._phrases, shape)
        keys = [claim.key for claim in group.claims]
        worker, start = group.claims[0].worker, group.claims[0].started_at
        if shape.is_plain:
            changed = await connection.fetchval(sql, keys, start, worker)
        else:
            starts = [claim.started_at for claim in group.claims]
            errors = [write.error for write in group.writes]
            delays = [write.delay_s for write in group.writes]
            results = [encode(write.results) for write in group.writes]
            changed = await connection.fetchval(sql, keys, starts, worker, errors, delays, results)
        if changed is None:
            return set()
        kept = set(changed)
        return {number for number, key in zip(group.numbers, keys, strict=True) if key not in kept}

    async def settled_before(self, settlements: Sequence[Settlement]) -> set[int]:
        """Of those that were lost just now, the ones that the table shows as this worker would have left them."""
        claims = self._lost
        keys = [claim.key for claim in claims.values()]
        shown = {row[0]: tuple(row[1:]) for row in await self._lane.rows(self._show, keys)}
        found = set()
        for one in settlements:
            claim = claims.get(one.id)
            if claim is not None and (row := shown.get(claim.key)) is not None:
                table, is_ours = self._phrases.table, row[1:] == (claim.worker, claim.started_at)
                if is_as_left(table, written(table, one), row[0], is_ours):
                    found.add(one.id)
        return found


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
    """The rows as they stand now. $1 keys."""
    outputs = f"{phrases.key_out}, {phrases.at('status')}::text, {phrases.at('worker')}::text"
    where = f"{phrases.key} = any($1::{phrases.keys_in})"
    return f"select {outputs}, {phrases.at('started_at')} from {phrases.name} where {where}"
