"""MemoryStore: the contract in plain Python, small enough to be read as its definition.

Promises: the same behaviour as the databases, proven by the same suite. Every operation is one step under one lock,
so that the heartbeat's thread may call at any time. Nothing survives the process.
"""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

import msgspec

from everpoll.drivers.wake import OnWake
from everpoll.errors import BadInput, LeaseLost
from everpoll.policy import Clock
from everpoll.stores import limits
from everpoll.stores.contract import (
    LEASE_LIMIT,
    Again,
    Ended,
    Lease,
    Leased,
    NewTask,
    Settlement,
    WorkerCard,
)
from everpoll.stores.limits import checked_bytes, size_of
from everpoll.stores.lost_answers import was_settled
from everpoll.stores.memory.enqueueing import MemoryEnqueueing
from everpoll.stores.memory.examination import MemoryExaminer
from everpoll.stores.memory.figures import MemoryFigures
from everpoll.stores.memory.flows import MemoryFlows
from everpoll.stores.memory.lines import NEVER, Polling
from everpoll.stores.memory.operations import MemoryOperations
from everpoll.stores.memory.reading import MemoryReading
from everpoll.stores.memory.rescue import MemoryRescue
from everpoll.stores.memory.rows import TaskRow, WorkerRow
from everpoll.stores.operations import LogEntry
from everpoll.stores.task_events import canceled_event

if TYPE_CHECKING:
    from everpoll.stores.memory.health import MemoryHealth

NO_CONNECTIONS = "connection=: this app has its tasks in memory, which no transaction reaches: use SQLite or Postgres"


class MemoryStore(MemoryEnqueueing, MemoryReading, MemoryRescue, MemoryOperations, MemoryFigures, MemoryFlows):
    """Tasks in dictionaries."""

    has_push = True
    yield_to_thread = None

    def __init__(self, clock: Clock | None = None) -> None:
        super().__init__(clock)
        self._health: MemoryHealth | None = None

    @property
    def health(self) -> "MemoryHealth":
        """See the contract. Made when it is first used: most programs have no services."""
        if self._health is None:
            from everpoll.stores.memory.health import MemoryHealth  # noqa: PLC0415

            self._health = MemoryHealth(self._lock, lambda entry: self._feed.log(entry, self._now()))
        return self._health

    async def open(self, *, migrate: bool = True) -> None:
        """Do nothing: there is no connection."""

    async def close(self) -> None:
        """Do nothing: the tasks stay as long as the store object."""

    async def migrate(self) -> list[str]:
        """Do nothing: there is no schema."""
        return []

    async def enqueue_inside(self, tasks: Sequence[NewTask], *, anew: bool = False) -> NoReturn:
        """See the contract."""
        raise BadInput(NO_CONNECTIONS)

    async def complete_inside(self, incarnation: int, ended: Ended, *, anew: bool = False) -> NoReturn:
        """See the contract."""
        raise BadInput(NO_CONNECTIONS)

    async def is_complete(self, incarnation: int, lease: Lease) -> bool:
        """See the contract."""
        return False

    async def sign_on(self, card: WorkerCard, lease_s: float) -> None:
        """See the contract."""
        with self._lock:
            now = self._now()
            self._workers[card.incarnation] = WorkerRow(card, now, now, lease_s)

    async def sign_off(self, incarnation: int) -> None:
        """See the contract."""
        with self._lock:
            if (worker := self._workers.get(incarnation)) and worker.stopped_at is None:
                worker.stopped_at = self._now()

    async def lease(self, incarnation: int, rooms: dict[str, int], most: int) -> Leased:
        """See the contract."""
        with self._lock:
            worker = self._workers.get(incarnation)
            if worker is None or worker.stopped_at is not None:
                raise LeaseLost(f"worker {incarnation} was declared dead: sign on anew")
            polling = self._polling(worker)
            self._lines.promote(polling.now)
            rooms = {queue: room for queue, room in rooms.items() if queue not in self._pauses}
            most, left = min(most, LEASE_LIMIT), dict(rooms)
            leases: list[Lease] = []
            waited_us: list[float] = []
            taken, is_cut = 0, False
            while len(leases) < most and (row := self._lines.best(left, polling)):
                taken += size_of(row.new.args) + size_of(row.memory)
                if is_cut := bool(leases) and taken > limits.LEASE_BYTES:
                    break
                left[row.new.queue] -= 1
                self._lines.leased(row, polling)
                leases.append(self._lease(row, worker))
                waited_us.append((self._now() - row.due_at) * 1e6)
            is_all = len(leases) < most and not is_cut
            # Computed for the time of the poll: a task that has fallen due since then counts as waiting.
            next_due_s = self._lines.next_due_s(rooms, polling) if is_all else None
            return Leased(leases, next_due_s, at=self._now(), is_all=is_all, waited_us=waited_us)

    def _polling(self, worker: WorkerRow) -> Polling:
        now, aging_s = self._now(), worker.card.aging_s
        return Polling(now, worker.card.limits, NEVER if aging_s is None else now - aging_s)

    def _lease(self, row: TaskRow, worker: WorkerRow) -> Lease:
        now = self._now()
        row.state, row.incarnation, row.worker = "running", worker.card.incarnation, worker.card.label
        row.sequence += 1
        row.attempt += 1
        row.started_at = now
        row.deadline_at = None if row.new.timeout_s is None else now + row.new.timeout_s
        return Lease(
            id=row.id,
            sequence=row.sequence,
            attempt=row.attempt,
            name=row.new.name,
            queue=row.new.queue,
            args=row.new.args,
            memory=row.memory,
            key=row.new.key,
            rescues=row.rescues,
            version=row.new.version,
            cancel_requested=row.cancel_requested,
            limit_key=None if row.new.limit is None else row.new.limit.key,
        )

    async def settle(self, incarnation: int, settlements: Sequence[Settlement]) -> set[int]:
        """See the contract."""
        again = [one for one in settlements if isinstance(one, Again)]
        checked_bytes([task for one in settlements for task in one.follow_ups])
        with self._lock:
            changed = any((row := self._index.live.get(one.id)) and row.changed_while_running for one in again)
            # Another task of the same limit may start now.
            limited = any((row := self._index.live.get(one.id)) and row.new.limit for one in settlements)
            lost = {one.id for one in settlements if not self._settle_with_follow_ups(incarnation, one)}
        delays_s = [one.delay_s or 0.0 for one in again]
        delays_s += [max(0.0, task.delay_s) for one in settlements for task in one.follow_ups]
        if delays_s or limited:
            is_now = changed or limited or any(one.set_aside for one in again)
            self._wake(due_s=0.0 if is_now else min(delays_s))
        return lost

    def _settle_with_follow_ups(self, incarnation: int, settlement: Settlement) -> bool:
        is_settled = self._settle(incarnation, settlement)
        # After the task has released its key, because a follow-up may have the same key.
        for task in settlement.follow_ups if is_settled else ():
            self._enqueue(task, max(0.0, task.delay_s))
        return is_settled

    def _settle(self, incarnation: int, settlement: Settlement) -> bool:
        row = self._index.held(incarnation, settlement.id, settlement.sequence)
        if row is None:
            return False
        now, by = self._now(), row.worker or ""
        row.remember(settlement.note, now, by)
        self._feed.add(row, now, settlement.events)
        if isinstance(settlement, Ended):
            row.result = settlement.result
            self._end(row, settlement.state)
            return True
        row.attempt -= settlement.refund
        if settlement.memory is not None:
            row.memory, row.rescues = settlement.memory, 0
        if row.cancel_requested and not row.is_asked:
            self._feed.add(row, now, [canceled_event()])
            self._end(row, "canceled")
        else:
            # A request that its lease did not carry makes it due at once.
            self._again(row, 0.0 if row.changed_while_running else settlement.delay_s)
            row.is_revised = False
        return True

    async def settled_before(self, incarnation: int, settlements: Sequence[Settlement]) -> set[int]:
        """See the contract."""
        infos = await self.info([one.id for one in settlements])
        return {one.id for one in settlements if was_settled(incarnation, one, infos.get(one.id))}

    async def progress(self, incarnation: int, lease: Lease, progress: str) -> bool:
        """See the contract."""
        with self._lock:
            if row := self._index.held(incarnation, lease.id, lease.sequence):
                row.progress = progress
            return row is not None

    async def note_loss(self, task_id: int, note: str) -> None:
        """See the contract."""
        with self._lock:
            self._losses[task_id].append({"at": self._now(), **msgspec.json.decode(note)})

    async def log(self, entries: Sequence[LogEntry]) -> None:
        """See the contract."""
        with self._lock:
            for entry in entries:
                self._feed.log(entry, self._now())

    def examiner(self) -> MemoryExaminer:
        """See the contract."""
        return MemoryExaminer(self)

    async def prune(self, older_than_s: float) -> int:
        """See the contract."""
        with self._lock:
            oldest = self._now() - older_than_s
            gone = [row for row in self._index.history.values() if (row.ended_at or 0.0) < oldest]
            for row in gone:
                self._index.forget(row)
                self._losses.pop(row.id, None)
                self._members.pop(row.id, None)
            self._feed.drop(oldest)
            self._drop_figures()
            self._lines.starts.forget(self._now())
            return len(gone)

    async def listen(self, on_wake: OnWake) -> None:
        """See the contract."""
        self._listeners.append((asyncio.get_running_loop(), on_wake))

    async def unlisten(self, on_wake: OnWake) -> None:
        """See the contract."""
        self._listeners = [one for one in self._listeners if one[1] != on_wake]

    async def back_off(self, delay_s: float) -> None:
        """See the contract. A store in memory is never away."""
        await asyncio.sleep(delay_s)

    def heartbeat_connection(self) -> "MemoryHeartbeatConnection":
        """See the contract."""
        return MemoryHeartbeatConnection(self)


class MemoryHeartbeatConnection:
    """The heartbeat's calls to the store, whose lock makes them safe from any thread."""

    def __init__(self, store: MemoryStore) -> None:
        self.beat = store.beat
        self.rescue = store.rescue
        self.publish = store.publish

    def close(self) -> None:
        """Do nothing: there is no connection."""
