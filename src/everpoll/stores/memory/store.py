"""MemoryStore: the contract in plain Python, small enough to be read as its definition.

Promises: the same behaviour as the databases, proven by the same suite. Every operation is one step under one lock,
so that the heartbeat's thread may come at any time. Never: anything that survives the process.
"""

import asyncio
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from everpoll.drivers.wake import OnWake
from everpoll.errors import BadInput, LeaseLost
from everpoll.policy import Clock
from everpoll.policy.liveness import Sighting
from everpoll.stores import limits
from everpoll.stores.contract import (
    COUNT_LIMIT,
    LEASE_LIMIT,
    RESCUE_LIMIT,
    TRAIL_LIMIT,
    Again,
    Beat,
    Ended,
    EndState,
    Enqueued,
    Event,
    EventPage,
    Lease,
    Leased,
    LimitInfo,
    LiveTask,
    NewTask,
    QueueInfo,
    Rescued,
    Settlement,
    TaskFilter,
    TaskInfo,
    TaskPage,
    WorkerCard,
    WorkerInfo,
)
from everpoll.stores.limits import checked_bytes, size_of
from everpoll.stores.lost_answers import was_settled
from everpoll.stores.memory.examination import MemoryExaminer
from everpoll.stores.memory.figures import MemoryFigures
from everpoll.stores.memory.flows import MemoryFlows
from everpoll.stores.memory.lines import Looking
from everpoll.stores.memory.operations import MemoryOperations
from everpoll.stores.memory.rows import TaskRow, WorkerRow, instant
from everpoll.stores.operations import LogEntry
from everpoll.stores.task_events import LOST_WORKER, OVERDUE, REPLACED, canceled_event, rescued_event
from everpoll.stores.task_search import checked

WORKERS_SHOWN_S = 86_400.0
NO_CONNECTIONS = "connection=: this app has its tasks in memory, which no transaction reaches: use SQLite or Postgres"
_unique = attrgetter("unique")


if TYPE_CHECKING:
    from everpoll.stores.memory.health import MemoryHealth


class MemoryStore(MemoryOperations, MemoryFigures, MemoryFlows):
    """Tasks in dictionaries."""

    has_push = True
    hand_over = None

    def __init__(self, clock: Clock | None = None) -> None:
        super().__init__(clock)
        self._health: MemoryHealth | None = None

    @property
    def health(self) -> "MemoryHealth":
        """See the contract. Made when it is first used: most programs have no services."""
        if self._health is None:
            from everpoll.stores.memory.health import MemoryHealth  # noqa: PLC0415

            self._health = MemoryHealth(self._lock)
        return self._health

    async def open(self, *, migrate: bool = True) -> None:
        """Nothing to open."""

    async def close(self) -> None:
        """Nothing to close: the tasks stay for as long as the store does."""

    async def migrate(self) -> list[str]:
        """There is no schema."""
        return []

    async def enqueue(self, tasks: Sequence[NewTask]) -> list[Enqueued]:
        """See the contract."""
        checked_bytes(tasks)
        delays_s = [max(0.0, task.delay_s) for task in tasks]
        with self._lock:
            answers = self._rejected(tasks) or [
                self._enqueue(task, delay_s) for task, delay_s in zip(tasks, delays_s, strict=True)
            ]
        self._wake(due_s=min(delays_s, default=0.0))
        return answers

    def _rejected(self, tasks: Sequence[NewTask]) -> list[Enqueued] | None:
        """The answers to a call of which nothing is enqueued, since one of its tasks rejects; None: none does."""
        if not any(map(_unique, tasks)):
            return None
        known = [self._known(task) if task.unique and task.unique.together else None for task in tasks]
        if not any(known):
            return None
        return [Enqueued(0 if row is None else row.id, is_new=False) for row in known]

    def _known(self, task: NewTask) -> TaskRow | None:
        """The task that has the key of this one, or had it and still answers."""
        row = self._index.of_key(task.kind, task.key)
        if row is None and (task.once or (task.unique is not None and task.unique.for_s is not None)):
            row = self._index.last_of_key(task.kind, task.key)
            if row is not None and not task.once:
                assert task.unique is not None, "asked above"
                return row if row.created_at > self._now() - (task.unique.for_s or 0.0) else None
        return row

    def _enqueue(self, task: NewTask, delay_s: float) -> Enqueued:
        known = None if task.key is None else self._known(task)
        if known is not None and known.ended_at is None and task.unique and task.unique.on_conflict == "replace":
            if known.state == "queued" and known.takes is None:
                self._replace(known, task, delay_s)
                return Enqueued(known.id, is_new=False)
            self._index.let_go_of_key(known)
            known = None
        if known is not None:
            return Enqueued(known.id, is_new=False)
        now = self._now()
        self._last_id += 1
        row = TaskRow(self._last_id, task, now, now + delay_s, memory=task.memory)
        self._index.put(row)
        self._lines.add(row, now)
        self._feed.add(row, now, task.events)
        return Enqueued(row.id)

    def _replace(self, row: TaskRow, task: NewTask, delay_s: float) -> None:
        """Make a queued row what it would be if it were enqueued now."""
        now = self._now()
        # Another due time than before, or its old place in the line would pass for the new one.
        due_at = now + delay_s if now + delay_s != row.due_at else math.nextafter(row.due_at, math.inf)
        row.new = msgspec.structs.replace(task, indexed=task.indexed or row.new.indexed)
        row.due_at, row.memory, row.attempt, row.rescues = due_at, task.memory, 0, 0
        row.progress = row.started_at = row.error_type = None
        if row.trail and row.trail[-1].get("what") == "replaced":
            del row.trail[-1]
        row.remember(REPLACED, now, "")
        self._lines.add(row, now)

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
            looking = self._looking(worker)
            self._lines.promote(looking.now)
            rooms = {queue: room for queue, room in rooms.items() if queue not in self._pauses}
            most, left = min(most, LEASE_LIMIT), dict(rooms)
            leases: list[Lease] = []
            waited_us: list[float] = []
            taken, is_cut = 0, False
            while len(leases) < most and (row := self._lines.best(left, looking)):
                taken += size_of(row.new.args) + size_of(row.memory)
                if is_cut := bool(leases) and taken > limits.LEASE_BYTES:
                    break
                left[row.new.queue] -= 1
                self._lines.leased(row, looking)
                leases.append(self._lease(row, worker))
                waited_us.append((self._now() - row.due_at) * 1e6)
            now = self._now()
            is_all = len(leases) < most and not is_cut
            next_due_s = self._lines.next_due_s(rooms, self._looking(worker)) if is_all else None
            return Leased(leases, next_due_s, at=now, is_all=is_all, waited_us=waited_us)

    def _looking(self, worker: WorkerRow) -> Looking:
        now, aging_s = self._now(), worker.card.aging_s
        return Looking(now, worker.card.limits, float("-inf") if aging_s is None else now - aging_s)

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
            unheard = any((row := self._index.live.get(one.id)) and row.is_unheard for one in again)
            # Another task of the same limit may start now.
            limited = any((row := self._index.live.get(one.id)) and row.new.limit for one in settlements)
            lost = {one.id for one in settlements if not self._settle_with_follow_ups(incarnation, one)}
        delays_s = [one.delay_s or 0.0 for one in again]
        delays_s += [max(0.0, task.delay_s) for one in settlements for task in one.follow_ups]
        if delays_s or limited:
            is_now = unheard or limited or any(one.set_aside for one in again)
            self._wake(due_s=0.0 if is_now else min(delays_s))
        return lost

    def _settle_with_follow_ups(self, incarnation: int, settlement: Settlement) -> bool:
        is_settled = self._settle(incarnation, settlement)
        # After the task itself has let go of its key: a follow-up may have the same.
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
            # A request that it could not see yet makes it due at once.
            self._again(row, 0.0 if row.is_unheard else settlement.delay_s)
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

    async def losses(self, task_id: int) -> list[dict[str, Any]]:
        """See the contract."""
        with self._lock:
            return list(self._losses.get(task_id, ()))

    async def info(self, task_ids: Sequence[int]) -> dict[int, TaskInfo]:
        """See the contract."""
        with self._lock:
            return {task_id: row.shown() for task_id in task_ids if (row := self._index.get(task_id))}

    async def ended(self, task_ids: Sequence[int]) -> dict[int, TaskInfo]:
        """See the contract."""
        with self._lock:
            return {task_id: row.shown() for task_id in task_ids if (row := self._index.history.get(task_id))}

    async def find(self, kind: str, key: str) -> TaskInfo | None:
        """See the contract."""
        with self._lock:
            row = self._index.of_key(kind, key) or self._index.last_of_key(kind, key)
            return None if row is None else row.shown()

    async def last_results(self, kind: str, name: str, limit: int = 200) -> list[Any]:
        """See the contract."""
        with self._lock:
            ended = reversed(self._index.history.values())
            rows = (row for row in ended if row.new.indexed and (row.new.kind, row.new.name) == (kind, name))
            results = (row.result for row in rows if row.result is not None and row.result != "null")
            return [msgspec.json.decode(result) for result in islice(results, limit)]

    async def log(self, entries: Sequence[LogEntry]) -> None:
        """See the contract."""
        with self._lock:
            for entry in entries:
                self._feed.log(entry, self._now())

    async def actions_of(self, task_id: int, limit: int = 1000) -> list[Event]:
        """See the contract."""
        with self._lock:
            return self._feed.actions_of(task_id, limit)

    async def task_events(self, task_id: int, after: int = 0, limit: int = 1000) -> list[Event]:
        """See the contract."""
        with self._lock:
            return self._feed.of_task(task_id, after, limit)

    async def events_of(self, after: Mapping[int, int], limit: int = 1000) -> list[Event]:
        """See the contract."""
        with self._lock:
            return [event for task_id in sorted(after) for event in self._feed.of_task(task_id, after[task_id], limit)]

    async def events(self, after: str | None, limit: int = 1000) -> EventPage:
        """See the contract."""
        with self._lock:
            return self._feed.page(after, limit)

    async def tasks(self, wanted: TaskFilter, limit: int = 50, after: int | None = None) -> TaskPage:
        """See the contract."""
        with self._lock:
            page = [row.shown() for row in islice(self._index.newest_first(checked(wanted), after), limit + 1)]
            is_more = len(page) > limit
            return TaskPage(tuple(page[:limit]), page[limit - 1].id if is_more else None)

    async def live(self, kind: str, limit: int = 1_000, after: int | None = None) -> list[LiveTask]:
        """See the contract."""
        with self._lock:
            wanted = TaskFilter(kind=kind, indexed=True)
            rows = (row for row in self._index.newest_first(wanted, after) if row.ended_at is None)
            return [
                LiveTask(row.id, row.new.key, row.cancel_requested, row.new.args, row.memory)
                for row in islice(rows, limit)
            ]

    async def workers(self) -> list[WorkerInfo]:
        """See the contract."""
        with self._lock:
            now = self._now()
            running = [row.incarnation for row in self._index.live.values() if row.state == "running"]
            return [
                worker.shown(now, running.count(worker.card.incarnation))
                for worker in self._workers.values()
                if worker.stopped_at is None or worker.stopped_at > now - WORKERS_SHOWN_S
            ]

    def examiner(self) -> MemoryExaminer:
        """See the contract."""
        return MemoryExaminer(self)

    def live_rows(self) -> tuple[list[TaskRow], float]:
        """The live rows, for an examination, and the store's clock."""
        with self._lock:
            return list(self._index.live.values()), self._now()

    async def queues(self) -> list[QueueInfo]:
        """See the contract."""
        with self._lock:
            now = self._now()
            counts: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
            dues: defaultdict[str, list[float]] = defaultdict(list)
            for row in self._index.live.values():
                if row.blockers:
                    continue
                is_ready = row.state == "queued" and row.due_at <= now
                is_limited = is_ready and row.new.limit is not None
                place = 3 if is_limited else 2 if row.state == "running" else row.due_at > now
                counts[row.new.queue][place] += 1
                if is_ready and not is_limited:
                    dues[row.new.queue].append(row.due_at)
            return [
                QueueInfo(
                    queue=queue,
                    **dict(zip(("ready", "waiting", "running", "limited"), _capped(counts[queue]), strict=True)),
                    oldest_due_at=instant(min(dues[queue])) if dues[queue] else None,
                    paused=self._pauses.get(queue),
                )
                for queue in sorted({*counts, *self._pauses})
            ]

    async def limit(self, key: str) -> LimitInfo:
        """See the contract."""
        with self._lock:
            now = self._now()
            rows = [row for row in self._index.live.values() if row.new.limit and row.new.limit.key == key]
            running = [row.started_at or now for row in rows if row.state == "running"]
            return LimitInfo(
                key=key,
                waiting=sum(row.state == "queued" and row.due_at <= now and not row.blockers for row in rows),
                running=len(running),
                oldest_started_at=instant(min(running)) if running else None,
                starts=tuple((instant(span.ended), span.starts) for span in self._lines.starts.spans.get(key, ())),
            )

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
        """See the contract. It is never away."""
        await asyncio.sleep(delay_s)

    def pulse(self) -> "MemoryPulse":
        """See the contract."""
        return MemoryPulse(self)

    def beat(self, incarnation: int, lease_s: float, running: Sequence[int]) -> Beat:
        """See the contract."""
        with self._lock:
            worker = self._workers.get(incarnation)
            if worker is None or worker.stopped_at is not None:
                return Beat(is_alive=False)
            worker.beat_at, worker.lease_s = self._now(), lease_s
            worker.beats += 1
            return Beat(
                is_alive=True,
                canceled=tuple(one for one in running if (row := self._index.live.get(one)) and row.cancel_requested),
                others=tuple(
                    Sighting(other, row.beats, row.lease_s)
                    for other, row in self._workers.items()
                    if other != incarnation and row.stopped_at is None
                ),
                has_leftovers=any(self._is_held_by_stopped(row) for row in self._index.live.values()),
            )

    def rescue(self, incarnation: int, dead: Sequence[tuple[int, int]], overdue: Sequence[tuple[int, int]]) -> Rescued:
        """See the contract."""
        with self._lock:
            now = self._now()
            for other, beats in dead:
                worker = self._workers.get(other)
                if worker is not None and worker.stopped_at is None and worker.beats == beats:
                    worker.stopped_at = now
            late = [self._index.held(incarnation, *fence) for fence in overdue]
            lost = [row for row in self._index.live.values() if self._is_held_by_stopped(row)]
            lost += [row for row in late if row is not None]
            for row in lost:
                self._take_back(row, now)
            return Rescued(len(lost), tuple(row.id for row in lost if row.id not in self._index.live))

    def _is_held_by_stopped(self, row: TaskRow) -> bool:
        worker = self._workers.get(row.incarnation or 0)
        return row.state == "running" and (worker is None or worker.stopped_at is not None)

    def _take_back(self, row: TaskRow, now: float) -> None:
        worker = self._workers.get(row.incarnation or 0)
        dead = worker is None or worker.stopped_at is not None
        row.rescues += 1
        row.attempt -= 1
        poison = row.rescues >= RESCUE_LIMIT
        is_canceled = row.cancel_requested and not row.is_asked
        why = LOST_WORKER if dead else OVERDUE
        if is_canceled or poison:
            what: EndState = "canceled" if is_canceled else "failed"
            self._feed.add(row, now, [rescued_event(what, why, row.rescues)])
        row.trail.append(
            {
                "at": now,
                "by": "rescue",
                "what": "failed" if poison else "rescue",
                "why": why,
                "worker": row.worker,
                "started_at": row.started_at,
                "rescues": row.rescues,
            }
        )
        del row.trail[:-TRAIL_LIMIT]
        if is_canceled:
            self._end(row, "canceled")
        elif poison:
            self._end(row, "failed")
        else:
            self._again(row, None)


class MemoryPulse:
    """The heartbeat's way in: the store's lock makes it safe from any thread."""

    def __init__(self, store: MemoryStore) -> None:
        self.beat = store.beat
        self.rescue = store.rescue
        self.publish = store.publish

    def close(self) -> None:
        """There is no connection."""


def _capped(counts: list[int]) -> list[int]:
    return [min(count, COUNT_LIMIT) for count in counts]
