"""The claims of this process: the engine's number of each, with the row's key and its fence.

Promises: a number is never used twice. A row that is claimed again after it was lost gets a new number.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, TypeVar

from msgspec import Struct

from everpoll.tables.row import RowLease

T = TypeVar("T")


class Claim(Struct, frozen=True, gc=False):
    """A claimed row: every later write about it carries `worker` and `started_at`, as they stand in the table."""

    key: Any
    """None: all rows of one look, as long as it is unknown which were claimed."""
    worker: str
    started_at: Any


class Claims:
    """The claims of one table in this process."""

    def __init__(self, table: str) -> None:
        self._table = table
        self._last = 0
        self._held: dict[int, Claim] = {}

    def take(self, claim: Claim, attempt: int, values: Mapping[str, Any]) -> RowLease:
        """Record a claimed row and return its lease for the engine."""
        self._last += 1
        self._held[self._last] = claim
        return RowLease(self._last, 1, attempt, self._table, self._table, "null", row_key=claim.key, values=values)

    def held(self, numbers: Iterable[int]) -> dict[int, Claim]:
        """Return the claims of these numbers that are still held. May be called from the heartbeat's thread."""
        held = self._held
        return {number: claim for number in numbers if (claim := held.get(number)) is not None}

    def all(self) -> dict[int, Claim]:
        """Return a copy of all claims that are held now. May be called from other threads."""
        return dict(self._held)

    def release(self, numbers: Iterable[int]) -> None:
        """Forget claims that were settled or lost."""
        for number in numbers:
            self._held.pop(number, None)

    def lost(self, number: int) -> Any:
        """Forget a row whose result is dropped; return its key, if it is known."""
        claim = self._held.pop(number, None)
        return None if claim is None else claim.key


def last_claims(claims: Iterable[tuple[int, Claim]]) -> dict[Any, int]:
    """Return by key the last claim of each row: a row that was claimed anew is not held by its earlier claims."""
    last: dict[Any, int] = {}
    for number, claim in claims:
        last[claim.key] = max(number, last.get(claim.key, 0))
    return last


def by_fence(claims: Iterable[Claim]) -> list[list[Claim]]:
    """Group claims that share worker and start, and so a statement: those of one look."""
    return grouped(claims, lambda claim: (claim.worker, claim.started_at))


def grouped(values: Iterable[T], sign: Callable[[T], Hashable]) -> list[list[T]]:
    """Group values of the same sign; groups and values keep their order."""
    groups: dict[Hashable, list[T]] = {}
    for value in values:
        groups.setdefault(sign(value), []).append(value)
    return list(groups.values())
