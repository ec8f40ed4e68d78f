"""The rows of the memory store, and how a live one is shown."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import msgspec

from everpoll.stores.contract import (
    TRAIL_LIMIT,
    NewTask,
    TaskFilter,
    TaskInfo,
    TaskState,
    WorkerCard,
    WorkerInfo,
)
from everpoll.stores.flows import Takes
from everpoll.stores.limits import size_of
from everpoll.stores.task_search import error_class, is_found, is_of_ends, needles


@dataclass(slots=True)
class TaskRow:
    """One task, live or ended. Instants are epoch seconds of the store's clock."""

    id: int
    new: NewTask
    created_at: float
    due_at: float
    sequence: int = 0
    attempt: int = 0
    rescues: int = 0
    state: TaskState = "queued"
    incarnation: int | None = None
    started_at: float | None = None
    deadline_at: float | None = None
    ended_at: float | None = None
    cancel_requested: bool = False
    is_revised: bool = False
    memory: str | None = None
    progress: str | None = None
    result: str | None = None
    worker: str | None = None
    error_type: str | None = None
    then_id: int | None = None
    has_told: bool = False
    takes: Takes | None = None
    blockers: int = 0
    trail: list[dict[str, Any]] = field(default_factory=list)

    @property
    def order(self) -> tuple[int, float, int]:
        """The sort key: priority, then due time, then id."""
        return (-self.new.priority, self.due_at, self.id)

    @property
    def is_asked(self) -> bool:
        """True if a cancel does not end it but only makes it due."""
        return self.new.cancels_itself

    @property
    def changed_while_running(self) -> bool:
        """True if a cancel or a revision came while it ran, which its lease does not carry."""
        is_asked = self.cancel_requested and self.started_at is not None and self.due_at > self.started_at
        return self.is_revised or is_asked

    def remember(self, note: str | None, at: float, by: str) -> None:
        """Add a decision to the trail."""
        if note is not None:
            self.error_type = error_class(note) or self.error_type
            self.trail.append({"at": at, "by": by, **msgspec.json.decode(note)})
            del self.trail[:-TRAIL_LIMIT]

    def matches(self, wanted: TaskFilter) -> bool:
        """Return whether the filter includes this task."""
        return (
            (wanted.state is None or self.state == wanted.state)
            and (wanted.queue is None or self.new.queue == wanted.queue)
            and (wanted.name is None or self.new.name == wanted.name)
            and (wanted.key_start is None or (self.new.key or "").startswith(wanted.key_start))
            and (wanted.kind is None or self.new.kind == wanted.kind)
            and (self.new.indexed or not wanted.indexed)
            and (wanted.error is None or self.error_type == wanted.error)
            and (not wanted.is_retrying or (self.state == "queued" and self.error_type is not None))
            and (wanted.since is None or self.created_at >= wanted.since.timestamp())
            and (wanted.until is None or self.created_at < wanted.until.timestamp())
            and self._ended_within(wanted)
            and (wanted.q is None or is_found(needles(wanted.q), self.new.args))
        )

    def _ended_within(self, wanted: TaskFilter) -> bool:
        if not is_of_ends(wanted):
            return True
        since, until = wanted.ended_since, wanted.ended_until
        return (
            self.ended_at is not None
            and (since is None or self.ended_at >= since.timestamp())
            and (until is None or self.ended_at < until.timestamp())
        )

    def shown(self) -> TaskInfo:
        """Return the task as listings show it."""
        return TaskInfo(
            id=self.id,
            kind=self.new.kind,
            name=self.new.name,
            queue=self.new.queue,
            version=self.new.version,
            key=self.new.key,
            state=self.state,
            priority=self.new.priority,
            attempt=self.attempt,
            rescues=self.rescues,
            created_at=instant(self.created_at),
            due_at=instant(self.due_at),
            started_at=None if self.started_at is None else instant(self.started_at),
            ended_at=None if self.ended_at is None else instant(self.ended_at),
            deadline_at=None if self.deadline_at is None else instant(self.deadline_at),
            worker=self.worker,
            incarnation=self.incarnation,
            cancel_requested=self.cancel_requested,
            args=_decoded(self.new.args),
            memory=_decoded(self.memory),
            progress=_decoded(self.progress),
            result=_decoded(self.result),
            limit=self.new.limit,
            then_id=self.then_id,
            takes=self.takes,
            blockers=self.blockers,
            trail=tuple(self.trail),
        )

    def end(self) -> TaskInfo:
        """Return the ended task for callers that wait for it."""
        trail = () if self.state == "done" else tuple(self.trail)
        return msgspec.structs.replace(self.shown(), args=None, memory=None, progress=None, trail=trail)

    def payload_bytes(self) -> int:
        """Return the size of its payloads."""
        return sum(map(size_of, (self.new.args, self.memory, self.progress, self.result)))


@dataclass(slots=True)
class WorkerRow:
    """One worker."""

    card: WorkerCard
    started_at: float
    beat_at: float
    lease_s: float
    beats: int = 0
    stopped_at: float | None = None
    loops: str | None = None
    losses: list[dict[str, Any]] = field(default_factory=list)

    def shown(self, now: float, running: int) -> WorkerInfo:
        """Return the worker as listings show it."""
        card = self.card
        return WorkerInfo(
            incarnation=card.incarnation,
            label=card.label,
            host=card.host,
            pid=card.pid,
            queues=card.queues,
            slots=card.slots,
            version=card.version,
            started_at=instant(self.started_at),
            beat_at=instant(self.beat_at),
            beat_age_s=now - self.beat_at,
            is_alive=self.stopped_at is None and self.beat_at >= now - self.lease_s,
            stopped_at=None if self.stopped_at is None else instant(self.stopped_at),
            running=running,
            names=card.names,
        )


def instant(epoch_s: float) -> datetime:
    """Return a time of the store's clock as a datetime."""
    return datetime.fromtimestamp(epoch_s, UTC)


def _decoded(text: str | None) -> Any:
    return None if text is None else msgspec.json.decode(text)
