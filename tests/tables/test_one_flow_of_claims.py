"""One flow claims the rows of every database: shown on one that stands in memory, which refuses, races and counts."""

import asyncio
from collections.abc import Sequence

import pytest

from everpoll.tables.claiming import Claimed, Claiming, Found, claim_rows, run_now
from everpoll.tables.claims import Claim
from everpoll.tables.refusals import Refusals
from everpoll.tables.statements import Values


class Refused(Exception):
    """The table does not allow it."""


class Memory(Claiming):
    """A queue of numbers. `refused` cannot be claimed; `races` are taken by another worker after the look."""

    def __init__(self, *queued: int, refused: Sequence[int] = (), races: Sequence[int] = (), rounds: int = 1) -> None:
        self.queued = list(queued)
        self.refused = set(refused)
        self.races = set(races)
        self.rounds = rounds
        self.asked: list[str] = []
        self.claims_at_once = False
        self.locked = False

    def is_refusal(self, error: Exception) -> bool:
        return isinstance(error, Refused)

    async def claim(self, worker: str, most: int) -> list[Claimed] | None:
        return self.taken(worker, self.queued[:most]) if self.claims_at_once else None

    async def look(self, most: int) -> list[Values]:
        self.asked.append(f"look {most}")
        return [(key,) for key in self.queued[:most]]

    async def take(self, worker: str, rows: Sequence[Values]) -> list[Claimed]:
        return self.taken(worker, [row[0] for row in rows])

    def taken(self, worker: str, keys: list[int]) -> list[Claimed]:
        self.asked.append(f"take {', '.join(map(str, keys))}")
        if self.refused & set(keys):
            raise Refused(str(keys))
        self.queued = [key for key in self.queued if key not in keys]
        return [Claimed(Claim(key, worker, 0), 1, {}) for key in keys if key not in self.races]

    async def waits(self) -> tuple[bool, float | None]:
        return bool(self.queued or self.locked), None if self.queued else 7.0


def looked(memory: Memory, most: int = 10, refusals: Refusals | None = None) -> tuple[list[int], float | None, int]:
    found: Found = run_now(claim_rows(memory, refusals or Refusals("jobs", "claimed"), "w", most, []))
    return [one.claim.key for one in found.claimed], found.next_due_s, found.missed


def test_the_best_rows_are_claimed_and_no_more_than_asked_for() -> None:
    assert looked(Memory(1, 2, 3), most=2) == ([1, 2], None, 0)


def test_a_database_that_can_claims_in_one_step() -> None:
    memory = Memory(1, 2)
    memory.claims_at_once = True
    assert looked(memory) == ([1, 2], None, 0)
    assert memory.asked == ["take 1, 2"]


def test_after_nothing_the_next_due_time_is_asked_for() -> None:
    assert looked(Memory()) == ([], 7.0, 0)


def test_a_row_that_others_have_locked_is_looked_for_again_at_once() -> None:
    memory = Memory()
    memory.locked = True
    assert looked(memory) == ([], 0.0, 0)


def test_a_lost_race_is_counted_and_followed_by_a_wider_look_where_the_database_wants_it() -> None:
    assert looked(Memory(1, races=[1])) == ([], 0.0, 1)
    memory = Memory(1, 2, 3, races=[1], rounds=2)
    assert looked(memory, most=1)[2] == 1
    assert memory.asked[2] == "look 4"


@pytest.mark.parametrize("claims_at_once", [False, True])
def test_a_refused_row_stops_no_other_and_is_left_alone(claims_at_once: bool) -> None:
    refusals = Refusals("jobs", "claimed")
    memory = Memory(1, 2, 3, refused=[2])
    memory.claims_at_once = claims_at_once
    assert looked(memory, refusals=refusals) == ([1, 3], None, 0)
    assert looked(memory, refusals=refusals) == ([], None, 0)
    assert memory.asked[-1] == "look 11", "it is not tried again"


def test_where_all_is_refused_the_error_is_raised() -> None:
    with pytest.raises(Refused):
        looked(Memory(1, refused=[1]))


def test_what_waits_cannot_run_at_once() -> None:
    with pytest.raises(AssertionError, match="it waits"):
        run_now(asyncio.sleep(0))
