"""Facts for the doctor from a store in memory: only about the fleet, because there is no database."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from everpoll.stores.contract import DEADLINE_GRACE_S, TaskFilter
from everpoll.stores.examination import (
    KEYS_SHOWN,
    LISTED_LIMIT,
    ClockFacts,
    DueTasks,
    Facts,
    Held,
    IndexFacts,
    LeaseFacts,
    SchemaFacts,
    TransactionFacts,
)
from everpoll.stores.memory.rows import TaskRow
from everpoll.stores.set_aside import is_set_aside

if TYPE_CHECKING:
    from everpoll.stores.memory.store import MemoryStore


class MemoryExaminer:
    """Gathers facts about one store."""

    def __init__(self, store: "MemoryStore") -> None:
        self._store = store

    async def examine(self, transaction_age_s: float, listed_kind: str) -> Facts:
        """See the contract."""
        rows, now = self._store.live_rows()
        listed = await self._store.tasks(TaskFilter(kind=listed_kind, indexed=True), LISTED_LIMIT)
        return Facts(
            place="this process",
            reached="memory",
            schema=SchemaFacts(),
            indexes=IndexFacts(there=0),
            clock=ClockFacts(ahead_s=0.0, of="database"),
            transactions=TransactionFacts(),
            leases=_leases(rows, now),
            workers=tuple(await self._store.workers()),
            queues=tuple(await self._store.queues()),
            due=_due(rows, now),
            listed=listed.tasks,
        )


def _leases(rows: Sequence[TaskRow], now: float) -> LeaseFacts:
    held = Counter(row.incarnation for row in rows if row.state == "running" and row.incarnation is not None)
    late = [now - row.deadline_at for row in rows if row.state == "running" and row.deadline_at is not None]
    overdue = [one for one in late if one > DEADLINE_GRACE_S]
    return LeaseFacts(
        held=tuple(Held(incarnation=one, tasks=tasks) for one, tasks in held.items()),
        overdue=len(overdue),
        most_overdue_s=max(overdue, default=0.0),
    )


def _due(rows: Sequence[TaskRow], now: float) -> tuple[DueTasks, ...]:
    groups: dict[tuple[str, str, str, int], list[TaskRow]] = {}
    for row in sorted(rows, key=_waits_since):
        if row.state == "queued" and _waits_since(row) <= now and not row.blockers:
            group = (row.new.queue, row.new.kind, row.new.name, row.new.version)
            groups.setdefault(group, []).append(row)
    return tuple(
        DueTasks(
            queue=queue,
            kind=kind,
            name=name,
            version=version,
            tasks=len(some),
            oldest_s=now - _waits_since(some[0]),
            keys=tuple([row.new.key for row in some if row.new.key is not None][:KEYS_SHOWN]),
        )
        for (queue, kind, name, version), some in sorted(groups.items())
    )


def _waits_since(row: TaskRow) -> float:
    """Return since when a task waits: since its due time, or, if it was set aside, since its enqueue."""
    return row.created_at if row.state == "queued" and is_set_aside(row.trail) else row.due_at
