"""What a store should do, in the simplest terms: a dictionary of tasks, and what each move makes of them.

The model knows nothing of indexes, statements or connections, and its clock moves only when told to. It is not the
memory store: it does not order, page or wake, and every rule of it is one line of the contract.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from everpoll.stores.contract import (
    RESCUE_LIMIT,
    Again,
    Ended,
    NewEvent,
    Settlement,
    TaskInfo,
)

SLACK_S = 100.0
"""More than the real time that one example takes, and less than any two instants of the model are apart."""
ANY = "?"
"""A decision whose name the contract leaves open."""


@dataclass
class ModelTask:
    id: int
    queue: str
    priority: int
    key: str | None
    due: float
    timeout_s: float | None
    kind: str = "job"
    created: float = 0.0
    wait_s: float | None = None
    """From its creation to its due time, exactly as the store has it; None: not seen since it changed."""
    memory: str | None = None
    args: str = "null"
    state: str = "queued"
    attempt: int = 0
    rescues: int = 0
    sequence: int = 0
    holder: int | None = None
    cancel: bool = False
    changed_while_running: bool = False
    """Asked to cancel while it ran."""
    events: list[int] = field(default_factory=list)
    whats: list[str] = field(default_factory=list)

    @property
    def is_live(self) -> bool:
        return self.state in ("queued", "running")

    @property
    def is_asked(self) -> bool:
        return self.kind == "watch"

    @property
    def size(self) -> int:
        """Bytes that its lease hands out."""
        return len(self.args.encode()) + len((self.memory or "").encode())

    def differs(self, shown: TaskInfo) -> list[str]:
        """How the task that the store shows is not the one it should be."""
        expected = {
            "state": self.state,
            "attempt": self.attempt,
            "rescues": self.rescues,
            "key": self.key,
            "queue": self.queue,
            "kind": self.kind,
            "priority": self.priority,
            "memory": None if self.memory is None else msgspec.json.decode(self.memory),
        }
        if self.is_live:
            expected |= {"cancel_requested": self.cancel, "incarnation": self.holder}
        found = [
            f"{name}: {getattr(shown, name)!r}, not {value!r}"
            for name, value in expected.items()
            if getattr(shown, name) != value
        ]
        whats = [str(entry["what"]) for entry in shown.trail]
        if len(whats) != len(self.whats) or any(b not in (a, ANY) for a, b in zip(whats, self.whats, strict=True)):
            found.append(f"trail: {whats}, not {self.whats}")
        return found + self._misplaced((shown.due_at - shown.created_at).total_seconds())

    def _misplaced(self, wait_s: float) -> list[str]:
        """A due time is what it should be, but for the real time that passed; and then it does not move any more."""
        expected, slack_s = (self.due - self.created, SLACK_S) if self.wait_s is None else (self.wait_s, 0.0)
        self.wait_s = wait_s
        return [f"due {wait_s} s after its creation, not {expected}"] if abs(wait_s - expected) > slack_s else []


@dataclass
class ModelWorker:
    beats: int = 0
    is_stopped: bool = False


class Model:
    """Tasks, workers, and the time."""

    def __init__(self) -> None:
        self.now = 0.0
        self.tasks: dict[int, ModelTask] = {}
        self.workers: dict[int, ModelWorker] = {}
        self.ends: list[int] = []
        """Ids in the order in which they ended."""
        self.feed: list[tuple[int, int]] = []
        """Task and number of every event, as they were written."""
        self.actions: Counter[int] = Counter()
        """By task, how many events were written that are not its own."""

    def begun(self, key: str) -> ModelTask | None:
        """The watch with that key that ended last."""
        ended = (self.tasks[one] for one in reversed(self.ends))
        return next((one for one in ended if not one.is_live and one.key == key and one.kind == "watch"), None)

    def append(self, task: ModelTask, events: Sequence[NewEvent]) -> None:
        for one in events:
            if one.seq not in task.events:
                task.events.append(one.seq)
                self.feed.append((task.id, one.seq))

    def live_with(self, kind: str, key: str | None) -> ModelTask | None:
        live = (one for one in self.tasks.values() if key is not None and one.is_live and one.kind == kind)
        return next((one for one in live if one.key == key), None)

    def due_in(self, queues: Sequence[str]) -> Iterator[ModelTask]:
        queued = (one for one in self.tasks.values() if one.state == "queued" and one.queue in queues)
        return (one for one in queued if one.due <= self.now)

    def next_due_s(self, queues: Sequence[str]) -> float | None:
        queued = (one for one in self.tasks.values() if one.state == "queued" and one.queue in queues)
        return min((one.due - self.now for one in queued if one.due > self.now), default=None)

    def lease(self, task: ModelTask, worker: int) -> None:
        task.state, task.holder = "running", worker
        task.sequence += 1
        task.attempt += 1
        task.changed_while_running = False

    def settle(self, worker: int, settlement: Settlement, what: str | None) -> bool:
        task = self.tasks[settlement.id]
        if task.state != "running" or (task.holder, task.sequence) != (worker, settlement.sequence):
            return False
        if what is not None:
            task.whats.append(what)
        self.append(task, settlement.events)
        match settlement:
            case Ended():
                self._end(task, settlement.state)
            case Again():
                task.attempt -= settlement.refund
                if settlement.memory is not None:
                    task.memory, task.rescues = settlement.memory, 0
                if task.changed_while_running:
                    task.due, task.wait_s = self.now, None
                elif settlement.delay_s is not None and (not task.cancel or task.is_asked):
                    task.due, task.wait_s = self.now + settlement.delay_s, None
                self._requeue(task)
        return True

    def rescue(self, worker: int, dead: Sequence[tuple[int, int]], overdue: Sequence[tuple[int, int]]) -> int:
        """Declare dead, and take back; how many tasks came back or ended."""
        for incarnation, beats in dead:
            one = self.workers[incarnation]
            one.is_stopped = one.is_stopped or one.beats == beats
        late = [self.tasks[task_id] for task_id, _ in overdue if self.tasks[task_id].holder == worker]
        late = [one for one in late if (one.id, one.sequence) in overdue]
        lost = [one for one in self.tasks.values() if one.holder is not None and self.workers[one.holder].is_stopped]
        for task in [*lost, *late]:
            task.rescues += 1
            task.attempt -= 1
            is_poison = task.rescues >= RESCUE_LIMIT
            is_canceled = task.cancel and not task.is_asked
            task.whats.append(ANY if is_canceled else "failed" if is_poison else "rescue")
            if is_poison and not is_canceled:
                self.actions[task.id] += 1
                self._end(task, "failed")
            else:
                self._requeue(task)
        return len(lost) + len(late)

    def cancel(self, task: ModelTask) -> str:
        if task.is_live:
            task.whats.append("cancel")
            task.cancel = True
            self.actions[task.id] += 1
            if task.is_asked:
                self._ask(task)
            elif task.state == "queued":
                self._end(task, "canceled")
        return task.state

    def _ask(self, task: ModelTask) -> None:
        task.changed_while_running = task.state == "running"
        if task.changed_while_running or task.due > self.now:
            task.due, task.wait_s = self.now, None

    def retry(self, task: ModelTask) -> bool:
        if task.is_live or self.live_with(task.kind, task.key):
            return False
        task.whats.append("retry")
        self.actions[task.id] += 1
        task.state, task.attempt, task.rescues, task.cancel = "queued", 0, 0, False
        task.due, task.wait_s = self.now, None
        return True

    def _requeue(self, task: ModelTask) -> None:
        task.state, task.holder = "queued", None
        if task.cancel and not task.is_asked:
            self.actions[task.id] += 1
            self._end(task, "canceled")

    def _end(self, task: ModelTask, state: str) -> None:
        task.state, task.holder = state, None
        self.ends.append(task.id)
