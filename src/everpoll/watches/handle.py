"""A run as its user holds it: after `begin`, or by its id."""

import asyncio
import logging
from collections.abc import AsyncIterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from everpoll.errors import RunCanceled, RunFailed, RunTimedOut, StoreUnavailable, TaskNotFound
from everpoll.policy import Duration, human, seconds, whole_number
from everpoll.stores.contract import TaskInfo, encode
from everpoll.watches.limits import REASON_LIMIT, told
from everpoll.watches.memory import Decision, Outcome, RunMemory
from everpoll.watches.waiting import RunWaiters, Seen, Wanted

if TYPE_CHECKING:
    from everpoll.watches.registry import Watches

logger = logging.getLogger("everpoll.watches")


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
    seq: int


class RunEvent(Struct, frozen=True, kw_only=True):
    """Something changed. `seq` counts from 1 in each run; a snapshot carries the seq of what it includes."""

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
        """False: this id has been begun before, and this is that run."""

    def __repr__(self) -> str:
        return f"<WatchRun {self.watch}:{self.id}>"

    async def info(self) -> RunInfo:
        """Everything that is known about it."""
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
        """The run, which may have its outcome by now; `TimeoutError` says where it is."""
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

    async def cancel(self, reason: str | None = None) -> bool:
        """Cancel it: the remote is told, waited for and cleaned up; False: it had its outcome already."""
        before = await self.info()
        if before.outcome is not None:
            return False
        why = {} if reason is None else {"why": told(reason, REASON_LIMIT)}
        await self._watches.cancel(self.task_id, encode({"what": "cancel", **why}))
        return True

    async def events(self, after: int = 0) -> AsyncIterator[RunEvent]:
        """The state now, then every change behind `after`, those of the past first, until the run has ended (B16).

        To go on later, remember the `seq` of the last *change*: a snapshot tells of changes that are still to come.
        An outage of the store is waited out. Changes whose history was dropped are missing; the snapshot is not.
        """
        after = whole_number(after, name="after", at_least=0, accepted="the seq of the last change that was seen, or 0")
        # One object for the whole iteration: once the app is closed it refuses, and the store is not opened again.
        waiters = await self._watches.waiters()
        task, events = await self._asked(waiters, Wanted(after, now=True))
        assert task is not None, "what is asked for now is read from the task"
        info = run_info(task)
        yield _snapshot(info)
        # A number that it has not come to yet is of another run: nothing of this one would ever be told.
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


def memory_of(task: TaskInfo) -> RunMemory:
    """What the run remembers: live in its memory, ended in its result."""
    stored = task.result if task.ended_at is not None and task.result is not None else task.memory
    try:
        return msgspec.convert(stored, RunMemory)
    except msgspec.ValidationError:
        return RunMemory(run_id=(task.key or "").partition(":")[2])


def run_info(task: TaskInfo) -> RunInfo:
    """A run out of its task."""
    memory = memory_of(task)
    ended = task.ended_at is not None
    now = task.ended_at
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
        op=task.args if memory.op is None else memory.op,
        looks=memory.looks,
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
        seq=memory.seq,
    )


def _facts(memory: RunMemory) -> dict[str, Any]:
    confirms = {f"confirm:{name}": msgspec.structs.asdict(seen) for name, seen in memory.confirms.items()}
    dues = {f"due:{name}": {"last_at": at} for name, at in memory.dues.items()}
    return confirms | dues | {f"verify:{name}": {"tries": tries} for name, tries in memory.verifies.items()}


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
