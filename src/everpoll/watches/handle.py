"""A run in the hands of its caller: `WatchRun`, and what it reads from the run's task."""

import asyncio
import logging
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from everpoll.engine.actors import action
from everpoll.errors import BadInput, RunCanceled, RunFailed, RunTimedOut, StoreUnavailable, TaskNotFound, WrongState
from everpoll.policy import Duration, human, seconds, whole_number
from everpoll.stores.contract import TaskInfo, encode
from everpoll.stores.operations import Revision
from everpoll.watches.extension import LOOKS_LIMIT, Extension, split_args, with_extension
from everpoll.watches.limits import REASON_LIMIT, short_text
from everpoll.watches.memory import Decision, Outcome, RunMemory
from everpoll.watches.waiting import RunWaiters, Seen, Wanted

if TYPE_CHECKING:
    from everpoll.watches.registry import Watches

logger = logging.getLogger("everpoll.watches")

EXTEND_TRIES = 5
TARGET_CHARS = 300


class Fact(Struct, frozen=True, kw_only=True):
    """A fact, as a look changed it."""

    name: str
    value: Any
    at: float
    look: int | None
    """The number of that look; None if the change came from no look, or from a release that did not number looks."""


class RunInfo(Struct, frozen=True, kw_only=True):
    """A run as people see it."""

    id: str
    watch: str
    task_id: int
    phase: str
    """intent, looking, verifying, canceling, cleaning, needs_code, ended."""
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
    """The time budget, extensions included; None if a release wrote the run that did not store it."""
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
    """The remote that the watch names, else the handle if it is a text, else None."""
    last_fact: Fact | None
    """The last change of a fact in the log."""
    seq: int


class RunEvent(Struct, frozen=True, kw_only=True):
    """A change of a run. `seq` counts from 1 in each run; a snapshot has the `seq` of the last change it includes."""

    seq: int
    kind: str
    """`snapshot` for the state at the time of asking, else `change`."""
    at: datetime
    phase: str
    status: str | None = None
    progress: str | None = None
    outcome: Outcome | None = None
    reason: str | None = None
    looks: int = 0


class WatchRun:
    """One run."""

    __slots__ = ("_watches", "id", "is_new", "task_id", "watch")

    def __init__(self, watches: "Watches", watch: str, run_id: str, task_id: int, *, is_new: bool = True) -> None:
        self._watches = watches
        self.watch = watch
        self.id = run_id
        self.task_id = task_id
        self.is_new = is_new
        """False if a run with this id existed already."""

    def __repr__(self) -> str:
        return f"<WatchRun {self.watch}:{self.id}>"

    async def info(self) -> RunInfo:
        """Read the run."""
        task = await self._watches.task(self.task_id)
        if task is None:
            raise self._not_found()
        return run_info(task)

    def _not_found(self) -> TaskNotFound:
        return TaskNotFound(f"no run {self.watch}:{self.id}: its history was dropped")

    async def result(self, timeout: Duration | None = None) -> Any:  # noqa: ASYNC109 - the API's own word
        """What `Done` carried, once the run has its outcome; any other outcome raises."""
        limit_s = None if timeout is None else seconds(timeout, name="timeout")
        limit = asyncio.timeout(limit_s)
        try:
            async with limit:
                info = await self._decided()
        except TimeoutError:
            if not limit.expired():
                raise
            info = await self._seen_in_time(human(limit_s or 0))
        return _value(info)

    async def _seen_in_time(self, limit: str) -> RunInfo:
        """Read the run once more; raise `TimeoutError` with its phase if it has no outcome."""
        late = f"{self.watch}:{self.id} has no outcome within {limit}"
        try:
            info = await self.info()
        except StoreUnavailable as error:
            raise TimeoutError(f"{late}: the store cannot be reached: {error}") from error
        if info.outcome is None:
            raise TimeoutError(f"{late}: it is {info.phase}") from None
        return info

    async def _decided(self) -> RunInfo:
        seen = await self._asked(await self._watches.waiters(), Wanted())
        assert seen.task is not None, "an outcome is read from its task"
        return run_info(seen.task)

    async def _asked(self, waiters: RunWaiters, wanted: Wanted) -> Seen:
        try:
            return await waiters.ask(self.task_id, wanted)
        except TaskNotFound:
            raise self._not_found() from None

    async def cancel(self, reason: str | None = None, *, by: str = "") -> bool:
        """Cancel the run; return False if it has its outcome already.

        The next step asks the remote to cancel, waits until the operation has ended, and cleans up.

        `by` names the actor for the log.
        """
        before = await self.info()
        if before.outcome is not None:
            return False
        await self._watches.cancel(self.task_id, action("cancel", by, short_text(reason or "", REASON_LIMIT)))
        return True

    async def look_now(self, *, by: str = "") -> None:
        """Make its next look due at once; while one is under way, another follows it.

        A remote with an open breaker, or with a rate that is used up, still postpones the look.
        `WrongState`: the run has its outcome.
        `by` names the actor for the log.
        """
        await self._live("is not looked at any more")
        store = await self._watches.store()
        if await store.revise([Revision(task_id=self.task_id, hurry=True, note=action("look-now", by))]) == [None]:
            await self._live("is not looked at any more")

    async def extend(self, time: Duration | None = None, looks: int | None = None, *, by: str = "") -> None:
        """Add to its budget: time, looks, or both. `WrongState`: the run has its outcome.

        A look that is under way still counts by the budget that it began with. `by` names the actor for the log.
        """
        more = _more(time, looks)
        store = await self._watches.store()
        note = action("extend", by, f"extended by {more}", time_s=more.time_s, looks=more.looks)
        for tries_left in reversed(range(EXTEND_TRIES)):
            task = await self._live("cannot be extended any more")
            op, before = split_args(task.args)
            # Another extension at the same time must not get lost. The last try overwrites: then the text in the row
            # was not written by everpoll, and compares with nothing.
            expects = encode(task.args) if tries_left else None
            args = with_extension(op, before + more)
            revision = Revision(task_id=task.id, args=args, expects=expects, keeps_due=True, note=note)
            if await store.revise([revision]) != [None]:
                return
        await self._live("cannot be extended any more")

    async def _live(self, refusal: str) -> TaskInfo:
        """The run's task, if the run has no outcome yet."""
        task = await self._watches.task(self.task_id)
        if task is None:
            raise self._not_found()
        info = run_info(task)
        if info.outcome is not None:
            raise WrongState(f"{self.watch}:{self.id} {refusal}: it has its outcome, {info.outcome}")
        return task

    async def events(self, after: int = 0) -> AsyncIterator[RunEvent]:
        """The state now, then every change behind `after`, those of the past first, until the run has ended.

        To go on later, remember the `seq` of the last *change*: a snapshot tells of changes that are still to come.
        An outage of the store is waited out. Changes are missing if their history was dropped; the snapshot is not.
        """
        after = whole_number(after, name="after", at_least=0, accepted="the seq of the last change that was seen, or 0")
        # One object for the whole iteration: once the app is closed it refuses, and the store is not opened again.
        waiters = await self._watches.waiters()
        task, events = await self._asked(waiters, Wanted(after, now=True))
        assert task is not None, "what is asked for now is read from the task"
        info = run_info(task)
        yield _snapshot(info)
        # A number that this run has not reached is of another run: waiting for it would skip all events of this one.
        after = min(after, info.seq)
        while True:
            for one in events:
                after = one.seq
                event = msgspec.convert({"seq": one.seq, "kind": "change", "at": one.at, **one.body}, RunEvent)
                yield event
                if event.phase == "ended":
                    return
            events = (await self._asked(waiters, Wanted(after))).events
            if not events:
                # It has ended, and what it ended with was committed with its end: nothing is left to come. (Its last
                # event may have been dropped, may lie before `after`, or was never written: a rescue ended it.)
                return


def _more(time: Duration | None, looks: int | None) -> Extension:
    if time is None and looks is None:
        raise BadInput('extend() needs a time, a number of looks, or both: extend("10m", looks=20)')
    time_s = 0.0 if time is None else seconds(time, name="time", positive=True)
    accepted = f"how many looks to add, from 1 to {LOOKS_LIMIT:,}"
    number = 0 if looks is None else whole_number(looks, name="looks", at_least=1, accepted=accepted)
    if number > LOOKS_LIMIT:
        raise BadInput(f"looks={number}: write {accepted}")
    return Extension(time_s, number)


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
    return RunInfo(
        id=memory.run_id,
        watch=task.name,
        task_id=task.id,
        phase="ended" if ended else "needs_code" if memory.parked else memory.phase,
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
        deadline_at=None if ended else _deadline(memory, budget_s),
        errors=memory.errors,
        counters=memory.counters,
        cleaned=memory.cleaned,
        created_at=task.created_at,
        next_look_at=None if ended else task.due_at,
        ended_at=task.ended_at,
        elapsed_s=None if now is None else memory.elapsed_s(memory.decided_at or now.timestamp()),
        log=tuple(memory.log),
        memory=memory.user,
        facts=_facts(memory),
        target=_target(memory),
        last_fact=_last_fact(memory),
        seq=memory.seq,
    )


def _deadline(memory: RunMemory, budget_s: float | None) -> datetime | None:
    since = memory.begun_at if memory.started_at is None else memory.started_at
    if budget_s is None or since is None or memory.outcome is not None or memory.paused_at is not None:
        return None
    try:
        return datetime.fromtimestamp(since + memory.paused_s + budget_s, UTC)
    except (OverflowError, OSError, ValueError):
        return None  # behind the end of the calendar


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


def _snapshot(info: RunInfo) -> RunEvent:
    return RunEvent(
        seq=info.seq,
        kind="snapshot",
        at=info.ended_at or info.created_at,
        phase=info.phase,
        status=info.status,
        progress=info.progress,
        outcome=info.outcome,
        reason=info.reason,
        looks=info.looks,
    )


def _value(info: RunInfo) -> Any:
    name = f"{info.watch}:{info.id}"
    if info.outcome == "ready":
        return info.value
    if info.outcome == "canceled":
        # Our own reasons begin with the word: "canceled: customer left; the remote has ended".
        said = info.reason or "canceled"
        raise RunCanceled(f"{name} was {said if said.startswith('canceled') else f'canceled: {said}'}", info.evidence)
    if info.outcome == "timed_out":
        raise RunTimedOut(f"{name} timed out: {info.reason}", info.evidence)
    raise RunFailed(f"{name} failed: {info.reason}", info.evidence)
