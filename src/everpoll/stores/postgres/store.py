"""PostgresStore: the contract on one database, for a fleet.

    poller ────▶ leasing ───┐
    settler ───▶ settling ──┤
    callers ───▶ enqueueing ┼──▶ schema `everpoll`: tasks, history (a partition a day), events, workers, losses
    server ────▶ reading ───┤
    heartbeat ─▶ beats ─────┤      each arrow is a lane; all but the heartbeat's share a few connections
    listener ◀── NOTIFY ────┘

Promises: what `stores/contract.py` does, in READ COMMITTED, by the database's clock, with nothing in any session that
a transaction pooler would lose. At most `connections` connections: the heartbeat's own and those that the lanes share.
A process that only enqueues has one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from everpoll.drivers.callers import PostgresWork
from everpoll.drivers.postgres.address import read_address
from everpoll.drivers.postgres.connections import Connections
from everpoll.drivers.postgres.connector import Connector
from everpoll.drivers.postgres.lane import Lane
from everpoll.drivers.postgres.listener import Listener
from everpoll.drivers.wake import OnWake
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
from everpoll.stores.figures import PublishedLoops, SeriesOf, SeriesPoint, steps_of
from everpoll.stores.flows import FlowTask
from everpoll.stores.limits import check_queue
from everpoll.stores.lost_answers import was_settled
from everpoll.stores.operations import Deleted, LogEntry, Pause, Retried, Revision
from everpoll.stores.postgres import (
    canceling,
    ended_tasks,
    enqueueing,
    feed,
    figures,
    flows,
    listing,
    own_transactions,
    pausing,
    reading,
    retention,
    revising,
    schema,
)
from everpoll.stores.postgres.examination import PostgresExaminer
from everpoll.stores.postgres.heartbeat_connection import PostgresHeartbeatConnection
from everpoll.stores.postgres.held_leases import HeldLeases
from everpoll.stores.postgres.leasing import Leasing
from everpoll.stores.postgres.marks import Marks
from everpoll.stores.postgres.notify import CHANNEL, Notifier
from everpoll.stores.postgres.repeats import repeated
from everpoll.stores.postgres.waking import Waking
from everpoll.stores.postgres.workers import Workers
from everpoll.stores.task_search import checked

if TYPE_CHECKING:
    from everpoll.stores.postgres.health import PostgresHealth

LANES = 4
PROGRESS = """update everpoll.tasks set progress = $4
    where id = $1 and owner = $2 and sequence = $3 and is_leased returning 1"""
NOTE_LOSS = "insert into everpoll.losses (task_id, note) values ($1, $2)"


class PostgresStore:
    """Tasks in Postgres."""

    beats_in_loop = False
    yield_to_thread = None

    def __init__(self, url: str) -> None:
        connector = Connector(replace(read_address(url), schema="everpoll"))
        self._connector = connector
        self._connections = connections = Connections(connector, connector.address.connections - 1, self._ask_for_room)
        # Notifications come by the first, which settlements share. With enough for all, the lanes leave it alone.
        first = 1 if connections.size > LANES else 0
        self._settlements = Lane(connections, first, is_busy=True)
        self._entrance = Lane(connections, first + 2, is_busy=True)
        # A key may be that of a transaction that is open elsewhere: tasks without keys do not wait behind it.
        self._keyed_entrance = Lane(connections, first + 2, is_busy=True)
        self._queries = Lane(connections, first + 3, is_slow=True)
        self._calls = Lane(connections, first + 3)
        self._heartbeats = connections.heartbeats()
        self._first = first
        self._health: PostgresHealth | None = None
        self._place: str | None = None
        self._marks = Marks()
        self._held_leases = HeldLeases()
        self._leasing = Leasing(connections, first + 1, self._queries, self._marks, self._held_leases, self._wake)
        self._notifier = Notifier(self._entrance)
        self._listener = Listener(connections, self._calls, CHANNEL, self._leasing.reconnected)
        self._waking = waking = Waking(self._marks, self._notifier, self._listener)
        self._workers = Workers(connections, self._settlements, self._calls, self._leasing, self._held_leases, waking)

    @property
    def health(self) -> "PostgresHealth":
        """See the contract. Made when it is first used: most programs have no services."""
        if self._health is None:
            from everpoll.stores.postgres.health import PostgresHealth  # noqa: PLC0415

            # Looks are recorded beside settlements, and upkeep keeps no reader waiting.
            recording, upkeep = (
                Lane(self._connections, self._first + 2),
                Lane(self._connections, self._first + 3, is_slow=True),
            )
            self._health = PostgresHealth(recording, self._queries, upkeep)
        return self._health

    @property
    def has_push(self) -> bool:
        """See the contract."""
        return self._listener.has_push

    async def open(self, *, migrate: bool = True) -> None:
        """See the contract.

        By the lane that enqueues: a process that only enqueues needs no other, and its first job waits for none.
        """
        place = self._connector.address.place
        await self._entrance.call(schema.migrate if migrate else lambda connection: schema.check(connection, place))
        if not await self._entrance.call(schema.is_read_committed):
            self._connector.require_read_committed()
            await self._connections.close()

    async def close(self) -> None:
        """See the contract."""
        await self._listener.close()
        await self._leasing.close()
        await self._notifier.close()
        await self._connections.close()

    async def migrate(self) -> list[str]:
        """See the contract."""
        return await self._queries.call(schema.migrate)

    async def enqueue(self, tasks: Sequence[NewTask]) -> list[Enqueued]:
        """See the contract."""
        if not tasks:
            return []
        notify = self._notifier.carries_notification()
        entrance = self._keyed_entrance if any(task.key is not None for task in tasks) else self._entrance
        try:
            answers = await repeated(lambda: enqueueing.enqueue(entrance, tasks, notify))
        except BaseException:
            self._notifier.failed()
            raise
        self._waking.here(due_s=max(0.0, min(task.delay_s for task in tasks)))
        return answers

    async def enqueue_inside(self, tasks: Sequence[NewTask], *, anew: bool = False) -> PostgresWork[list[Enqueued]]:
        """See the contract."""
        return own_transactions.enqueue(await self._own_place(anew), tasks)

    async def complete_inside(self, incarnation: int, ended: Ended, *, anew: bool = False) -> PostgresWork[None]:
        """See the contract."""
        return own_transactions.complete(await self._own_place(anew), incarnation, ended)

    async def is_complete(self, incarnation: int, lease: Lease) -> bool:
        """See the contract."""
        return await self._workers.is_complete(incarnation, lease)

    async def _own_place(self, anew: bool) -> str:
        """Return what identifies this database; `anew`: query it again, since a restart of the server changes it."""
        if self._place is None or anew:
            self._place = await own_transactions.place(self._calls)
        return self._place

    async def enqueue_flow(self, flow: Sequence[FlowTask]) -> list[Enqueued]:
        """See the contract."""
        if not flow:
            return []
        entrance = self._keyed_entrance if any(one.task.key is not None for one in flow) else self._entrance
        answers = await repeated(lambda: flows.enqueue(entrance, flow))
        if answers[0].is_new:
            self._waking.everywhere()
        return answers

    async def members(self, task_id: int, after: int = 0, limit: int = 1000) -> list[TaskInfo]:
        """See the contract."""
        return await flows.members(self._queries, task_id, after, limit)

    async def member_counts(self, task_id: int) -> dict[TaskState, int]:
        """See the contract."""
        return await flows.member_counts(self._queries, task_id)

    async def sign_on(self, card: WorkerCard, lease_s: float) -> None:
        """See the contract."""
        await self._workers.sign_on(card, lease_s)

    async def sign_off(self, incarnation: int) -> None:
        """See the contract."""
        await self._workers.sign_off(incarnation)

    async def lease(self, incarnation: int, rooms: dict[str, int], most: int) -> Leased:
        """See the contract."""
        return await self._leasing.lease(incarnation, rooms, most)

    async def settle(self, incarnation: int, settlements: Sequence[Settlement]) -> set[int]:
        """See the contract."""
        return await self._workers.settle(incarnation, settlements)

    async def _ask_for_room(self) -> None:
        await self._listener.ask_for_room()

    def _wake(self) -> None:
        """Wake the workers of this process."""
        self._listener.wake()

    async def settled_before(self, incarnation: int, settlements: Sequence[Settlement]) -> set[int]:
        """See the contract."""
        infos = await self.info([one.id for one in settlements])
        return {one.id for one in settlements if was_settled(incarnation, one, infos.get(one.id))}

    async def progress(self, incarnation: int, lease: Lease, progress: str) -> bool:
        """See the contract."""
        return await self._calls.value(PROGRESS, lease.id, incarnation, lease.sequence, progress) is not None

    async def cancel(self, task_id: int, note: str) -> TaskState | None:
        """See the contract."""
        return self._canceled(await canceling.one(self._calls, task_id, note)).get(task_id)

    async def cancel_many(self, requests: Sequence[tuple[int, str]]) -> list[TaskState | None]:
        """See the contract."""
        states = self._canceled(await canceling.many(self._calls, requests)) if requests else {}
        return [states.get(task_id) for task_id, _ in requests]

    def _canceled(self, canceled: canceling.Canceled) -> dict[int, TaskState | None]:
        if canceled.is_changed:
            self._waking.out_of_order(cancel=True)  # a task that cancels itself is due now
        return canceled.states

    async def revise(self, revisions: Sequence[Revision]) -> list[int | None]:
        """See the contract."""
        revised = await revising.revise(self._calls, revisions)
        if revised.is_changed:
            self._waking.out_of_order(cancel=revised.is_running)
        return revised.ids

    async def retry(self, task_id: int, note: str) -> bool:
        """See the contract."""
        return (await self.retry_many([(task_id, note)]))[0].outcome == "queued"

    async def retry_many(self, requests: Sequence[tuple[int, str]]) -> list[Retried]:
        """See the contract."""
        answers = await ended_tasks.retry(self._calls, requests)
        if any(one.outcome == "queued" for one in answers):
            self._waking.everywhere()
        return answers

    async def delete(self, requests: Sequence[tuple[int, str]]) -> list[Deleted]:
        """See the contract."""
        return await ended_tasks.delete(self._calls, requests)

    async def note_loss(self, task_id: int, note: str) -> None:
        """See the contract."""
        await self._calls.row(NOTE_LOSS, task_id, note)

    async def losses(self, task_id: int) -> list[dict[str, Any]]:
        """See the contract."""
        return await reading.losses(self._queries, task_id)

    async def info(self, task_ids: Sequence[int]) -> dict[int, TaskInfo]:
        """See the contract."""
        return await reading.info(self._queries, task_ids)

    async def sizes(self, task_ids: Sequence[int]) -> dict[int, int]:
        """See the contract."""
        return await reading.sizes(self._queries, task_ids)

    async def ended(self, task_ids: Sequence[int]) -> dict[int, TaskInfo | None]:
        """See the contract."""
        return await reading.ended(self._queries, task_ids)

    async def find(self, kind: str, key: str) -> TaskInfo | None:
        """See the contract."""
        return await reading.find(self._queries, kind, key)

    async def last_results(self, kind: str, name: str, limit: int = 200) -> list[Any]:
        """See the contract."""
        return await reading.last_results(self._queries, kind, name, limit)

    async def pause(self, queue: str, reason: str, by: str) -> None:
        """See the contract."""
        check_queue(queue, reason, by)
        await pausing.pause(self._calls, queue, reason, by)

    async def resume(self, queue: str, by: str) -> bool:
        """See the contract."""
        check_queue(queue, "", by)
        is_resumed = await pausing.resume(self._calls, queue, by)
        if is_resumed:
            self._waking.out_of_order()
        return is_resumed

    async def paused(self) -> dict[str, Pause]:
        """See the contract."""
        return await pausing.paused(self._queries)

    async def release_set_aside(self, versions: Mapping[str, int], queues: Sequence[str], limit: int) -> int:
        """See the contract."""
        released = await revising.release_set_aside(self._calls, versions, queues, limit)
        if released:
            self._marks.forget()
        return released

    async def log(self, entries: Sequence[LogEntry]) -> None:
        """See the contract."""
        if entries:
            await feed.log(self._calls, entries)

    async def actions_of(self, task_id: int, limit: int = 1000) -> list[Event]:
        """See the contract."""
        return await feed.actions_of(self._queries, task_id, limit)

    async def task_events(self, task_id: int, after: int = 0, limit: int = 1000) -> list[Event]:
        """See the contract."""
        return await feed.of_task(self._queries, task_id, after, limit)

    async def events_of(self, after: Mapping[int, int], limit: int = 1000) -> list[Event]:
        """See the contract."""
        return await feed.of_tasks(self._queries, after, limit) if after else []

    async def events(self, after: str | None, limit: int = 1000) -> EventPage:
        """See the contract."""
        return await feed.page(self._queries, after, limit)

    async def tasks(self, wanted: TaskFilter, limit: int = 50, after: int | None = None) -> TaskPage:
        """See the contract."""
        return await listing.tasks(self._queries, checked(wanted), limit, after)

    async def live(self, kind: str, limit: int = 1_000, after: int | None = None) -> list[LiveTask]:
        """See the contract."""
        return await reading.live(self._queries, kind, limit, after)

    async def workers(self) -> list[WorkerInfo]:
        """See the contract."""
        return await reading.workers(self._queries)

    async def queues(self) -> list[QueueInfo]:
        """See the contract."""
        return await reading.queues(self._queries)

    def examiner(self) -> PostgresExaminer:
        """See the contract."""
        return PostgresExaminer(self._connector.address)

    async def limit(self, key: str) -> LimitInfo:
        """See the contract."""
        return await reading.at_key(self._queries, key)

    async def series(
        self, of: SeriesOf, from_at: float, to_at: float, step_s: int, queue: str | None = None, name: str | None = None
    ) -> list[SeriesPoint]:
        """See the contract."""
        return await figures.series(self._queries, steps_of(of, from_at, to_at, step_s), queue, name)

    async def published_loops(self) -> list[PublishedLoops]:
        """See the contract."""
        return await figures.published_loops(self._queries)

    async def prune(self, older_than_s: float) -> int:
        """See the contract."""
        return await retention.prune(self._queries, older_than_s)

    async def listen(self, on_wake: OnWake) -> None:
        """See the contract."""
        await self._listener.add(on_wake)

    async def unlisten(self, on_wake: OnWake) -> None:
        """See the contract."""
        await self._listener.remove(on_wake)

    async def back_off(self, delay_s: float) -> None:
        """See the contract."""
        await self._connector.reach.wait(delay_s)

    def heartbeat_connection(self) -> PostgresHeartbeatConnection:
        """See the contract."""
        return PostgresHeartbeatConnection(self._heartbeats, self._marks.forget)
