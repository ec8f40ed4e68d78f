"""SqliteStore: the contract on one file, for the processes of one machine.

    callers ──▶ writer: one thread, group commit ──┐
    callers ──▶ reader: one thread, snapshots ─────┼──▶ the file
    heartbeat ─▶ a connection of its own ──────────┘

Promises: what `stores/contract.py` does. With `synchronous=full`, the default, an acknowledged task survives a power
cut; with `?synchronous=normal` it survives the process, but a power cut may undo the last moments.
The tables are called `everpoll_…` and may live in the user's own database file, which then is in WAL mode.
Never: blocks the event loop on the file.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from everpoll.drivers.callers import SqliteWork
from everpoll.drivers.sqlite.address import read_address
from everpoll.drivers.sqlite.connection import PATIENCE_S, Connection
from everpoll.drivers.sqlite.lane import Op
from everpoll.drivers.wake import OnWake
from everpoll.errors import LeaseLost
from everpoll.policy import Clock
from everpoll.stores.contract import (
    Ended,
    Enqueued,
    Event,
    EventPage,
    Lease,
    Leased,
    LimitInfo,
    LiveTask,
    NewTask,
    QueueInfo,
    Settlement,
    TaskFilter,
    TaskInfo,
    TaskPage,
    TaskState,
    WorkerCard,
    WorkerInfo,
)
from everpoll.stores.feed_positions import place_in_feed
from everpoll.stores.figures import PublishedLoops, SeriesOf, SeriesPoint, steps_of
from everpoll.stores.flows import FlowTask
from everpoll.stores.limits import check_queue
from everpoll.stores.lost_answers import was_settled
from everpoll.stores.operations import BATCH_LIMIT, Deleted, LogEntry, Pause, Retried, Revision
from everpoll.stores.sqlite import (
    enqueueing,
    feed,
    figures,
    flows,
    limited,
    listing,
    pausing,
    reading,
    retention,
    settling,
    steering,
)
from everpoll.stores.sqlite.clock import Instants
from everpoll.stores.sqlite.examination import SqliteExaminer
from everpoll.stores.sqlite.heartbeat_connection import SqliteHeartbeatConnection
from everpoll.stores.sqlite.lanes import Lanes
from everpoll.stores.sqlite.schema import prepare
from everpoll.stores.sqlite.workers import Workers
from everpoll.stores.task_search import checked

if TYPE_CHECKING:
    from everpoll.stores.sqlite.health import SqliteHealth

T = TypeVar("T")

LARGEST_ID = 2**63 - 1


class SqliteStore:
    """Tasks in a file."""

    has_push = True
    beats_in_loop = False

    def __init__(self, url: str, *, clock: Clock | None = None, patience_s: float = PATIENCE_S) -> None:
        self._address = read_address(url)
        self._instants = Instants(clock)
        self._patience_s = patience_s
        self._lanes = Lanes(self._address, patience_s)
        self._write, self._read = self._lanes.write, self._lanes.read
        self._workers = Workers(self._lanes, self._instants)
        self._health: SqliteHealth | None = None

    @property
    def health(self) -> "SqliteHealth":
        """See the contract. Made when it is first used: most programs have no services."""
        if self._health is None:
            from everpoll.stores.sqlite.health import SqliteHealth  # noqa: PLC0415

            self._health = SqliteHealth(self._write, self._read, self._now)
        return self._health

    async def open(self, *, migrate: bool = True) -> None:
        """See the contract."""
        await self._lanes.open(migrate=migrate)

    async def close(self) -> None:
        """See the contract."""
        await self._lanes.close()

    async def migrate(self) -> list[str]:
        """See the contract."""
        return await asyncio.to_thread(prepare, self._address, self._patience_s, migrate=True)

    async def enqueue(self, tasks: Sequence[NewTask]) -> list[Enqueued]:
        """See the contract."""
        if not tasks:
            return []
        call = enqueueing.call_of(tasks)
        due_s = min(row.delay_us for row in call.rows) / 1e6
        return await self._write(
            Op(lambda con: enqueueing.enqueue(con, self._now(), call), wakes=True, due_s=due_s, size=call.size)
        )

    async def enqueue_inside(self, tasks: Sequence[NewTask], *, anew: bool = False) -> SqliteWork[list[Enqueued]]:
        """See the contract."""
        call = enqueueing.call_of(tasks)
        return SqliteWork(self._address.path, lambda con: enqueueing.enqueue(con, self._now(), call) if tasks else [])

    async def complete_inside(self, incarnation: int, ended: Ended, *, anew: bool = False) -> SqliteWork[None]:
        """See the contract."""

        def complete(con: Connection) -> None:
            if settling.settle(con, self._now(), settling.Batch(incarnation, [ended])):
                raise LeaseLost(f"task {ended.id}: its lease was lost, and its transaction was rolled back")

        return SqliteWork(self._address.path, complete)

    async def is_complete(self, incarnation: int, lease: Lease) -> bool:
        """See the contract."""
        return await self._workers.is_complete(incarnation, lease)

    async def enqueue_flow(self, flow: Sequence[FlowTask]) -> list[Enqueued]:
        """See the contract."""
        if not flow:
            return []
        call = flows.call_of(flow)
        return await self._write(Op(lambda con: flows.enqueue(con, self._now(), call), wakes=True, size=call.call.size))

    async def members(self, task_id: int, after: int = 0, limit: int = 1000) -> list[TaskInfo]:
        """See the contract."""
        if not _is_possible(task_id):
            return []
        return await self._read(lambda con: flows.members(con, task_id, after, limit))

    async def member_counts(self, task_id: int) -> dict[TaskState, int]:
        """See the contract."""
        return await self._read(lambda con: flows.member_counts(con, task_id)) if _is_possible(task_id) else {}

    async def sign_on(self, card: WorkerCard, lease_s: float) -> None:
        """See the contract."""
        await self._workers.sign_on(card, lease_s)

    async def sign_off(self, incarnation: int) -> None:
        """See the contract."""
        await self._workers.sign_off(incarnation)

    async def lease(self, incarnation: int, rooms: dict[str, int], most: int) -> Leased:
        """See the contract. If the caller is canceled meanwhile, the leased tasks are handed back."""
        return await self._workers.lease(incarnation, rooms, most)

    async def settle(self, incarnation: int, settlements: Sequence[Settlement]) -> set[int]:
        """See the contract."""
        return await self._workers.settle(incarnation, settlements)

    async def settled_before(self, incarnation: int, settlements: Sequence[Settlement]) -> set[int]:
        """See the contract."""
        infos = await self.info([one.id for one in settlements])
        return {one.id for one in settlements if was_settled(incarnation, one, infos.get(one.id))}

    async def progress(self, incarnation: int, lease: Lease, progress: str) -> bool:
        """See the contract."""
        return await self._write(
            Op(lambda con: steering.progress(con, incarnation, lease.id, lease.sequence, progress))
        )

    async def cancel(self, task_id: int, note: str) -> TaskState | None:
        """See the contract."""
        if not _is_possible(task_id):
            return None
        return await self._write(
            Op(lambda con: steering.cancel(con, self._now(), task_id, note), wakes=True, cancel=True)
        )

    async def cancel_many(self, requests: Sequence[tuple[int, str]]) -> list[TaskState | None]:
        """See the contract."""
        possible = [one for one in requests if _is_possible(one[0])]
        if not possible:
            return [None] * len(requests)
        states = await self._write(
            Op(lambda con: steering.cancel_many(con, self._now(), possible), wakes=True, cancel=True)
        )
        return [states.get(task_id) for task_id, _ in requests]

    async def revise(self, revisions: Sequence[Revision]) -> list[int | None]:
        """See the contract."""
        if not revisions:
            return []
        return await self._write(Op(lambda con: steering.revise(con, self._now(), revisions), wakes=True))

    async def retry(self, task_id: int, note: str) -> bool:
        """See the contract."""
        return (await self.retry_many([(task_id, note)]))[0].outcome == "queued"

    async def retry_many(self, requests: Sequence[tuple[int, str]]) -> list[Retried]:
        """See the contract."""

        def retry(con: Connection, task_id: int, note: str) -> Retried:
            return steering.retry(con, self._now(), task_id, note)

        return await self._each(requests, retry, Retried("unknown"), wakes=True)

    async def delete(self, requests: Sequence[tuple[int, str]]) -> list[Deleted]:
        """See the contract."""

        def delete(con: Connection, task_id: int, note: str) -> Deleted:
            return steering.delete(con, self._now(), task_id, note)

        return await self._each(requests, delete, "unknown")

    async def _each(
        self,
        requests: Sequence[tuple[int, str]],
        act: Callable[[Connection, int, str], T],
        impossible: T,
        *,
        wakes: bool = False,
    ) -> list[T]:
        """Call `act` for each task, BATCH_LIMIT in one transaction; the answer for an invalid id is `impossible`."""

        def batch(con: Connection, some: Sequence[tuple[int, str]]) -> list[T]:
            return [act(con, *one) if _is_possible(one[0]) else impossible for one in some]

        answers: list[T] = []
        for start in range(0, len(requests), BATCH_LIMIT):
            some = requests[start : start + BATCH_LIMIT]
            answers += await self._write(Op(partial(batch, some=some), wakes=wakes))
        return answers

    async def note_loss(self, task_id: int, note: str) -> None:
        """See the contract."""
        await self._write(Op(lambda con: steering.note_loss(con, self._now(), task_id, note)))

    async def losses(self, task_id: int) -> list[dict[str, Any]]:
        """See the contract."""
        return await self._read(lambda con: reading.losses(con, task_id)) if _is_possible(task_id) else []

    async def info(self, task_ids: Sequence[int]) -> dict[int, TaskInfo]:
        """See the contract."""
        possible = [task_id for task_id in task_ids if _is_possible(task_id)]
        return await self._read(lambda con: reading.info(con, possible)) if possible else {}

    async def sizes(self, task_ids: Sequence[int]) -> dict[int, int]:
        """See the contract."""
        possible = [task_id for task_id in task_ids if _is_possible(task_id)]
        return await self._read(lambda con: reading.sizes(con, possible)) if possible else {}

    async def ended(self, task_ids: Sequence[int]) -> dict[int, TaskInfo | None]:
        """See the contract."""
        possible = [task_id for task_id in task_ids if _is_possible(task_id)]
        return await self._read(lambda con: reading.ended(con, possible)) if possible else {}

    async def find(self, kind: str, key: str) -> TaskInfo | None:
        """See the contract."""
        return await self._read(lambda con: reading.find(con, kind, key))

    async def last_results(self, kind: str, name: str, limit: int = 200) -> list[Any]:
        """See the contract."""
        return await self._read(lambda con: reading.last_results(con, kind, name, limit))

    async def pause(self, queue: str, reason: str, by: str) -> None:
        """See the contract."""
        check_queue(queue, reason, by)
        await self._write(Op(lambda con: pausing.pause(con, self._now(), queue, reason, by)))

    async def resume(self, queue: str, by: str) -> bool:
        """See the contract."""
        check_queue(queue, "", by)
        return await self._write(Op(lambda con: pausing.resume(con, self._now(), queue, by), wakes=True))

    async def paused(self) -> dict[str, Pause]:
        """See the contract."""
        return await self._read(pausing.paused)

    async def release_set_aside(self, versions: Mapping[str, int], queues: Sequence[str], limit: int) -> int:
        """See the contract."""
        return await self._write(
            Op(
                lambda con: steering.release_set_aside(con, versions, queues, limit),
                peek=lambda con: None if steering.has_set_aside(con) else 0,
            )
        )

    async def log(self, entries: Sequence[LogEntry]) -> None:
        """See the contract."""
        if entries:
            await self._write(Op(lambda con: feed.log(con, self._now(), entries)))

    async def actions_of(self, task_id: int, limit: int = 1000) -> list[Event]:
        """See the contract."""
        return await self._read(lambda con: feed.actions_of(con, task_id, limit)) if _is_possible(task_id) else []

    async def task_events(self, task_id: int, after: int = 0, limit: int = 1000) -> list[Event]:
        """See the contract."""
        return await self._read(lambda con: feed.of_task(con, task_id, after, limit)) if _is_possible(task_id) else []

    async def events_of(self, after: Mapping[int, int], limit: int = 1000) -> list[Event]:
        """See the contract."""
        possible = {task_id: seq for task_id, seq in after.items() if _is_possible(task_id)}
        return await self._read(lambda con: feed.of_tasks(con, possible, limit)) if possible else []

    async def events(self, after: str | None, limit: int = 1000) -> EventPage:
        """See the contract."""
        place = None if after is None else place_in_feed(after)
        return await self._read(lambda con: feed.page(con, place, limit))

    async def tasks(self, wanted: TaskFilter, limit: int = 50, after: int | None = None) -> TaskPage:
        """See the contract."""
        checked(wanted)
        return await self._read(lambda con: listing.tasks(con, wanted, limit, after))

    async def live(self, kind: str, limit: int = 1_000, after: int | None = None) -> list[LiveTask]:
        """See the contract."""
        return await self._read(lambda con: reading.live(con, kind, limit, after))

    async def workers(self) -> list[WorkerInfo]:
        """See the contract."""
        return await self._read(lambda con: reading.workers(con, self._now()))

    async def queues(self) -> list[QueueInfo]:
        """See the contract."""
        return await self._read(lambda con: reading.queues(con, self._now(), pausing.paused(con)))

    def examiner(self) -> SqliteExaminer:
        """See the contract."""
        return SqliteExaminer(self._address, lambda: self._now() / 1e6)

    async def limit(self, key: str) -> LimitInfo:
        """See the contract."""
        return await self._read(lambda con: limited.of_key(con, key))

    async def series(
        self, of: SeriesOf, from_at: float, to_at: float, step_s: int, queue: str | None = None, name: str | None = None
    ) -> list[SeriesPoint]:
        """See the contract."""
        steps = steps_of(of, from_at, to_at, step_s)
        return await self._read(lambda con: figures.series(con, steps, queue, name))

    async def published_loops(self) -> list[PublishedLoops]:
        """See the contract."""
        return await self._read(lambda con: figures.published_loops(con, self._now()))

    async def prune(self, older_than_s: float) -> int:
        """See the contract; here it counts rows. Others may write between its steps."""
        return await retention.prune(self._lanes, self._now, older_than_s)

    async def listen(self, on_wake: OnWake) -> None:
        """See the contract."""
        self._lanes.listen(on_wake)

    async def unlisten(self, on_wake: OnWake) -> None:
        """See the contract."""
        self._lanes.unlisten(on_wake)

    async def back_off(self, delay_s: float) -> None:
        """See the contract. For a file, each part of the process waits and tries alone, which costs little."""
        await asyncio.sleep(delay_s)

    def heartbeat_connection(self) -> SqliteHeartbeatConnection:
        """See the contract."""
        return SqliteHeartbeatConnection(self._address, self._patience_s, self._instants)

    def yield_to_thread(self) -> None:
        """See the contract."""
        self._lanes.yield_to_thread()

    def _now(self) -> int:
        return self._instants.wall_us()


def _is_possible(task_id: int) -> bool:
    """Return True if this can be an id of SQLite."""
    return 0 < task_id <= LARGEST_ID
