"""Causes: failed jobs grouped by what went wrong, and put back by filter.

Promises: two failures have one cause if their job, the class of their last error and its text are equal, without
numbers, ids and memory addresses. At most `SEARCHED` failed jobs are read, the newest ones; the caller may set a
smaller number and a time limit.
"""

import asyncio
import math
import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

from msgspec import Struct

from everpoll.engine.bulk import BulkOrder
from everpoll.errors import BadInput
from everpoll.policy import Duration, seconds
from everpoll.policy.visible_texts import visible
from everpoll.stores.contract import END_STATES, Store, TaskFilter, TaskInfo, TaskState

SEARCHED = 10_000
PAGE = 500
EXAMPLES = 5
TEXT_CHARS = 300
TEXTS = 200
"""How many texts are cached: failures of one cause come together, and many have the same text."""

_VARYING = (
    (re.compile(r"\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b"), "<uuid>"),
    (re.compile(r"\b0x[0-9a-fA-F]+\b"), "<address>"),
    (re.compile(r"\b(?=[0-9a-f]*[0-9])(?=[0-9a-f]*[a-f])[0-9a-f]{12,}\b"), "<hex>"),
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?"), "<time>"),
    (re.compile(r"\d+(?:[.,]\d+)*"), "<n>"),
)


class Cause(Struct, frozen=True, kw_only=True):
    """One cause, and the failed jobs that have it."""

    name: str
    """The name of the job."""
    type: str
    """The class of the last error; empty if there was none, as for a job whose worker died three times."""
    error: str
    """The text of the error, with numbers and ids replaced."""
    count: int
    first_at: datetime
    """When the first of them failed."""
    last_at: datetime
    """When the last of them failed."""
    examples: tuple[int, ...]
    """The ids of the newest of them."""


class Causes(Struct, frozen=True):
    """The causes of failed jobs, the most frequent first."""

    causes: tuple[Cause, ...]
    is_capped: bool = False
    """True if there are more failed jobs than were read."""
    searched: int = 0
    """How many failed jobs were read."""


class Redriven(Struct, frozen=True, kw_only=True):
    """The result of a redrive; in a dry run, the expected result."""

    matched: int
    moved: int
    """How many jobs it put back in the queue; in a dry run, how many it would put back."""
    skipped: int
    reasons: dict[str, int]
    """Why jobs were skipped, and how many."""
    dry_run: bool


def normalized(error: str) -> str:
    """Return the text of an error without the parts that vary between errors of one cause."""
    return _without_varying(error.strip().partition("\n")[0][: TEXT_CHARS * 2])


@lru_cache(maxsize=TEXTS)
def _without_varying(text: str) -> str:
    for pattern, mark in _VARYING:
        text = pattern.sub(mark, text)
    return visible(text[:TEXT_CHARS])


async def causes_of(
    store: Store, name: str | None = None, queue: str | None = None, within_s: float = math.inf, most: int = SEARCHED
) -> Causes:
    """Group up to `most` of the newest failed jobs: those read within `within_s`, and at least a page."""
    now = asyncio.get_running_loop().time
    give_up_at = now() + within_s
    wanted = TaskFilter(state="failed", kind="job", name=name, queue=queue)
    groups: dict[tuple[str, str, str], list[TaskInfo]] = {}
    after, seen = None, 0
    while True:
        page = await store.tasks(wanted, min(PAGE, most), after)
        _group(groups, page.tasks)
        seen, after = seen + len(page.tasks), page.after
        if after is None or seen >= most or now() >= give_up_at:
            break
    grouped = [_cause(key, tasks) for key, tasks in groups.items()]
    grouped.sort(key=lambda one: (-one.count, one.name, one.type, one.error))
    return Causes(tuple(grouped), after is not None, seen)


def _group(groups: dict[tuple[str, str, str], list[TaskInfo]], tasks: Iterable[TaskInfo]) -> None:
    for task in tasks:
        error: dict[str, Any] = task.errors[-1] if task.errors else {}
        text = str(error["error"] if "error" in error else task.trail[-1].get("why", "") if task.trail else "")
        groups.setdefault((task.name, str(error.get("type", "")), normalized(text)), []).append(_slim(task))


def _slim(task: TaskInfo) -> TaskInfo:
    """Return the task without its payloads, because thousands are in memory at a time."""
    return TaskInfo(
        id=task.id,
        kind=task.kind,
        name=task.name,
        queue=task.queue,
        key=None,
        state=task.state,
        priority=0,
        attempt=task.attempt,
        rescues=task.rescues,
        created_at=task.created_at,
        due_at=task.due_at,
        ended_at=task.ended_at,
    )


def _cause(key: tuple[str, str, str], tasks: list[TaskInfo]) -> Cause:
    name, kind, error = key
    ends = [task.ended_at or task.created_at for task in tasks]
    return Cause(
        name=name,
        type=kind,
        error=error,
        count=len(tasks),
        first_at=min(ends),
        last_at=max(ends),
        examples=tuple(sorted((task.id for task in tasks), reverse=True)[:EXAMPLES]),
    )


class RedriveFilter(Struct, frozen=True, kw_only=True):
    """The ended jobs to put back in the queue."""

    name: str | None = None
    queue: str | None = None
    error: str | None = None
    """The class of the last error."""
    since: datetime | None = None
    """Only jobs that were enqueued at this instant or later."""
    state: TaskState = "failed"
    everything: bool = False
    """Put back all jobs of that state; required if there is no filter."""

    def checked(self) -> TaskFilter:
        """Return the filter for the store; raise `BadInput` for one that would find all jobs, or can find none."""
        if self.state not in END_STATES:
            raise BadInput(f"redrive: state={self.state!r}: only ended jobs are put back: failed, canceled or done")
        filters = (self.name, self.queue, self.error, self.since)
        if all(one is None for one in filters) and not self.everything:
            raise BadInput(
                f"redrive: without a filter it would put back all jobs that are {self.state}: name at least one of "
                "name, queue, error and since, or pass everything=True (in a shell: --everything)"
            )
        return TaskFilter(
            state=self.state, kind="job", name=self.name, queue=self.queue, error=self.error, since=self.since
        )


async def redriven(store: Store, wanted: RedriveFilter, *, by: str = "", dry_run: bool = False) -> Redriven:
    """Put jobs back in the queue with fresh attempts, batch by batch; in a dry run, return what it would do."""
    # The list is ordered by id, so each job is read once: the set needs no instant to be frozen at.
    order = BulkOrder("redrive", wanted.checked(), (), as_of=datetime.max.replace(tzinfo=UTC), by=by)
    await (order.count(store) if dry_run else order.carry_out(store))
    answer = order.answer(dry_run=dry_run)
    return Redriven(
        matched=answer.matched,
        moved=answer.eligible if dry_run else answer.moved,
        skipped=answer.skipped,
        reasons=answer.reasons,
        dry_run=dry_run,
    )


def instant_of(since: datetime | Duration | None, name: str = "since") -> datetime | None:
    """Return an instant; a duration counts back from now."""
    if since is None:
        return None
    if isinstance(since, datetime):
        if since.tzinfo is None:
            raise BadInput(f"{name}={since.isoformat()} has no time zone: write an aware datetime, or a duration")
        return since
    return datetime.now(UTC) - timedelta(seconds=seconds(since, name=name))
