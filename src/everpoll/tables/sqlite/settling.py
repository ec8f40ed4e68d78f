"""Settling: a mixed batch in one transaction, each row by its fence.

Promises: a row that its claim no longer holds is left as it is, and reported as lost. Rows of one claim
that end alike share a statement.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from everpoll.drivers.sqlite.connection import Connection
from everpoll.stores.contract import LEASE_LIMIT
from everpoll.tables.claims import Claim
from everpoll.tables.mapping import Table
from everpoll.tables.outcome import RowWrite, is_as_left
from everpoll.tables.sqlite.claiming import instants
from everpoll.tables.sqlite.instants import later_us, now_us, stored
from everpoll.tables.sqlite.statements import Statements, bound_keys


class Settled(NamedTuple):
    """What is to be written about one claim."""

    number: int
    claim: Claim
    write: RowWrite


def settle(con: Connection, statements: Statements, batch: Iterable[Settled]) -> set[int]:
    """Write the batch; the numbers that were lost."""
    now = now_us()
    lost: set[int] = set()
    for group in _grouped(batch):
        _, claim, write = group[0]
        keys = bound_keys([one.claim.key for one in group])
        bound = {**_bound(statements, write, now), **fence(claim), **keys}
        changed = {key for (key,) in con.execute(_statement(statements, write, len(keys)), bound).fetchall()}
        lost |= {one.number for one in group if one.claim.key not in changed}
    return lost


def settled_before(con: Connection, statements: Statements, batch: Iterable[Settled]) -> set[int]:
    """Of what was called lost, that which is as an earlier try would have left it."""
    before: set[int] = set()
    for number, claim, write in batch:
        row = con.execute(statements.state(), {"k0": claim.key}).fetchone()
        if row is not None and _is_as_left(statements.table, claim, write, row):
            before.add(number)
    return before


def _is_as_left(table: Table, claim: Claim, write: RowWrite, row: tuple[Any, ...]) -> bool:
    status, worker, started_at, error = row
    is_ours = (worker, started_at) == (claim.worker, claim.started_at)
    is_claimed_again = not write.is_end and status == table.running
    says_why = is_claimed_again or table.error is None or write.keeps_error or (error or None) == write.error
    return says_why and is_as_left(table, write, status, is_ours)


def lost_claims(con: Connection, statements: Statements, claims: Mapping[int, Claim]) -> frozenset[int]:
    """Those of these claims whose rows another program has changed."""
    lost: set[int] = set()
    for group in by_fence(claims):
        keys = bound_keys([claim.key for _, claim in group])
        held = {key for (key,) in con.execute(statements.held(len(keys)), {**fence(group[0][1]), **keys})}
        lost |= {number for number, claim in group if claim.key not in held}
    return frozenset(lost)


def by_fence(claims: Mapping[int, Claim]) -> list[list[tuple[int, Claim]]]:
    """The claims of one look share worker and start, and so a statement."""
    groups: dict[tuple[str, Any], list[tuple[int, Claim]]] = {}
    for number, claim in claims.items():
        groups.setdefault((claim.worker, claim.started_at), []).append((number, claim))
    return list(groups.values())


def fence(claim: Claim) -> dict[str, Any]:
    """To bind; the key comes with the keys."""
    return {"worker": claim.worker, "started": claim.started_at}


def _grouped(batch: Iterable[Settled]) -> list[list[Settled]]:
    groups: dict[tuple[Any, ...], list[Settled]] = {}
    for one in batch:
        write = one.write
        alike = (write.status, write.is_end, write.error, write.keeps_error, write.retries, write.delay_s)
        own = one.number if write.results else None
        groups.setdefault((one.claim.worker, one.claim.started_at, own, *alike), []).append(one)
    # A claim is never larger than this, but the caller may have put several together.
    return [group[at : at + LEASE_LIMIT] for group in groups.values() for at in range(0, len(group), LEASE_LIMIT)]


def _statement(statements: Statements, write: RowWrite, keys: int) -> str:
    if write.is_end:
        return statements.end(keys, tuple(write.results))
    return statements.again(keys, keeps_error=write.keeps_error, is_delayed=write.delay_s is not None)


def _bound(statements: Statements, write: RowWrite, now: int) -> dict[str, Any]:
    bound: dict[str, Any] = {"status": write.status, "error": write.error, "retries": write.retries}
    bound |= instants(statements, now)
    if write.delay_s is not None and "due_at" in statements.kinds:
        bound["due"] = stored(statements.kinds["due_at"], later_us(now, write.delay_s), up=True)
    return bound | statements.written_values(write.results)


def handed_back(claims: Sequence[Claim], queued: str) -> list[Settled]:
    """Claims whose caller was canceled, numbered by their place."""
    write = RowWrite(status=queued, is_end=False, keeps_error=True)
    return [Settled(place, claim, write) for place, claim in enumerate(claims)]
