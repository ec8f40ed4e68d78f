"""Claiming: a row that waits becomes the worker's in one guarded write.

    skip_locked   one step, where the database can: the best rows that are not locked
    status        a look, then a write of what still waits
    version       a look, then a write of what still waits in the version that was seen
    timestamp     a look, then a write of what still waits and was not changed since it was seen

Promises: best first, never more than asked for. Every guard asks for the word for waiting, so workers with different
guards are safe together. A lost race raises nothing: fewer rows, and `missed` says how many. If the table refuses a
row, the rows of that batch are claimed one by one, and the refused row is left alone for a while.
"""

import random
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Sequence
from typing import Any, NamedTuple, TypeVar

from everpoll.errors import EverpollError
from everpoll.stores.contract import LEASE_LIMIT
from everpoll.tables.claims import Claim
from everpoll.tables.refusals import Refusals
from everpoll.tables.statements import Values

T = TypeVar("T")

WIDER = 4
"""After a lost race, a worker draws its rows from so many times as many: workers that want the same rows would go on
losing races."""

_rng = random.Random()  # noqa: S311 - spreads workers, no secret


class Claimed(NamedTuple):
    """A row that was claimed."""

    claim: Claim
    attempt: int
    values: dict[str, Any]


class Found(NamedTuple):
    """The result of a look: claimed rows, and when to look next."""

    claimed: list[Claimed]
    next_due_s: float | None = None
    missed: int = 0


class Claiming(ABC):
    """What a database must do for a claim."""

    rounds = 1
    """Looks of one claim, if other workers take what it looked at."""
    has_rivals = True
    """Whether other workers may claim a row between the look and the write."""

    @abstractmethod
    def is_refusal(self, error: Exception) -> bool:
        """Tell whether the table refuses to have a row changed, so that fewer rows at once may succeed."""

    async def claim(self, worker: str, most: int) -> list[Claimed] | None:
        """Claim in one step; return None where that takes a look first."""
        del worker, most
        return None

    @abstractmethod
    async def look(self, most: int) -> list[Values]:
        """Return the best rows that wait and are due: the key, and what `take` wants to know of each."""

    @abstractmethod
    async def take(self, worker: str, rows: Sequence[Values]) -> list[Claimed]:
        """Claim those that still are as they were seen."""

    @abstractmethod
    async def waits(self) -> tuple[bool, float | None]:
        """Return whether a row is due though none could be claimed, and in how many seconds the next one is."""


async def claim_rows(database: Claiming, refusals: Refusals, worker: str, most: int, claimed: list[Claimed]) -> Found:
    """Claim at most so many rows. They are added to `claimed` as well, also where an error ends it."""
    missed = await _claim(database, refusals, worker, most, claimed)
    if claimed or missed:
        # Where others were quicker and nothing is left for us, there may be more: the next look comes soon.
        return Found(claimed, None if claimed else 0.0, missed)
    is_due, next_due_s = await database.waits()
    if is_due and not refusals.known():
        return Found([], 0.0)  # others have locked it; what is refused is due all the time, and no reason to hurry
    return Found([], next_due_s)


async def _claim(database: Claiming, refusals: Refusals, worker: str, most: int, claimed: list[Claimed]) -> int:
    """Add what could be claimed; return how many rows other workers were quicker to get."""
    at_once = None if refusals.known() else await _at_once(database, worker, most)
    if at_once is not None:
        claimed += at_once
        return 0
    missed = 0
    for round_ in range(database.rounds):
        wanted, before = most - len(claimed), len(claimed)
        among = wanted if round_ == 0 else min(wanted * WIDER, LEASE_LIMIT)
        refused = refusals.known()
        seen = [row for row in await database.look(among + len(refused)) if row[0] not in refused][:among]
        if len(seen) > wanted:
            seen = [seen[place] for place in sorted(_rng.sample(range(len(seen)), wanted))]
        refused_now = await _take(database, refusals, worker, seen, claimed) if seen else 0
        lost = len(seen) - refused_now - (len(claimed) - before)
        if lost and not database.has_rivals:
            got = {one.claim.key for one in claimed} | refusals.known()
            for key in (row[0] for row in seen if row[0] not in got):
                refusals.add(key, EverpollError("the change has no effect, as if a trigger ignored it"))
            break
        missed += lost
        if not lost:
            break
    return missed


async def _at_once(database: Claiming, worker: str, most: int) -> list[Claimed] | None:
    """Claim in one step; return None where that takes a look, or where the table refuses a row."""
    try:
        return await database.claim(worker, most)
    except Exception as error:
        if not database.is_refusal(error):
            raise
        return None


async def _take(database: Claiming, refusals: Refusals, worker: str, rows: list[Values], claimed: list[Claimed]) -> int:
    """Take these rows together, or each for itself; return how many the table refused.

    Raises only where all were refused: the poller counts the error, and rests.
    """
    try:
        claimed += await database.take(worker, rows)
    except Exception as error:
        if not database.is_refusal(error):
            raise
    else:
        return 0
    errors: list[Exception] = []
    before = len(claimed)
    for row in rows:
        try:
            claimed += await database.take(worker, [row])
        except Exception as error:
            if not database.is_refusal(error):
                raise
            refusals.add(row[0], error)
            errors.append(error)
    if errors and len(claimed) == before:
        raise errors[0]
    return len(errors)


def run_now(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never waits, because its database answers at once: SQLite does, in its writer's thread."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        answer: T = end.value
        return answer
    raise AssertionError("it waits for something")
