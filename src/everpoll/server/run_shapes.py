"""Runs of watches as the HTTP API shows them: no text has a secret in it."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from everpoll.http.stored_secrets import each_without_secrets, without_secrets
from everpoll.server.shapes import Page, instant, instant_example
from everpoll.stores.contract import TaskInfo, TaskState
from everpoll.stores.operations import Pause
from everpoll.watches import RunInfo
from everpoll.watches.memory import Outcome
from everpoll.watches.run_info import Fact, run_info


class FactItem(Struct, frozen=True, kw_only=True):
    """A fact, and the look that changed it."""

    name: str
    value: Any
    at: datetime | None
    look: int | None
    """The number of that look, counted from 1."""


class RunItem(Struct, frozen=True, kw_only=True, gc=False):
    """A run in a list."""

    id: str
    watch: str
    task_id: int
    state: TaskState
    phase: str
    outcome: Outcome | None
    reason: str | None
    status: str | None
    """The remote's own word, as last seen."""
    progress: str | None
    looks: int
    errors: int
    created_at: datetime
    next_look_at: datetime | None
    ended_at: datetime | None
    elapsed_s: float | None
    cancel_requested: bool
    budget_s: float | None
    """The time budget in seconds, extensions included."""
    budget_looks: int | None
    """The budget of looks; null: no limit."""
    deadline_at: datetime | None
    """When the time budget is spent; null while it is paused."""
    target: str | None
    """The remote that the watch names, else the handle if it is a text."""
    last_fact: FactItem | None
    """The last change of a fact in the log."""
    seq: int
    paused: Pause | None
    """The pause of the run: the reason, the operator and the time; null: it is not paused."""


class RunDetail(RunItem, frozen=True, kw_only=True):
    """Everything about a run."""

    op: Any
    handle: Any
    value: Any
    evidence: Any
    counters: dict[str, int]
    cleaned: bool | None
    log: list[dict[str, Any]]
    """The decisions, oldest first: which rule made each, and why the next look was when it was. One that follows a look
    has its number, `look`, and how long that look took, `took_s`; of `times` equal ones, those of the last."""
    memory: dict[str, Any]
    facts: dict[str, Any]
    trail: list[dict[str, Any]]
    """The trail of its task."""


class RunPage(Page, frozen=True, kw_only=True, omit_defaults=True):
    """Runs, newest first."""

    items: list[RunItem]
    after: str | None
    searched_back_to: datetime | None = None


Shown = TypeVar("Shown", bound=RunItem)


def run_items(tasks: Sequence[TaskInfo]) -> list[RunItem]:
    """Return runs for lists."""
    infos = [run_info(task) for task in tasks]
    texts = each_without_secrets([_texts(info) for info in infos])
    return [_item(RunItem, *one) for one in zip(tasks, infos, texts, strict=True)]


def _texts(info: RunInfo) -> list[Any]:
    """Return the fields that a remote may have written, and that may contain a secret."""
    fact = None if info.last_fact is None else {info.last_fact.name: info.last_fact.value}
    pause = None if info.paused is None else info.paused.reason
    return [info.id, info.reason, info.status, info.progress, info.target, fact, pause]


def _item(shape: type[Shown], task: TaskInfo, info: RunInfo, texts: list[Any], **more: Any) -> Shown:
    """Return a run for lists; `texts` are its texts without secrets."""
    # No loop over the fields: a page has hundreds of runs.
    run_id, reason, status, progress, target, fact, pause = texts
    return shape(
        id=run_id,
        watch=info.watch,
        task_id=info.task_id,
        state=task.state,
        phase=info.phase,
        outcome=info.outcome,
        reason=reason,
        status=status,
        progress=progress,
        looks=info.looks,
        errors=info.errors,
        created_at=info.created_at,
        next_look_at=info.next_look_at,
        ended_at=info.ended_at,
        elapsed_s=info.elapsed_s,
        cancel_requested=task.cancel_requested,
        budget_s=info.budget_s,
        budget_looks=info.budget_looks,
        deadline_at=info.deadline_at,
        target=target,
        last_fact=None if info.last_fact is None else _fact(info.last_fact, fact),
        seq=info.seq,
        paused=None if info.paused is None else replace(info.paused, reason=pause),
        **more,
    )


def _fact(fact: Fact, safe: dict[str, Any]) -> FactItem:
    [(name, value)] = safe.items()
    return FactItem(name=name, value=value, at=instant(fact.at), look=fact.look)


def run_detail(task: TaskInfo) -> RunDetail:
    """Return everything about a run, with secrets masked."""
    info = run_info(task)
    more = {name: without_secrets(getattr(info, name)) for name in _OF_DETAILS if name != "log"}
    more["log"] = without_secrets(msgspec.to_builtins(info.log))
    return _item(RunDetail, task, info, without_secrets(_texts(info)), **more, trail=without_secrets(list(task.trail)))


_OF_DETAILS = tuple(
    name
    for name in RunDetail.__struct_fields__
    if name in RunInfo.__struct_fields__ and name not in RunItem.__struct_fields__
)


ITEM: dict[str, Any] = {
    "id": "run-42",
    "watch": "shell_query",
    "task_id": 7,
    "state": "queued",
    "phase": "looking",
    "outcome": None,
    "reason": None,
    "status": "running",
    "progress": "40 %",
    "looks": 3,
    "errors": 0,
    "created_at": instant_example(0),
    "next_look_at": instant_example(8),
    "ended_at": None,
    "elapsed_s": None,
    "cancel_requested": False,
    "budget_s": 1740.0,
    "budget_looks": 120,
    "deadline_at": instant_example(1740),
    "target": "shell.example.com",
    "last_fact": {"name": "rowset", "value": "written", "at": instant_example(5), "look": 3},
    "seq": 2,
    "paused": None,
}
DETAIL = ITEM | {
    "op": {"query": "select 1"},
    "handle": "q-17",
    "value": None,
    "evidence": None,
    "counters": {"looks": 3},
    "cleaned": None,
    "log": [{"at": 1767323045.0, "rule": "backoff", "why": "look 3", "next_s": 8.0, "look": 3, "took_s": 0.2}],
    "memory": {},
    "facts": {},
    "trail": [],
}
