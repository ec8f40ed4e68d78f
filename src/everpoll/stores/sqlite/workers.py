"""Workers of one process on a SQLite store: sign on, lease, settle, sign off.

Between their polls it remembers whether the last one found something, when limits are to be visited again, and which
tasks with a limit they hold.
"""

import asyncio
import logging
from collections.abc import Sequence

from everpoll.drivers.sqlite.connection import Connection
from everpoll.drivers.sqlite.lane import Op
from everpoll.drivers.wake import Wake
from everpoll.stores.fleet import WorkerCard
from everpoll.stores.leases import LEASE_LIMIT, Again, Lease, Leased, Settlement
from everpoll.stores.limit_visits import LimitVisits
from everpoll.stores.sqlite import leasing, rescue, settling
from everpoll.stores.sqlite.clock import Instants, microseconds
from everpoll.stores.sqlite.lanes import Lanes

logger = logging.getLogger("everpoll.stores")


class Workers:
    """The workers that lease from one store object."""

    def __init__(self, lanes: Lanes, instants: Instants) -> None:
        self._lanes = lanes
        self._now = instants.wall_us
        self._found = False
        self._is_heavy = False
        self._limit_visits = LimitVisits()
        self._cards: dict[int, WorkerCard] = {}
        self._limited: set[int] = set()
        """The leased tasks with a limit: when one ends, another task of the limit may start."""

    async def sign_on(self, card: WorkerCard, lease_s: float) -> None:
        """See the contract."""
        await self._lanes.write(Op(lambda con: rescue.sign_on(con, self._now(), card, lease_s)))
        self._cards[card.incarnation] = card

    async def sign_off(self, incarnation: int) -> None:
        """See the contract."""
        await self._lanes.write(Op(lambda con: rescue.sign_off(con, self._now(), incarnation)))
        self._cards.pop(incarnation, None)

    async def lease(self, incarnation: int, rooms: dict[str, int], most: int) -> Leased:
        """See the contract. If the caller is canceled meanwhile, the leased tasks are handed back."""
        poll = self._poll(incarnation, rooms, most)
        polled = await self._lanes.write(
            Op(
                lambda con: leasing.lease(con, self._now(), poll),
                # If the poll before found tasks, this one probably does, too, and does not check first.
                peek=None if self._found else lambda con: leasing.peek(con, self._now(), poll),
                unwanted=lambda polled: self._hand_back(incarnation, polled.leased.leases),
            )
        )
        leased = polled.leased
        self._remember(polled, poll)
        self._found = bool(leased.leases)
        self._is_heavy = (
            not leased.is_all and leased.next_due_s is None and len(leased.leases) < poll.limit(LEASE_LIMIT)
        )
        return leased

    def _poll(self, incarnation: int, rooms: dict[str, int], most: int) -> leasing.Poll:
        visits, card = self._limit_visits, self._cards.get(incarnation)
        aging_s = None if card is None or not visits.asks_aged(card.aging_s) else card.aging_s
        return leasing.Poll(
            incarnation,
            dict(rooms),
            most,
            self._is_heavy,
            {} if card is None else card.limits,
            visits.are_due(is_aged=aging_s is not None),
            visits.turns,
            None if aging_s is None else microseconds(aging_s),
            visits.aged_after,
        )

    def _remember(self, polled: leasing.Polled, poll: leasing.Poll) -> None:
        visits = self._limit_visits
        visits.polled(len(polled.leased.leases), poll.limit(LEASE_LIMIT), started=polled.started)
        if poll.aging_us is not None:
            visits.asked_aged(poll.aging_us / 1e6, found=polled.has_aged)
        if polled.visited is not None:
            if poll.aging_us is not None:
                visits.aged_after = polled.aged_after
            visits.visited(polled.visited, polled.started, polled.took_s)
            visits.turns.update(polled.turns)
            self._limited.update(one.id for one in polled.leased.leases if one.limit_key is not None)

    def _hand_back(self, incarnation: int, leases: Sequence[Lease]) -> None:
        if leases and self._lanes.writer is not None:
            given = [Again(one.id, one.sequence, refund=True) for one in leases]
            handing = self._lanes.writer.submit(self._settlement(incarnation, given))
            handing.add_done_callback(_note_failure)

    async def settle(self, incarnation: int, settlements: Sequence[Settlement]) -> set[int]:
        """See the contract."""
        return await self._lanes.write(self._settlement(incarnation, settlements)) if settlements else set()

    def _settlement(self, incarnation: int, settlements: Sequence[Settlement]) -> Op[set[int]]:
        batch = settling.Batch(incarnation, settlements)

        def settle(con: Connection) -> set[int]:
            lost = settling.settle(con, self._now(), batch)
            if batch.is_hurried:
                op.due_s = 0.0
            if batch.unblocked_us is not None:
                op.due_s = min(op.due_s, batch.unblocked_us / 1e6) if op.wakes else batch.unblocked_us / 1e6
                op.wakes = True
            return lost

        if self._limited and (ended := self._limited.intersection([one.id for one in settlements])):
            self._limited -= ended
            op = Op(settle, wakes=True)
            return op
        op = Op(settle, wakes=bool(batch.again or batch.followed), due_s=batch.due_s)
        return op

    async def is_complete(self, incarnation: int, lease: Lease) -> bool:
        """See the contract."""
        if not await self._lanes.read(lambda con: settling.is_done(con, incarnation, lease)):
            return False
        if lease.id in self._limited:
            self._limited.remove(lease.id)
            self._lanes.file_listeners.wake(Wake(False, 0.0))  # another task of the same limit may start now
        return True


def _note_failure(handing: "asyncio.Future[set[int]]") -> None:
    if not handing.cancelled() and (error := handing.exception()) is not None:
        logger.warning(
            "tasks leased for a canceled caller could not be handed back, and wait for the rescue: %s", error
        )
