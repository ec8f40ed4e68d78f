"""Settling: a batch in one transaction, each row by its fence; rows of one claim that end alike share a statement."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from everpoll.drivers.sqlite.connection import Connection
from everpoll.stores.contract import LEASE_LIMIT
from everpoll.tables.changes import pattern_of
from everpoll.tables.claims import Claim, by_fence
from everpoll.tables.outcome import RowWrite
from everpoll.tables.sqlite.claiming import instants
from everpoll.tables.sqlite.instants import later_us, now_us, stored
from everpoll.tables.sqlite.statements import Statements, bound_keys


class Settled(NamedTuple):
    """One settlement: its number, the claim, and what is written into the row."""

    number: int
    claim: Claim
    write: RowWrite


def settle(con: Connection, statements: Statements, batch: Iterable[Settled]) -> set[int]:
    """Write the batch; return the numbers of the claims that were lost."""
    now = now_us()
    lost: set[int] = set()
    for group in _grouped(batch):
        _, claim, write = group[0]
        keys = bound_keys([one.claim.key for one in group])
        bound = {**_bound(statements, write, now), **fence(claim), **keys}
        sql = statements.settle(pattern_of(write), len(keys))
        changed = {key for (key,) in con.execute(sql, bound).fetchall()}
        lost |= {one.number for one in group if one.claim.key not in changed}
    return lost


def states(con: Connection, statements: Statements, keys: Sequence[Any]) -> dict[Any, Sequence[Any]]:
    """Read these rows as they are now: status, worker and start."""
    found: dict[Any, Sequence[Any]] = {}
    for at in range(0, len(keys), LEASE_LIMIT):
        places = bound_keys(keys[at : at + LEASE_LIMIT])
        found |= {key: state for key, *state in con.execute(statements.states(len(places)), places)}
    return found


def lost_claims(con: Connection, statements: Statements, claims: Mapping[int, Claim]) -> frozenset[int]:
    """Return the claims whose rows another program has changed."""
    held = held_keys(con, statements, claims.values())
    return frozenset(number for number, claim in claims.items() if claim.key not in held)


def held_keys(con: Connection, statements: Statements, claims: Iterable[Claim]) -> set[Any]:
    """Return the keys of the claims that still hold."""
    held: set[Any] = set()
    for group in by_fence(claims):
        keys = bound_keys([claim.key for claim in group])
        held |= {key for (key,) in con.execute(statements.held(len(keys)), {**fence(group[0]), **keys})}
    return held


def fence(claim: Claim) -> dict[str, Any]:
    """Return the parameters of the fence, without the keys."""
    return {"worker": claim.worker, "started": claim.started_at}


def _grouped(batch: Iterable[Settled]) -> Iterator[list[Settled]]:
    groups: dict[tuple[Any, ...], list[Settled]] = {}
    for one in batch:
        write = one.write
        own = one.number if write.results else None
        alike = (one.claim.worker, one.claim.started_at, own, pattern_of(write), write.error, write.delay_s)
        groups.setdefault(alike, []).append(one)
    for group in groups.values():
        # A claim is never larger than this, but the caller may have put several together.
        for at in range(0, len(group), LEASE_LIMIT):
            yield group[at : at + LEASE_LIMIT]


def _bound(statements: Statements, write: RowWrite, now: int) -> dict[str, Any]:
    bound = {"error": write.error, **instants(statements, now), **statements.written_values(write.results)}
    if write.delay_s is not None and "due_at" in statements.kinds:
        bound["due"] = stored(statements.kinds["due_at"], later_us(now, write.delay_s), up=True)
    return bound


def handed_back(claims: Sequence[Claim], queued: str) -> list[Settled]:
    """Return hand-backs of the claims of a canceled caller, numbered by their place."""
    write = RowWrite(status=queued, is_end=False, keeps_error=True)
    return [Settled(place, claim, write) for place, claim in enumerate(claims)]
