"""Settling: what a batch of settlements writes into which rows, in any database.

Each row is written by its fence. Rows that get the same values share a statement; which those are, each database says
by itself, for one can write different values at once and another cannot. A row whose key a statement does not return
is lost: it is not ours any more, and unchanged.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from everpoll.stores.contract import Ended, Settlement
from everpoll.tables.claims import Claim, last_claims
from everpoll.tables.mapping import Table
from everpoll.tables.outcome import RowWrite, written


class Settled(Struct, frozen=True, gc=False):
    """One settlement: its number, the claim, and what is written into the row."""

    number: int
    claim: Claim
    write: RowWrite
    pattern: Hashable


def batch_of(table: Table, settlements: Sequence[Settlement], claims: Mapping[int, Claim]) -> list[Settled]:
    """Return what is written for those that have a claim. Of two for the same claim the first counts."""
    done = RowWrite(status=table.done, is_end=True)
    done_pattern = done.pattern
    batch: dict[int, Settled] = {}
    for one in settlements:
        claim = claims.get(one.id)
        if claim is None or one.id in batch:
            continue
        if type(one) is Ended and one.result is None and one.note is None and one.state == "done":
            # The ordinary end: most rows of most batches.
            batch[one.id] = Settled(one.id, claim, done, done_pattern)
        else:
            write = written(table, one)
            batch[one.id] = Settled(one.id, claim, write, write.pattern)
    return list(batch.values())


def lost_of(group: Sequence[Settled], changed: Iterable[Any]) -> set[int]:
    """Return the numbers of settlements whose rows were not changed. `changed`: the keys of those that were."""
    last = last_claims((one.number, one.claim) for one in group)
    return {one.number for one in group} - {last[key] for key in changed}
