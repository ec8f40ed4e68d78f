"""Operations on tasks and queues of the memory store."""

import math
from collections.abc import Mapping, Sequence
from itertools import islice

import msgspec

from everpoll.stores.contract import NewEvent, TaskState
from everpoll.stores.flows import INPUT, with_input
from everpoll.stores.limits import check_queue
from everpoll.stores.memory.rows import TaskRow, instant
from everpoll.stores.memory.state import MemoryState
from everpoll.stores.operations import UNNUMBERED, Deleted, Pause, Retried, Revision
from everpoll.stores.set_aside import is_set_aside
from everpoll.stores.task_events import queue_entry, with_state


class MemoryOperations(MemoryState):
    """The operations of the contract."""

    async def cancel(self, task_id: int, note: str) -> TaskState | None:
        """See the contract."""
        with self._lock:
            row = self._index.get(task_id)
            if row is None or row.ended_at is not None:
                return None if row is None else row.state
            state: TaskState = "canceled" if row.state == "queued" and not row.is_asked else row.state
            self._record(row, note, with_state(note, state))
            row.cancel_requested = True
            if row.is_asked:
                self._ask(row)
            elif row.state == "queued":
                self._end(row, "canceled")
        self._wake(cancel=True)
        return row.state

    async def cancel_many(self, requests: Sequence[tuple[int, str]]) -> list[TaskState | None]:
        """See the contract."""
        return [await self.cancel(task_id, note) for task_id, note in requests]

    def _ask(self, row: TaskRow) -> None:
        """Make the task due now, so that its next lease carries the request."""
        now = self._now()
        if row.state == "running":
            # Later than its lease, even at the same instant: `changed_while_running` compares the two.
            row.due_at = max(now, math.nextafter(row.started_at or now, math.inf))
        elif row.due_at > now:
            self._again(row, 0.0)

    async def revise(self, revisions: Sequence[Revision]) -> list[int | None]:
        """See the contract."""
        with self._lock:
            ids = [self._revise(one) for one in revisions]
        self._wake()
        return ids

    def _revise(self, revision: Revision) -> int | None:
        if revision.task_id is None:
            row = self._index.of_key(revision.kind, revision.key)
        else:
            row = self._index.live.get(revision.task_id)
        if row is None or revision.expects not in {None, row.new.args}:
            return None
        if revision.only_queued and row.state != "queued":
            return None
        if revision.hurry or revision.args not in {None, row.new.args}:
            row.new = msgspec.structs.replace(row.new, args=row.new.args if revision.args is None else revision.args)
            if revision.note is not None:
                self._record(row, revision.note, revision.note)
            if not revision.keeps_due:
                row.is_revised = row.state == "running"
                if row.blockers:
                    row.due_at = row.created_at  # once unblocked, it must not wait for its delay
                elif row.state == "queued" and row.due_at > self._now():
                    self._again(row, 0.0)
        return row.id

    async def release_set_aside(self, versions: Mapping[str, int], queues: Sequence[str], limit: int) -> int:
        """See the contract."""
        with self._lock:
            set_aside = (
                row
                for row in self._index.live.values()
                if row.state == "queued"
                and row.new.version <= versions.get(row.new.name, 0)
                and row.new.queue in queues
                and row.due_at > self._now()
                and is_set_aside(row.trail)
            )
            released = list(islice(set_aside, limit))
            for row in released:
                self._again(row, min(0.0, row.created_at - self._now()))
        return len(released)

    async def retry(self, task_id: int, note: str) -> bool:
        """See the contract."""
        return (await self.retry_many([(task_id, note)]))[0].outcome == "queued"

    async def retry_many(self, requests: Sequence[tuple[int, str]]) -> list[Retried]:
        """See the contract."""
        with self._lock:
            answers = [self._retry(task_id, note) for task_id, note in requests]
        self._wake()
        return answers

    def _retry(self, task_id: int, note: str) -> Retried:
        row = self._index.history.get(task_id)
        if row is None:
            return Retried("live" if task_id in self._index.live else "unknown")
        if (holder := self._index.of_key(row.new.kind, row.new.key)) is not None:
            return Retried("key_taken", holder.id)
        self._index.forget(row)
        self._record(row, note, note)
        self._give_input(row)
        row.attempt = row.rescues = row.blockers = 0
        row.ended_at = row.result = row.progress = row.started_at = row.worker = row.error_type = None
        row.cancel_requested = False
        self._index.put(row)
        if row.takes == "end" and (members := self._live_members(row)):
            for one in members:
                one.has_told = False
            row.blockers, row.due_at = len(members), row.created_at
            row.state, row.incarnation, row.deadline_at = "queued", None, None
        else:
            self._again(row, 0.0)
        return Retried("queued")

    def _live_members(self, row: TaskRow) -> list[TaskRow]:
        found = (self._index.live.get(one) for one in self._members.get(row.id, ()))
        return [one for one in found if one is not None]

    def _give_input(self, row: TaskRow) -> None:
        """Insert the result of the task before into a task that was canceled before it got it, if there is one."""
        if row.takes == "result" and not row.new.args.startswith(INPUT):
            before = (self._index.history.get(one) for one in self._members.get(row.id, ()))
            for done in (one for one in before if one is not None and one.state == "done"):
                row.new = msgspec.structs.replace(row.new, args=with_input(row.new.args, done.result or "null"))

    async def delete(self, requests: Sequence[tuple[int, str]]) -> list[Deleted]:
        """See the contract."""
        with self._lock:
            return [self._delete(task_id, note) for task_id, note in requests]

    def _delete(self, task_id: int, note: str) -> Deleted:
        row = self._index.history.get(task_id)
        if row is None:
            return "live" if task_id in self._index.live else "unknown"
        self._record(row, note, note)
        self._index.forget(row)
        self._losses.pop(task_id, None)
        return "deleted"

    async def pause(self, queue: str, reason: str, by: str) -> None:
        """See the contract."""
        check_queue(queue, reason, by)
        with self._lock:
            now = self._now()
            self._pauses[queue] = Pause(reason=reason, by=by, at=instant(now))
            self._feed.log(queue_entry("pause", queue, by, reason), now)

    async def resume(self, queue: str, by: str) -> bool:
        """See the contract."""
        check_queue(queue, "", by)
        with self._lock:
            if self._pauses.pop(queue, None) is None:
                return False
            self._feed.log(queue_entry("resume", queue, by), self._now())
        self._wake()
        return True

    async def paused(self) -> dict[str, Pause]:
        """See the contract."""
        with self._lock:
            return dict(sorted(self._pauses.items()))

    def _record(self, row: TaskRow, note: str, event: str) -> None:
        """Write an operation on a task to its trail and to the feed."""
        row.remember(note, self._now(), "")
        self._feed.add(row, self._now(), [NewEvent(UNNUMBERED, event)])
