"""Leasing: one function call, one row of arrays; where to look is the business of `marks`, lost answers of `hands`.

Promises: at most one lease under way per store. A worker never holds a task that it does not know of for longer than
until its next look. Measured: 4 to 10 us a row, whatever else is in the tables.
"""

from collections import Counter
from itertools import repeat
from typing import Any

import msgspec

from everpoll.drivers.postgres.lane import Lane
from everpoll.errors import EverpollError, LeaseLost, StoreUnavailable
from everpoll.stores.contract import LEASE_LIMIT, Lease, Leased
from everpoll.stores.postgres.functions import versioned
from everpoll.stores.postgres.hands import Hands
from everpoll.stores.postgres.marks import Marks, Ranges

LEASE = versioned("select * from everpoll.lease($1, $2, $3, $4, $5, $6, $7, $8, $9)")
RECOVER = versioned("select everpoll.recover($1, $2, $3)")


class Leasing:
    """The lane for leasing, and what it remembers."""

    def __init__(self, lane: Lane, marks: Marks, hands: Hands) -> None:
        self._lane = lane
        self._marks = marks
        self._hands = hands
        self._was_connected = False
        lane.on_connect = self._connected

    def _connected(self) -> None:
        self._marks.forget()
        if self._was_connected:
            self._hands.doubt_all()
        self._was_connected = True

    async def lease(self, incarnation: int, rooms: dict[str, int], most: int) -> Leased:
        """See the contract."""
        if self._hands.is_in_doubt(incarnation):
            await self.recover(incarnation)
        leased = await self._leased(incarnation, rooms, most)
        if self._hands.is_in_doubt(incarnation):
            # It was connected anew under way: nobody rests on that, the next look hands back.
            return msgspec.structs.replace(leased, next_due_s=0.0, is_all=False)
        return leased

    async def _leased(self, incarnation: int, rooms: dict[str, int], most: int) -> Leased:
        most = max(0, min(most, LEASE_LIMIT))
        ranges = self._marks.ranges(list(rooms))
        leased = await self._look(incarnation, rooms, most, ranges)
        if ranges.is_full or len(leased.leases) == most:
            return leased
        if full_due_s := self._marks.full_due_s():
            # Nobody rests on a marked look: the next one comes when a full look may be afforded.
            return msgspec.structs.replace(leased, next_due_s=min(full_due_s, leased.next_due_s or full_due_s))
        try:
            return await self._look_again(incarnation, rooms, most, leased.leases)
        except EverpollError:
            # What we have is leased, and must not be lost on the way.
            if not leased.leases:
                raise
            return msgspec.structs.replace(leased, next_due_s=0.0)

    async def _look_again(self, incarnation: int, rooms: dict[str, int], most: int, found: list[Lease]) -> Leased:
        taken = Counter(lease.queue for lease in found)
        left = {queue: room - taken[queue] for queue, room in rooms.items()}
        more = await self._look(incarnation, left, most - len(found), self._marks.full(list(rooms)))
        return Leased(found + more.leases, more.next_due_s, at=more.at, is_all=more.is_all)

    async def _look(self, incarnation: int, rooms: dict[str, int], most: int, ranges: Ranges) -> Leased:
        queues, caps = list(rooms), [max(0, min(room, most)) for room in rooms.values()]
        try:
            row = await self._lane.row(
                LEASE,
                incarnation,
                most,
                queues,
                caps,
                ranges.queues,
                ranges.ranks_from,
                ranges.dues_from,
                ranges.ranks_to,
                ranges.is_full,
            )
        except BaseException as error:
            # A cancellation as well: the server may have leased what nobody will hear of.
            if not isinstance(error, EverpollError) or isinstance(error, StoreUnavailable):
                self._hands.doubt(incarnation)
            raise
        if row["is_lost"]:
            self._hands.sign_off(incarnation)
            raise LeaseLost(f"worker {incarnation:016x} was declared dead: sign on anew")
        leases = _leases(row, queues)
        self._hands.take(incarnation, zip(row["ids"] or (), row["sequences"] or (), strict=True))
        self._remember(row, ranges, len(leases), most)
        next_due_s = row["next_due_s"]
        # A marked look steps over what it knows to be gone, and may step over more: nobody rests on it.
        is_all = ranges.is_full and len(leases) < most
        return Leased(leases, None if next_due_s is None else max(0.0, next_due_s), at=row["at"], is_all=is_all)

    def _remember(self, row: Any, ranges: Ranges, found: int, most: int) -> None:
        self._marks.looked(ranges, row["took_s"], found, most)
        if found:
            self._marks.leased(zip(row["mark_queues"], row["mark_ranks"], row["mark_dues"], strict=True))
        if row["promoted"]:
            self._marks.forget()

    async def recover(self, incarnation: int) -> None:
        """Hand back what the worker holds without knowing."""
        holds = self._hands.holds(incarnation)
        if holds is not None:
            await self._lane.row(RECOVER, incarnation, *holds)
            self._marks.forget()
        self._hands.settled_doubt(incarnation)


def _leases(row: Any, queues: list[str]) -> list[Lease]:
    ids = row["ids"]
    if not ids:
        return []
    in_queues = row["in_queues"] or repeat(queues[0])
    sequences = row["sequences"]
    # The attempt is the sequence, unless some lease was not counted: such a row is an odd one.
    leases = list(map(Lease, ids, sequences, sequences, row["names"], in_queues, row["args"]))
    if row["odd_ids"]:
        columns = ("attempts", "memories", "keys", "rescues", "versions", "canceled")
        odd = zip(*(row[column] for column in columns), strict=True)
        rest = dict(zip(row["odd_ids"], odd, strict=True))
        return [_whole(lease, *rest[lease.id]) if lease.id in rest else lease for lease in leases]
    return leases


def _whole(lease: Lease, attempt: int, *rest: Any) -> Lease:
    return Lease(lease.id, lease.sequence, attempt, lease.name, lease.queue, lease.args, *rest)
