"""`WatchRun`: a caller waits for a run with it, follows its events, and cancels, extends, pauses or resumes it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from everpoll.engine.actors import action, checked_actor
from everpoll.errors import BadInput, RunCanceled, RunFailed, RunTimedOut, StoreUnavailable, TaskNotFound, WrongState
from everpoll.policy import Duration, human, seconds, whole_number
from everpoll.stores.contract import TaskInfo, encode
from everpoll.stores.operations import Revision
from everpoll.watches.extension import LOOKS_LIMIT, Extension, RunPause, split_args, with_extension
from everpoll.watches.limits import REASON_LIMIT, short_text
from everpoll.watches.memory import Outcome
from everpoll.watches.run_info import RunInfo, run_info
from everpoll.watches.waiting import RunWaiters, WaitAnswer, WaitRequest

if TYPE_CHECKING:
    from everpoll.watches.registry import Watches

EXTEND_TRIES = 5


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
        """Wait for the outcome and return the value of `Done`; raise for any other outcome."""
        limit_s = None if timeout is None else seconds(timeout, name="timeout")
        limit = asyncio.timeout(limit_s)
        try:
            async with limit:
                info = await self._outcome()
        except TimeoutError:
            if not limit.expired():
                raise
            info = await self._outcome_at_timeout(human(limit_s or 0))
        return _value(info)

    async def _outcome_at_timeout(self, limit: str) -> RunInfo:
        """Read the run once more; raise `TimeoutError` with its phase if it has no outcome."""
        late = f"{self.watch}:{self.id} has no outcome within {limit}"
        try:
            info = await self.info()
        except StoreUnavailable as error:
            raise TimeoutError(f"{late}: the store cannot be reached: {error}") from error
        if info.outcome is None:
            raise TimeoutError(f"{late}: it is {info.phase}") from None
        return info

    async def _outcome(self) -> RunInfo:
        seen = await self._answer(await self._watches.waiters(), WaitRequest())
        assert seen.task is not None, "an outcome is read from its task"
        return run_info(seen.task)

    async def _answer(self, waiters: RunWaiters, wanted: WaitRequest) -> WaitAnswer:
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
        """Make the next look due at once; if a look is running, another one follows it.

        The breaker and the rate of the remote may still postpone the look. Raises `WrongState` if the run has its
        outcome, or is paused. `by` names the actor for the log.
        """
        task = await self._undecided_task("is not looked at any more")
        if run_info(task).paused is not None:
            raise WrongState(f"{self.watch}:{self.id} is paused: resume it first")
        store = await self._watches.store()
        if await store.revise([Revision(task_id=self.task_id, hurry=True, note=action("look-now", by))]) == [None]:
            await self._undecided_task("is not looked at any more")

    async def extend(self, time: Duration | None = None, looks: int | None = None, *, by: str = "") -> None:
        """Add time, looks or both to the budget. Raise `WrongState` if the run has its outcome.

        A look that is running keeps the budget that it began with. `by` names the actor for the log.
        """
        more = _more(time, looks)
        note = action("extend", by, f"extended by {more}", time_s=more.time_s, looks=more.looks)
        await self._change(lambda _task, before: before + more, note, "cannot be extended any more")

    async def pause(self, reason: str = "", *, by: str = "") -> None:
        """Have no worker look at the run, and stop the clock of its budget, until `resume()`.

        A look that is running ends, and its answer counts. A cancel goes on. Pausing a paused run replaces the reason.
        Raises `WrongState` if the run has its outcome, or is being canceled. `by` names the actor for the log.
        """
        kept, actor = short_text(reason, REASON_LIMIT), checked_actor(by)

        def paused(task: TaskInfo, before: Extension) -> Extension:
            if task.cancel_requested:
                raise WrongState(f"{self.watch}:{self.id} cannot be paused any more: it is being canceled")
            return replace(before, pause=RunPause(kept, actor))

        note = action("pause", by, kept)
        await self._change(paused, note, "cannot be paused any more", keeps_due=False)

    async def resume(self, *, by: str = "") -> bool:
        """Have the run looked at again, at once; return False if it was not paused. `by` names the actor."""
        was_paused = False

        def resumed(_task: TaskInfo, before: Extension) -> Extension:
            nonlocal was_paused
            was_paused = before.pause is not None
            return replace(before, pause=None)

        await self._change(resumed, action("resume", by), "is not looked at any more", keeps_due=False)
        return was_paused

    async def _change(
        self, change: Callable[[TaskInfo, Extension], Extension], note: str, refusal: str, *, keeps_due: bool = True
    ) -> None:
        """Change what a caller has ordered for the run. Raise `WrongState` if it has its outcome."""
        store = await self._watches.store()
        for tries_left in reversed(range(EXTEND_TRIES)):
            task = await self._undecided_task(refusal)
            op, before = split_args(task.args)
            if (after := change(task, before)) == before:
                return
            # A change by another caller at the same time must not get lost, so the row must be as it was read.
            # The last try overwrites it: if all others failed, the row is not in the form that everpoll writes.
            expects = encode(task.args) if tries_left else None
            args = with_extension(op, after)
            revision = Revision(task_id=task.id, args=args, expects=expects, keeps_due=keeps_due, note=note)
            if await store.revise([revision]) != [None]:
                return
        await self._undecided_task(refusal)

    async def _undecided_task(self, refusal: str) -> TaskInfo:
        """Return the task of a run that has no outcome yet; else raise `WrongState`."""
        task = await self._watches.task(self.task_id)
        if task is None:
            raise self._not_found()
        info = run_info(task)
        if info.outcome is not None:
            raise WrongState(f"{self.watch}:{self.id} {refusal}: it has its outcome, {info.outcome}")
        return task

    async def events(self, after: int = 0) -> AsyncIterator[RunEvent]:
        """Yield a snapshot, then every change after number `after`, past ones first, until the run has ended.

        To go on later, remember the `seq` of the last *change*: a snapshot may include changes that are yielded after
        it. An outage of the store only delays the events. Changes are missing if their history was dropped.
        """
        after = whole_number(after, name="after", at_least=0, accepted="the seq of the last change that was seen, or 0")
        # One object for the whole iteration: it refuses once the app is closed, instead of opening the store again.
        waiters = await self._watches.waiters()
        task, events = await self._answer(waiters, WaitRequest(after, now=True))
        assert task is not None, "what is asked for now is read from the task"
        info = run_info(task)
        yield _snapshot(info)
        # A number that this run has not reached belongs to another run: this one would skip all its events.
        after = min(after, info.seq)
        while True:
            for one in events:
                after = one.seq
                event = msgspec.convert({"seq": one.seq, "kind": "change", "at": one.at, **one.body}, RunEvent)
                yield event
                if event.phase == "ended":
                    return
            events = (await self._answer(waiters, WaitRequest(after))).events
            if not events:
                # The run has ended, and its last event was committed with its end, so no event can follow. (That event
                # may have been dropped, may lie before `after`, or was never written, because a rescue ended the run.)
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
