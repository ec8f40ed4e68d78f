"""Bulk actions: one action on every job that a filter finds, in batches.

    order ──▶ page by page: eligible jobs ──dry run──▶ counts with reasons
                                               └──────────▶ changed, batch by batch, each with its event

Promises: the set is frozen at `as_of`, when the caller gave the order: a job that was enqueued or has ended later is
left alone. So an order with the `as_of` of a dry run changes only jobs that the dry run counted, each at most once.
A job that changes in between is skipped, with the reason. Progress and the end are in the log, under the order's id.
"""

import secrets
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Literal

from msgspec import Struct

from everpoll.engine.actors import action
from everpoll.stores.contract import Store, TaskFilter, TaskInfo
from everpoll.stores.operations import LogEntry

Action = Literal["redrive", "cancel", "delete"]
PAGE = 500
DRY_LIMIT = 10_000
"""How many jobs a dry run counts at most."""
LATER = "it was enqueued, or has ended, after the set was frozen"


class BulkAnswer(Struct, frozen=True, kw_only=True):
    """The result of an order so far."""

    id: str
    """The key of its events in the log, whose kind is `bulk`."""
    action: Action
    dry_run: bool
    as_of: datetime
    """When the set was frozen. A later order with this instant changes no other jobs."""
    matched: int
    eligible: int
    moved: int
    """How many were changed; 0 for a dry run."""
    skipped: int
    reasons: dict[str, int]
    """Why jobs were skipped, and how many."""
    is_capped: bool
    """True if there are more jobs than the 10,000 that a dry run counts."""
    is_done: bool
    """False while it goes on: its events report the progress."""


class BulkOrder:
    """One order, under way or done."""

    def __init__(self, what: Action, wanted: TaskFilter, ids: Sequence[int], *, as_of: datetime, by: str) -> None:
        self.id = secrets.token_hex(8)
        self._what = what
        self._wanted = wanted
        self._ids = list(dict.fromkeys(ids))
        self._as_of = as_of
        self._by = by
        self._matched = self._eligible = self._moved = 0
        self._reasons: Counter[str] = Counter()
        self._is_capped = self._is_done = False

    def answer(self, *, dry_run: bool = False) -> BulkAnswer:
        """Return the result so far."""
        return BulkAnswer(
            id=self.id,
            action=self._what,
            dry_run=dry_run,
            as_of=self._as_of,
            matched=self._matched,
            eligible=self._eligible,
            moved=self._moved,
            skipped=self._reasons.total(),
            reasons=dict(self._reasons),
            is_capped=self._is_capped,
            is_done=self._is_done,
        )

    async def count(self, store: Store) -> None:
        """Count what the order would change, and change nothing."""
        after: int | None = None
        while True:
            tasks, after = await self._page(store, after)
            self._eligible_of(tasks)
            self._is_capped = after is not None and self._matched >= DRY_LIMIT
            if after is None or self._is_capped:
                break
        self._is_done = True

    async def carry_out(self, store: Store) -> None:
        """Change every eligible job, batch by batch."""
        after: int | None = None
        while True:
            tasks, after = await self._page(store, after)
            eligible = self._eligible_of(tasks)
            if eligible:
                await self._change(store, eligible)
            self._is_done = after is None
            if eligible or self._is_done:
                await self._log(store)
            if after is None:
                return

    async def _page(self, store: Store, after: int | None) -> tuple[list[TaskInfo], int | None]:
        """Return the next jobs, newest first, and the position after them; None at the end."""
        if not self._ids:
            page = await store.tasks(self._wanted, PAGE, after)
            return list(page.tasks), page.after
        start = after or 0
        wanted = self._ids[start : start + PAGE]
        found = await store.info(wanted)
        end = start + len(wanted)
        return [found[one] for one in wanted if one in found], end if end < len(self._ids) else None

    def _eligible_of(self, tasks: Sequence[TaskInfo]) -> list[TaskInfo]:
        eligible = []
        for task in tasks:
            self._matched += 1
            reason = self._reason(task)
            if reason is None:
                eligible.append(task)
            else:
                self._reasons[reason] += 1
        self._eligible += len(eligible)
        return eligible

    def _reason(self, task: TaskInfo) -> str | None:
        """Return why a task is not eligible, or None if it is."""
        if task.kind != "job":
            return f"it is a {task.kind}, not a job"
        if (task.ended_at or task.created_at) > self._as_of:
            return LATER
        if self._what == "cancel":
            return None if task.ended_at is None else f"it has ended: it is {task.state}"
        if task.ended_at is None:
            return f"it has not ended: it is {task.state}"
        if self._what == "redrive" and task.state == "done" and self._wanted.state != "done":
            return "it is done"
        return None

    async def _change(self, store: Store, tasks: Sequence[TaskInfo]) -> None:
        note = action("retry" if self._what == "redrive" else self._what, self._by, f"bulk {self.id}")
        lost = await self._sent(store, [(task.id, note) for task in tasks])
        self._moved += lost.count(None)
        self._reasons.update(reason for reason in lost if reason is not None)

    async def _sent(self, store: Store, requests: Sequence[tuple[int, str]]) -> list[str | None]:
        """Change these jobs; return for each None, or why it could not be changed any more."""
        if self._what == "cancel":
            states = await store.cancel_many(requests)
            return [None if one in {"running", "canceled"} else "it has ended meanwhile" for one in states]
        if self._what == "delete":
            deleted = await store.delete(requests)
            return [None if one == "deleted" else f"it is {one} meanwhile" for one in deleted]
        words = {"key_taken": "another task has its key", "live": "it is live meanwhile"}
        retried = await store.retry_many(requests)
        return [None if one.outcome == "queued" else words.get(one.outcome, "it is gone") for one in retried]

    async def _log(self, store: Store) -> None:
        what = "finished" if self._is_done else "progress"
        skipped = self._reasons.total()
        body = action(what, self._by, action=self._what, matched=self._matched, moved=self._moved, skipped=skipped)
        await store.log([LogEntry("bulk", self._what, body, key=self.id)])
