"""Leasing: one function call, one row of arrays. `marks` decides where to poll, `held_leases` handles lost answers.

Promises: at most one lease under way per store. A worker never holds a task that it does not know of for longer than
until its next poll. Measured: 4 to 10 us a row, whatever else is in the tables.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from itertools import repeat
from typing import Any

import msgspec

from everpoll.drivers.postgres.connections import Connections
from everpoll.drivers.postgres.lane import Lane
from everpoll.errors import EverpollError, LeaseLost, StoreUnavailable
from everpoll.stores import limits
from everpoll.stores.contract import LEASE_LIMIT, Lease, Leased, Settlement, WorkerCard
from everpoll.stores.limit_visits import LimitVisits
from everpoll.stores.postgres.functions import versioned
from everpoll.stores.postgres.held_leases import HeldLeases
from everpoll.stores.postgres.marks import LOWEST, RANK_END, RANK_MIN, Marks, Ranges, SweepQuery

logger = logging.getLogger("everpoll.stores")

LEASE = versioned("""select * from everpoll.lease($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15,
    $16, $17, $18, $19, $20, $21)""")
LEASE_LIMITED = versioned("select * from everpoll.lease_limited($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)")
LEASE_RUN = versioned("select * from everpoll.lease_run($1, $2, $3, $4, $5, $6, $7, $8)")
BEHIND = versioned("select * from everpoll.behind($1, $2, $3, $4, $5)")
RECOVER = versioned("select everpoll.recover($1, $2, $3)")
SETTLING_S = 0.005
"""A settlement that was written this recently is followed by another: it makes the leases before it durable."""
UNDER_WAY_S = 0.02
"""How long a poll waits at most for settlements under way, after which more tasks of a limit may start. Without this
wait, polls of four processes that share keys find half of the tasks that they ask for."""
NO_LIMITS: list[Any] = [False, *[None] * 6]
EVERYWHERE: tuple[list[Any], ...] = ([RANK_MIN], [LOWEST], [RANK_END])
"""The range of a full poll."""
USUAL: tuple[Iterable[Any], ...] = (repeat(None), repeat(None), repeat(0), repeat(1), repeat(False))
"""What most tasks have: no memory, no key, no rescue, version 1, not canceled."""
EMPTY: tuple[list[int], list[int]] = ([], [])


class Leasing:
    """Leases through one lane, sweeps through another, and remembers what polls found."""

    def __init__(
        self,
        connections: Connections,
        home: int,
        sweeping: Lane,
        marks: Marks,
        held_leases: HeldLeases,
        on_found: Callable[[], None],
    ) -> None:
        self._lane = Lane(connections, home, is_busy=True, on_connect=self._connected)
        self._sweeping = sweeping
        self._marks = marks
        self._held_leases = held_leases
        self._on_found = on_found
        self._sweep: asyncio.Task[None] | None = None
        self._recovery: asyncio.Task[None] | None = None
        self._settled_at = float("-inf")
        self._was_connected = False
        self._cards: dict[int, WorkerCard] = {}
        self._limit_visits = LimitVisits()
        self._limited: set[int] = set()
        """The tasks with a limit that workers of this process hold."""
        self._limited_under_way: set[asyncio.Future[None]] = set()
        """The settlements of such tasks that are under way."""

    def sign_on(self, card: WorkerCard) -> None:
        """Remember the worker's limits and aging."""
        self._cards[card.incarnation] = card

    def sign_off(self, incarnation: int) -> None:
        """Forget this worker."""
        self._cards.pop(incarnation, None)

    def release(self, settlements: Iterable[Settlement]) -> bool:
        """Forget leases that are settled or lost; return whether one of them counted for a limit."""
        if not self._limited:
            return False
        ended = self._limited.intersection([one.id for one in settlements])
        self._limited -= ended
        return bool(ended)

    @contextmanager
    def settling(self, settlements: Iterable[Settlement]) -> Iterator[None]:
        """Count these settlements as under way while the block lasts."""
        if not self._limited or self._limited.isdisjoint([one.id for one in settlements]):
            yield
            return
        under_way: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._limited_under_way.add(under_way)
        try:
            yield
        finally:
            self._limited_under_way.discard(under_way)
            if not under_way.done():
                under_way.set_result(None)

    def _connected(self) -> None:
        self._marks.forget()
        if self._was_connected:
            self._held_leases.doubt_all()
        self._was_connected = True

    async def lease(self, incarnation: int, rooms: dict[str, int], most: int) -> Leased:
        """See the contract."""
        if self._held_leases.is_in_doubt(incarnation):
            await self.recover(incarnation)
        if self._limited_under_way and self._limit_visits.is_short:
            await asyncio.wait(self._limited_under_way, timeout=UNDER_WAY_S)
        leased = await self._leased(incarnation, rooms, most)
        if (behind := self._marks.sweep(list(rooms))) is not None:
            self._sweep = asyncio.get_running_loop().create_task(
                self._sweep_behind_marks(behind), name="everpoll-sweep"
            )
            # If the event loop ends first, it cancels the sweep.
            self._sweep.add_done_callback(lambda sweep: self._marks.sweep_failed() if sweep.cancelled() else None)
        if self._held_leases.is_in_doubt(incarnation):
            # The worker reconnected during this poll: the next poll recovers its leases, and must come soon.
            return msgspec.structs.replace(leased, next_due_s=0.0, is_all=False)
        return leased

    async def close(self) -> None:
        """End a sweep and a recovery that are under way."""
        recovery, self._recovery = self._recovery, None
        if recovery is not None and recovery.get_loop() is asyncio.get_running_loop():
            recovery.cancel()
            await asyncio.gather(recovery, return_exceptions=True)
        sweep, self._sweep = self._sweep, None
        if sweep is not None and sweep.get_loop() is asyncio.get_running_loop():
            sweep.cancel()
            await asyncio.gather(sweep, return_exceptions=True)
            self._marks.sweep_failed()

    async def _leased(self, incarnation: int, rooms: dict[str, int], most: int) -> Leased:
        most = max(0, min(most, LEASE_LIMIT))
        ranges = self._marks.ranges(list(rooms))
        leased = await self._poll(incarnation, rooms, most, ranges)
        if ranges.is_full or ranges.asks_waiting or len(leased.leases) == most:
            return leased
        try:
            return await self._poll_again(incarnation, rooms, most, leased)
        except EverpollError:
            # The first poll has leased these tasks: return them in spite of the error.
            if not leased.leases:
                raise
            return msgspec.structs.replace(leased, next_due_s=0.0)

    async def _poll_again(self, incarnation: int, rooms: dict[str, int], most: int, found: Leased) -> Leased:
        taken = Counter(lease.queue for lease in found.leases)
        left = {queue: room - taken[queue] for queue, room in rooms.items()}
        more = await self._poll(incarnation, left, most - len(found.leases), self._marks.full(list(rooms)))
        return Leased(
            found.leases + more.leases,
            more.next_due_s,
            at=more.at,
            is_all=more.is_all,
            waited_us=[*_each(found), *_each(more)],
        )

    async def _poll(self, incarnation: int, rooms: dict[str, int], most: int, ranges: Ranges) -> Leased:
        about_limits, aging_s = self._about_limits(incarnation, is_full=ranges.is_full)
        is_plain = about_limits is NO_LIMITS and aging_s is None and len(rooms) == 1
        if is_plain and not ranges.is_full and not ranges.asks_waiting:
            leased = await self._poll_in_run(incarnation, rooms, most, ranges)
            if leased is not None:
                return leased
        if len(rooms) == 1 and aging_s is None and self._limit_visits.only_limits:
            leased = await self._poll_limits(incarnation, rooms, most, ranges)
            if leased is not None:
                return leased
        queues, caps = list(rooms), [max(0, min(room, most)) for room in rooms.values()]
        where = [None] * 4 if ranges.is_full else [ranges.queues, ranges.ranks_from, ranges.dues_from, ranges.ranks_to]
        row = await self._call(
            LEASE,
            incarnation,
            most,
            queues,
            caps,
            limits.LEASE_BYTES,
            *where,
            ranges.asks_waiting,
            ranges.waits_from,
            self._is_settling,
            *about_limits,
            aging_s,
            self._limit_visits.aged_after,
        )
        leases = _leases(row, row["in_queues"] or repeat(next(iter(queues), "")))
        known = self._take(incarnation, row)
        self._remember(row, ranges, len(leases), most)
        self._remember_limits(row, leases, most, aging_s)
        if known:
            return Leased([lease for lease in leases if lease.id not in known], 0.0, at=row["at"])
        return self._answer(row, ranges, leases, most)

    async def _poll_in_run(self, incarnation: int, rooms: dict[str, int], most: int, ranges: Ranges) -> Leased | None:
        """Poll by `lease_run`, the shorter function; return None if `lease` must be called instead."""
        ((queue, room),) = rooms.items()
        most = max(0, min(room, most))
        row = await self._call(
            LEASE_RUN,
            incarnation,
            most,
            queue,
            limits.LEASE_BYTES,
            ranges.ranks_from,
            ranges.dues_from,
            ranges.ranks_to,
            self._is_settling,
        )
        if row["is_left"]:
            return None
        leases = _leases(row, repeat(queue))
        known = self._take(incarnation, row)
        self._marks.polled(ranges, row["took_s"], len(leases), most)
        self._marks.leased(zip(repeat(queue), row["mark_ranks"] or (), row["mark_dues"] or (), strict=False))
        self._limit_visits.polled(len(leases), most)
        if known:
            return Leased([lease for lease in leases if lease.id not in known], 0.0, at=row["at"])
        return Leased(leases, at=row["at"], waited_us=row["waited_us"] if leases else [])

    async def _poll_limits(self, incarnation: int, rooms: dict[str, int], most: int, ranges: Ranges) -> Leased | None:
        """Poll by the function for tasks with limits; None where it finds none, or the other one has to be asked."""
        ((queue, room),) = rooms.items()
        most, visits, card = max(0, min(room, most)), self._limit_visits, self._cards.get(incarnation)
        rules = {} if card is None else card.limits
        row = await self._call(
            LEASE_LIMITED,
            incarnation,
            most,
            queue,
            limits.LEASE_BYTES,
            *(EVERYWHERE if ranges.is_full else (ranges.ranks_from, ranges.dues_from, ranges.ranks_to)),
            ranges.waits_from[0],
            visits.turns.get(queue),
            list(rules),
            [one.running for one in rules.values()],
            [one.starts for one in rules.values()],
        )
        leases = _leases(row, repeat(queue), row["of_keys"])
        visits.polled(len(leases), most, started=len(leases))
        if not leases:
            return None
        known = self._take(incarnation, row)
        self._marks.polled(ranges, row["took_s"], len(leases), most)
        visits.visited(row["visited"], len(leases), row["took_s"], left_over=most - len(leases))
        visits.turns[queue] = row["served_key"]
        self._limited.update(lease.id for lease in leases)
        if known:
            return Leased([lease for lease in leases if lease.id not in known], 0.0, at=row["at"])
        return Leased(leases, at=row["at"], waited_us=row["waited_us"], is_costly=True)

    async def _call(self, statement: str, incarnation: int, *values: Any) -> Any:
        """Call a function that leases. Raises `LeaseLost` if the worker was declared dead."""
        try:
            row = await self._lane.row(statement, incarnation, *values)
        except BaseException as error:
            # A cancellation as well: the server may have leased tasks without an answer.
            if not isinstance(error, EverpollError) or isinstance(error, StoreUnavailable):
                self._held_leases.doubt(incarnation)
            raise
        if row["is_lost"]:
            self._held_leases.sign_off(incarnation)
            raise LeaseLost(f"worker {incarnation:016x} was declared dead: sign on anew")
        return row

    def _take(self, incarnation: int, row: Any) -> Collection[int]:
        """Note these leases; return those that the worker held already."""
        return self._held_leases.take(incarnation, dict(zip(row["ids"] or (), row["sequences"] or (), strict=True)))

    @property
    def _is_settling(self) -> bool:
        return time.monotonic() - self._settled_at < SETTLING_S

    def _about_limits(self, incarnation: int, *, is_full: bool) -> tuple[list[Any], float | None]:
        """Return the arguments of this poll about limits, and the age from which on a task counts as aged."""
        visits, card = self._limit_visits, self._cards.get(incarnation)
        aging_s = card.aging_s if card is not None and visits.asks_aged(card.aging_s) else None
        if not visits.are_due(is_full=is_full, is_aged=aging_s is not None):
            return NO_LIMITS, aging_s
        rules = {} if card is None else card.limits
        return [
            True,
            list(visits.turns),
            list(visits.turns.values()),
            list(rules),
            [one.running for one in rules.values()],
            [one.starts for one in rules.values()],
            [one.per_s for one in rules.values()],
        ], aging_s

    def _remember_limits(self, row: Any, leases: list[Lease], most: int, aging_s: float | None) -> None:
        visits = self._limit_visits
        visits.polled(len(leases), most, started=row["started"])
        if aging_s is not None:
            visits.asked_aged(aging_s, found=row["has_aged"])
        if row["visited"] is not None:
            if aging_s is not None:
                visits.aged_after = row["aged_last"] or ""
            left_over = most - len(leases) if len(leases) == row["started"] else 0
            visits.visited(row["visited"], row["started"], row["limits_took_s"], left_over=left_over)
            visits.turns.update(zip(row["served_queues"] or (), row["served_keys"] or (), strict=True))
        if row["started"]:
            self._limited.update(lease.id for lease in leases if lease.limit_key is not None)

    def _answer(self, row: Any, ranges: Ranges, leases: list[Lease], most: int) -> Leased:
        next_due_s: float | None = row["next_due_s"]
        waited_us: list[float] = row["waited_us"] if leases else []
        is_costly = bool(row["started"])
        if row["is_cut"]:
            return Leased(leases, at=row["at"], waited_us=waited_us, is_costly=is_costly)
        if len(leases) < most and (row["has_more"] or not ranges.is_whole):
            # Due tasks are left: other transactions have them locked, or they were not visited.
            return Leased(leases, 0.0, at=row["at"], waited_us=waited_us, is_costly=is_costly)
        # In a run of full batches a marked poll may miss due tasks before the marks, so it never says that it has all.
        is_all = ranges.asks_waiting and len(leases) < most
        next_due_s = None if next_due_s is None else max(0.0, next_due_s)
        return Leased(leases, next_due_s, at=row["at"], is_all=is_all, waited_us=waited_us, is_costly=is_costly)

    def _remember(self, row: Any, ranges: Ranges, found: int, most: int) -> None:
        self._marks.polled(ranges, row["took_s"], found, most, is_run=not row["is_direct"])
        if row["mark_queues"]:
            self._marks.leased(zip(row["mark_queues"], row["mark_ranks"], row["mark_dues"], strict=True))
        if row["done_queues"]:
            self._marks.nothing_waits(zip(row["done_queues"], row["done_until"], strict=True))
        if row["made_queues"]:
            self._marks.made_ready(zip(row["made_queues"], row["made_from"], strict=True))

    async def _sweep_behind_marks(self, behind: SweepQuery) -> None:
        try:
            row = await self._sweeping.row(
                BEHIND, behind.wanted, behind.waits_from, behind.queues, behind.ranks, behind.dues
            )
        except Exception as error:  # noqa: BLE001 - a sweep is repeated
            logger.debug("could not search before the marks: %s", error)
            self._marks.sweep_failed()
            return
        found = zip(row["queues"] or (), row["ranks"] or (), row["dues"] or (), strict=True)
        if self._marks.swept(behind, row["took_s"], found, is_late=row["is_late"]):
            self._on_found()

    async def recover(self, incarnation: int) -> None:
        """Hand back the leases whose answers never reached the worker."""
        if self._held_leases.holds(incarnation) is not None:
            # The leases are read inside the call, when its turn has come: a lease under way may be answered before.
            await self._lane.call(
                lambda connection: connection.fetchrow(
                    RECOVER, incarnation, *(self._held_leases.holds(incarnation) or EMPTY)
                )
            )
            self._marks.forget()
        self._held_leases.settled_doubt(incarnation)

    def settled(self) -> None:
        """Note that settlements were written just now."""
        self._settled_at = time.monotonic()

    def reconnected(self) -> None:
        """Recover all workers now, not at their next poll: a worker without a free slot does not poll."""
        self._held_leases.doubt_all()
        if self._recovery is None or self._recovery.done():
            self._recovery = asyncio.get_running_loop().create_task(self._recover_all(), name="everpoll-recovery")

    async def _recover_all(self) -> None:
        for incarnation in self._held_leases.in_use():
            try:
                await self.recover(incarnation)
            except EverpollError as error:
                logger.debug(
                    "cannot find out what worker %016x holds: %s; its next poll tries again", incarnation, error
                )


def _each(leased: Leased) -> list[float]:
    """Return the waiting time of each task; it differs between the tasks of two polls."""
    waited_us, count = list(leased.waited_us), len(leased.leases)
    return waited_us * count if len(waited_us) == 1 else waited_us


def _leases(row: Any, in_queues: Iterable[str], of_keys: Iterable[str] | None = None) -> list[Lease]:
    """Return what the row has; `of_keys`: the key of a limit of each task, where all of them have one."""
    ids = row["ids"]
    if not ids:
        return []
    sequences = row["sequences"]
    # The attempt equals the sequence, unless an attempt was refunded: such a task has its own values in the second set.
    more = () if of_keys is None else (*USUAL, of_keys)
    leases = list(map(Lease, ids, sequences, sequences, row["names"], in_queues, row["args"], *more))
    if row["detailed_ids"]:
        columns = ("attempts", "memories", "keys", "rescues", "versions", "canceled", "limit_keys")
        details = zip(*(row[column] for column in columns), strict=True)
        detailed = dict(zip(row["detailed_ids"], details, strict=True))
        return [_whole(lease, *detailed[lease.id]) if lease.id in detailed else lease for lease in leases]
    return leases


def _whole(lease: Lease, attempt: int, *rest: Any) -> Lease:
    return Lease(lease.id, lease.sequence, attempt, lease.name, lease.queue, lease.args, *rest)
