"""A run as callers and operators see it, read from its task.

Promises: pure. Rows of earlier releases, and of runs that a rescue ended, can be read.
"""

from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Struct

from everpoll.stores.contract import TaskInfo
from everpoll.stores.operations import Pause
from everpoll.watches.extension import split_args
from everpoll.watches.memory import Decision, Outcome, RunMemory

TARGET_CHARS = 300


class Fact(Struct, frozen=True, kw_only=True):
    """The value that a look gave to a fact, and when."""

    name: str
    value: Any
    at: float
    look: int | None
    """The number of that look; None if the change came from no look, or from a release that did not number looks."""


class RunInfo(Struct, frozen=True, kw_only=True):
    """The state of a run, for callers and operators."""

    id: str
    watch: str
    task_id: int
    phase: str
    """intent, looking, verifying, paused, canceling, cleaning, needs_code, ended."""
    outcome: Outcome | None
    reason: str | None
    status: str | None
    """The remote's own word, as last seen."""
    progress: str | None
    value: Any
    evidence: Any
    handle: Any
    op: Any
    looks: int
    budget_s: float | None
    """The time budget, extensions included; None if an earlier release wrote the run, which did not store it."""
    budget_looks: int | None
    """The budget of looks; None if it has no limit."""
    deadline_at: datetime | None
    """When the time budget is spent; None if the run has not begun or has ended, or if its budget is paused."""
    errors: int
    counters: dict[str, int]
    cleaned: bool | None
    created_at: datetime
    next_look_at: datetime | None
    ended_at: datetime | None
    elapsed_s: float | None
    log: tuple[Decision, ...]
    """The decisions, oldest first: which rule made each, and why the next look was when it was."""
    memory: dict[str, Any]
    facts: dict[str, Any]
    """What lasts between looks, by name: `confirm:gone`, `due:rows`, `verify:rowset`."""
    target: str | None
    """The remote, if the watch names it; else the handle, if it is a text; else None."""
    last_fact: Fact | None
    """The last change of a fact in the log."""
    seq: int
    paused: Pause | None = None
    """Why, by which actor and since when it is paused; None: it is not."""


def memory_of(task: TaskInfo) -> RunMemory:
    """Read the memory of a run from its task: from `memory` while it is live, from `result` once it has ended."""
    stored = task.result if task.ended_at is not None and task.result is not None else task.memory
    try:
        return msgspec.convert(stored, RunMemory)
    except msgspec.ValidationError:
        return RunMemory(run_id=(task.key or "").partition(":")[2])


def run_info(task: TaskInfo) -> RunInfo:
    """Read a run from its task."""
    memory = memory_of(task)
    ended = task.ended_at is not None
    now = task.ended_at
    op, extension = split_args(task.args)
    budget_s = None if memory.budget_s is None else memory.budget_s + extension.time_s
    pause = None if ended or memory.outcome is not None or task.cancel_requested else extension.pause
    return RunInfo(
        id=memory.run_id,
        watch=task.name,
        task_id=task.id,
        phase="ended" if ended else "needs_code" if memory.parked else "paused" if pause else memory.phase,
        outcome=memory.outcome or ("failed" if ended else None),
        reason=memory.reason or memory.parked or _trail_reason(task),
        status=memory.status,
        progress=memory.progress,
        value=memory.value,
        evidence=memory.evidence,
        handle=memory.handle,
        op=op if memory.op is None else memory.op,
        looks=memory.looks,
        budget_s=budget_s,
        budget_looks=None if memory.budget_looks is None else memory.budget_looks + extension.looks,
        deadline_at=None if ended or pause else _deadline(memory, budget_s),
        errors=memory.errors,
        counters=memory.counters,
        cleaned=memory.cleaned,
        created_at=task.created_at,
        next_look_at=None if ended or pause else task.due_at,
        ended_at=task.ended_at,
        elapsed_s=None if now is None else memory.elapsed_s(memory.decided_at or now.timestamp()),
        log=tuple(memory.log),
        memory=memory.user,
        facts=_facts(memory),
        target=_target(memory),
        last_fact=_last_fact(memory),
        seq=memory.seq,
        paused=None if pause is None else Pause(reason=pause.reason, by=pause.by, at=_paused_since(task, memory)),
    )


def _paused_since(task: TaskInfo, memory: RunMemory) -> datetime:
    """Return when its budget was paused; before a worker has seen the pause, when an operator asked for it."""
    asked = [entry["at"] for entry in task.trail if entry.get("what") == "pause" and "at" in entry]
    at = asked[-1] if memory.paused_at is None and asked else memory.paused_at
    try:
        return task.created_at if at is None else datetime.fromtimestamp(at, UTC)
    except (OverflowError, OSError, ValueError):
        return task.created_at  # a row that was edited by hand


def _deadline(memory: RunMemory, budget_s: float | None) -> datetime | None:
    since = memory.begun_at if memory.started_at is None else memory.started_at
    if budget_s is None or since is None or memory.outcome is not None or memory.paused_at is not None:
        return None
    try:
        return datetime.fromtimestamp(since + memory.paused_s + budget_s, UTC)
    except (OverflowError, OSError, ValueError):
        return None  # after the last date that a calendar has


def _facts(memory: RunMemory) -> dict[str, Any]:
    if not (memory.confirms or memory.dues or memory.verifies):
        return {}
    confirms = {f"confirm:{name}": msgspec.structs.asdict(seen) for name, seen in memory.confirms.items()}
    dues = {f"due:{name}": {"last_at": at} for name, at in memory.dues.items()}
    return confirms | dues | {f"verify:{name}": {"tries": tries} for name, tries in memory.verifies.items()}


def _target(memory: RunMemory) -> str | None:
    found = memory.remote or (memory.handle if isinstance(memory.handle, str) else None)
    return None if not found else found[:TARGET_CHARS]


def _last_fact(memory: RunMemory) -> Fact | None:
    for decision in reversed(memory.log):
        if decision.facts:
            name, value = list(decision.facts.items())[-1]
            return Fact(name=name, value=value, at=decision.at, look=decision.look)
    return None


def _trail_reason(task: TaskInfo) -> str | None:
    said = [entry.get("error") or entry.get("why") for entry in task.trail]
    return str(said[-1]) if said and said[-1] else None
