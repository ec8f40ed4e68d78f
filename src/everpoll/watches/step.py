"""One step of a run: everything that happens between a lease and its settlement.

    outcome known?  ──▶ clean up                                                    (after the outcome is committed)
    canceled?       ──▶ tell the remote, look until it has ended, or time is over
    not started?    ──▶ adopt what an earlier try has started, else start           (both with the same key)
    budget spent?   ──▶ timed out
    remote resting? ──▶ later
    else            ──▶ look, and judge what it says

Promises: one settlement, one fenced write: memory, due time and events together. The remote is only ever started,
canceled and cleaned up with the run's key. Whatever the user's functions raise, SystemExit included, ends here: as a
failure of that look, start, cancel or cleanup, and never as the end of a run that nobody cleans up after.
"""

import asyncio
import copy
import inspect
import logging
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

from everpoll.engine.calls import described, failure, not_ended
from everpoll.engine.work import StopReason
from everpoll.errors import BadInput, Hopeless
from everpoll.http.retry_after import retry_after_s
from everpoll.policy import human, shown
from everpoll.stores.contract import Settlement
from everpoll.watches.calling import Calling
from everpoll.watches.context import LookContext, Verify, is_id
from everpoll.watches.faults import Fault, NothingSent
from everpoll.watches.limits import as_json, told, told_error
from everpoll.watches.memory import Decision, Outcome, RunMemory, decode
from everpoll.watches.options import DEFAULT_START
from everpoll.watches.planning import SILENT
from everpoll.watches.schedule import NextLook, Wishes, next_look, spent
from everpoll.watches.verdicts import Done, Fail, Started, Wait

logger = logging.getLogger("everpoll.watches")


class Step(Calling):
    """One lease of one run."""

    async def take(self) -> Settlement:
        """Do what is to be done now."""
        self._set_clocks()
        memory = self._memory
        if memory.outcome is not None:
            return await self._clean()
        if self._lease.cancel_requested:
            return await self._cancel()
        if memory.phase == "intent":
            return await self._start()
        if memory.handle is None and self._watch.starts:
            return await self._find()
        return await self._look_now()

    def _set_clocks(self) -> None:
        memory = self._memory
        if memory.begun_at is None:
            memory.begun_at = self._now
        if memory.phase in {"looking", "verifying"} and memory.started_at is None:
            memory.unpause(self._now)
            memory.started_at, memory.paused_s = self._now, 0.0
            self._tell_start()

    # ── start ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _start(self) -> Settlement:
        memory = self._memory
        if why := self._policy.budget.spent(memory.elapsed_s(self._now), 0):
            return self._conclude("timed_out", f"it was never started: {why}{self._last_seen()}")
        try:
            remote = self._watch.remote_of(self._op)
        except BaseException as error:  # noqa: BLE001 - the user's own
            return self._failed_in_passing("start", failure(self._run, error))
        if postponed := self._asked(remote):
            return self._postpone(postponed)
        memory.unpause(self._now)
        memory.has_token = False
        self._asking = remote
        try:
            begun = await self._started()
        except BaseException as error:  # noqa: BLE001 - the user's own
            return self._failed_in_passing("start", self._failure(error, remote), remote)
        self._watch.remotes.answered(remote)
        memory.handle = begun.handle
        # The budget counts anew from here, and so do its pauses.
        memory.started_at, memory.paused_s = self._now, 0.0
        memory.phase = "looking"
        memory.errors_in_a_row = 0
        self._tell_start()
        if not isinstance(begun.verdict, Wait):
            return self._believed(begun.verdict)
        self._heard(begun.verdict)
        first_s = min(max(self._cadence_s(0.0), begun.verdict.after_s or 0.0), self._policy.budget.time_s)
        return self._again(NextLook(first_s, "started", f"started: the first look in {human(first_s)}"))

    async def _started(self) -> Started:
        """What was started: by an earlier try that nobody heard of, or by a new one with the same key."""
        watch, handle = self._watch, None
        if watch.adopts is not None and self._may_have_started:
            handle = await self._call("adopt", watch.adopts)
            if is_id(handle):
                self._memory.count("adopted")
        if not is_id(handle):
            assert watch.starts is not None, "an intent is only stored where there is something to start"
            self._has_called_start = True
            handle = await self._unbroken(self._call("start", watch.starts))
        begun = handle if isinstance(handle, Started) else Started(handle)
        if isinstance(handle, (Done, Fail)):
            begun = Started(None, handle)
        is_over = not isinstance(begun.verdict, Wait)
        if not is_id(begun.handle) and not is_over and watch.adopts is not None:
            begun = Started(await self._call("adopt", watch.adopts), begun.verdict)
        if not is_id(begun.handle) and not is_over:
            why = f"start returned {shown(begun.handle)}, which is no handle; return what the look needs to find it"
            # Something may have been started: where nobody can look for it, another start could be a second one.
            raise Hopeless(why) if watch.adopts is None else BadInput(why)
        kept = None if is_over and not is_id(begun.handle) else begun.handle
        try:
            verdict = self._stored_done(begun.verdict) if isinstance(begun.verdict, Done) else begun.verdict
            return Started(as_json(kept, f"watch {watch.name!r}: what start returns"), verdict)
        except BadInput as error:
            raise Hopeless(f"it was started, and its answer cannot be stored: {error}") from error

    async def _unbroken(self, start: Coroutine[Any, Any, Any]) -> Any:
        """A cancel does not break off a start: what was started and not stored could not be told to stop."""
        starting = asyncio.ensure_future(_caught(start))
        try:
            await asyncio.shield(starting)
        except asyncio.CancelledError:
            if self._run.stop_reason is not StopReason.CANCELED:
                starting.cancel()
                # Handed back while it still runs, it could be under way twice.
                await asyncio.wait({starting})
                raise
            await starting
        handle, error = starting.result()
        if error is not None:
            raise error
        return handle

    async def _find(self) -> Settlement:
        """The handle is missing: it is looked up by the key, stored, and only then used."""
        try:
            assert self._watch.starts is not None, "only asked where there is a start"
            if self._watch.adopts is None:
                raise BadInput("its handle is missing, and there is no @….adopt to find it by its key")
            handle = await self._call("adopt", self._watch.adopts)
            if not is_id(handle):
                raise BadInput(f"its handle is missing, and adopt({self._key!r}) found none")
            self._memory.handle = as_json(handle, f"watch {self._watch.name!r}: what adopt returns")
        except BaseException as error:  # noqa: BLE001 - the user's own
            return self._failed_in_passing("adopt", failure(self._run, error))
        self._memory.count("adopted")
        return self._again(NextLook(0.0, "adopted", "its handle was found by its key and stored"))

    # ── look ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _look_now(self) -> Settlement:
        memory, now = self._memory, self._now
        if why := spent(self._policy.budget, memory.elapsed_s(now), memory.looks):
            return self._conclude("timed_out", f"{why}{self._last_seen()}")
        try:
            remote = self._watch.remote_of(self._op)
        except BaseException as error:  # noqa: BLE001 - the user's own
            memory.looks += 1
            return self._failed_in_passing("look", failure(self._run, error))
        if not self._watch.joins_a_call(remote) and (postponed := self._asked(remote)):
            return self._postpone(postponed)
        memory.unpause(now)
        memory.has_token = False
        memory.looks += 1
        memory.count("looks")
        context = LookContext(memory, now, self._watch.checks, self._key)
        errors_before, memory.errors_in_a_row = memory.errors_in_a_row, 0
        try:
            verdict = await self._ask(context, remote)
            answer = await self._judged(verdict, context)
        except BaseException as error:  # noqa: BLE001 - the user's own
            memory.errors_in_a_row = errors_before
            self._forget(context)
            return self._failed_in_passing("look", self._failure(error, remote), remote, context.call)
        self._watch.remotes.answered(remote)
        return answer

    def _forget(self, context: LookContext) -> None:
        """A look that broke off has seen nothing: its facts are as they were before."""
        context.let_go()
        before = decode(self._lease.memory) if self._lease.memory else RunMemory(self._memory.run_id)
        memory = self._memory
        memory.confirms, memory.dues, memory.verifies = before.confirms, before.dues, before.verifies
        memory.user = before.user if self.migrated is None else copy.deepcopy(self.migrated)

    async def _judged(self, verdict: object, context: LookContext) -> Settlement:
        context.check_memory()
        if isinstance(verdict, Verify):
            return await self._verified(verdict.name, context)
        self._changed |= context.changed
        memory = self._memory
        if isinstance(verdict, (Done, Fail)):
            believed = self._stored_done(verdict) if isinstance(verdict, Done) else verdict
            if not context.is_told:
                # "running" was said of what has ended since.
                memory.status = memory.progress = None
            return self._believed(believed)
        if verdict is None:
            memory.count(SILENT)
            verdict = Wait()
        if inspect.iscoroutine(verdict):
            verdict.close()
            raise BadInput("the look returned a coroutine: write await in front of the call")
        if not isinstance(verdict, Wait):
            raise BadInput(f"the look returned {shown(verdict)}; it returns Done(…), Fail(…), Wait(…) or w.verify(…)")
        memory.phase = "looking"
        memory.looked_at = self._now
        self._heard(verdict)
        return self._pending(context.hints, verdict.after_s, context.floor_s)

    def _stored_done(self, verdict: Done) -> Done:
        """The same, as a row can have it."""
        value = as_json(verdict.value, f"watch {self._watch.name!r}: what Done carries")
        return replace(verdict, value=value)

    def _believed(self, verdict: Done | Fail) -> Settlement:
        if verdict.status is not None:
            self._memory.status = told(verdict.status)
        if isinstance(verdict, Done):
            return self._conclude("ready", verdict.why, value=verdict.value)
        outcome: Outcome = "canceled" if verdict.canceled else "failed"
        return self._conclude(outcome, verdict.reason, evidence=_kept(verdict.evidence))

    def _heard(self, verdict: Wait) -> None:
        memory = self._memory
        memory.status = memory.status if verdict.status is None else told(verdict.status)
        memory.progress = memory.progress if verdict.note is None else told(verdict.note)

    async def _verified(self, name: str, context: LookContext) -> Settlement:
        memory, check = self._memory, self._watch.checks[name]
        if context.floor_s is not None:
            # A secondary call of this look was told to wait. The check may ask the same remote: it waits too.
            self._changed |= context.changed
            memory.phase = "verifying"
            wishes = Wishes(0.0, {}, floor_s=context.floor_s, chance=self._watch.rng.random())
            planned = next_look(wishes, self._policy.budget, self._now, memory.elapsed_s(self._now))
            return self._again_unless_spent(planned)
        tries = memory.verifies[name] = memory.verifies.get(name, 0) + 1
        memory.count(f"verify:{name}")
        said, floor_s = "", None
        try:
            value = await self._call("verify", check.function, context)
        except BaseException as raised:  # noqa: BLE001 - a check that fails has not passed
            error = failure(self._run, raised)
            value, said = None, told(f": {told_error(error)}")
            floor_s = retry_after_s(error)
        self._changed |= context.changed
        self._changed[f"verify:{name}"] = f"try {tries} of {check.tries}"
        context.check_memory()
        if isinstance(value, (Done, Fail)):
            return await self._judged(value, context)
        if value:
            proven = None if value is True else as_json(value, f"watch {self._watch.name!r}: what {name} returns")
            return self._conclude("ready", f"{name} is verified, at try {tries}", value=proven)
        if tries >= check.tries:
            why = f"{name} could not be verified in {tries} tries{said}"
            return self._conclude("ready" if check.exhausted == "ready" else "failed", why)
        memory.phase = "verifying"
        delay_s = check.every.delay(tries, self._watch.rng)
        wishes = Wishes(delay_s, {}, floor_s=floor_s, chance=self._watch.rng.random())
        planned = next_look(wishes, self._policy.budget, self._now, memory.elapsed_s(self._now))
        why = f"{name} is not there yet (try {tries} of {check.tries}){said}"
        return self._again_unless_spent(NextLook(planned.delay_s, "verify", why))

    # ── cancel ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def _cancel(self) -> Settlement:
        memory = self._memory
        memory.unpause(self._now)
        if memory.phase != "canceling":
            memory.cancel_why = await self._watch.why_canceled(self._lease.id)
        canceled = f"canceled: {memory.cancel_why}" if memory.cancel_why else "canceled"
        if memory.phase == "intent" and not self._may_have_started:
            return self._conclude("canceled", f"{canceled}; it was not started yet")
        if memory.phase != "canceling":
            since = self._now if memory.canceling_at is None else memory.canceling_at
            memory.phase, memory.canceling_at, memory.errors_in_a_row = "canceling", since, 0
        return await self._tell_and_look(canceled)

    async def _tell_and_look(self, canceled: str) -> Settlement:
        memory = self._memory
        left_s = self._cancel_left_s
        remote = self._remote() if self._asks_when_canceled else None
        self._asking = remote
        if remote and left_s > 0 and (resting := self._watch.remotes.ask(remote, self._now, has_token=True)):
            return self._again(NextLook(min(resting.wait_s, left_s), resting.rule, resting.why))
        try:
            verdict = await self._tell()
            value = as_json(verdict.value, "what Done carries") if isinstance(verdict, Done) else None
            if remote:
                self._watch.remotes.answered(remote)
        except NothingSent as none:
            if remote:
                self._watch.remotes.abandoned(remote)
            return self._conclude("canceled", f"{canceled}; the remote was not told, nothing was sent: {told(none)}")
        except BaseException as raised:  # noqa: BLE001 - the user's own
            error, fault = self._weighed(raised, remote)
            return self._not_told(canceled, error, fault)
        left_s = self._cancel_left_s
        end = verdict if isinstance(verdict, str) else None
        if isinstance(verdict, (Done, Fail, Verify)):
            end = "the remote has ended"
        elif left_s <= 0:
            end = f"the remote did not end within {human(self._policy.cancel_s)}"
        if end is not None:
            evidence = _kept(verdict.evidence) if isinstance(verdict, Fail) else None
            memory.status = told(status) if (status := getattr(verdict, "status", None)) else memory.status
            return self._conclude("canceled", f"{canceled}; {end}", value=value, evidence=evidence)
        memory.errors_in_a_row = 0
        memory.count("looks after cancel")
        memory.cancel_looks += 1
        delay_s = DEFAULT_START.delay(memory.cancel_looks, self._watch.rng, at_most_s=left_s)
        return self._again(NextLook(delay_s, "cancel", "the remote was told to cancel and has not ended yet"))

    def _not_told(self, canceled: str, error: BaseException, fault: Fault) -> Settlement:
        """The cancel, or a look after it, has failed: try again while its budget lasts."""
        left_s = self._cancel_left_s
        if left_s <= 0 or fault == "fatal":
            what = "asked" if self._memory.cancel_sent else "told"
            return self._conclude("canceled", f"{canceled}; the remote could not be {what}: {told_error(error)}")
        return self._try_again("cancel", error, left_s)

    @property
    def _asks_when_canceled(self) -> bool:
        """Whether a cancel speaks to the remote at all: what does not waits for no breaker, and proves nothing."""
        memory, watch = self._memory, self._watch
        if memory.handle is None and watch.starts is not None:
            return watch.adopts is not None
        return watch.cancels is not None

    async def _tell(self) -> Any:
        """Tell the remote to cancel, once, and look; or return the reason why that is not possible."""
        memory, watch = self._memory, self._watch
        if memory.handle is None and watch.adopts is not None:
            found = await self._call("adopt", watch.adopts)
            memory.handle = as_json(found, "handle") if is_id(found) else None
        if memory.handle is None and watch.starts is not None:
            if watch.adopts is None:
                return "it may have been started: there is no @….adopt to look for it by its key"
            return "nothing was found that it had started"
        if watch.cancels is None:
            return "there is no way to tell the remote"
        if not memory.cancel_sent:
            memory.count("cancels")
            await self._call("cancel", watch.cancels)
            memory.cancel_sent = True
        memory.looks += 1
        memory.count("looks")
        context = LookContext(memory, self._now, watch.checks, self._key)
        try:
            verdict = await self._ask(context, self._remote())
            context.check_memory()
        except BaseException:
            self._forget(context)
            raise
        return verdict

    # ── cleanup ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def _clean(self) -> Settlement:
        memory, watch = self._memory, self._watch
        if watch.cleans is None:
            return self._end()
        memory.cleanup_at = self._now if memory.cleanup_at is None else memory.cleanup_at
        left_s = self._policy.cleanup.remaining_s(self._now - memory.cleanup_at)
        remote = self._remote()
        if left_s > 0 and (resting := watch.remotes.ask(remote, self._now, has_token=True)):
            return self._again(NextLook(min(resting.wait_s, left_s), resting.rule, resting.why))
        memory.cleanup_tries += 1
        memory.count("cleanups")
        try:
            self._asking = remote
            await self._call("cleanup", watch.cleans)
            watch.remotes.answered(remote)
        except BaseException as raised:  # noqa: BLE001 - it never changes the outcome
            error, fault = self._weighed(raised, remote)
            return self._not_cleaned(error, memory.cleanup_at, fault)
        memory.cleaned = True
        self._note(Decision(self._now, "cleanup", f"cleaned up, at try {memory.cleanup_tries}"))
        return self._end()

    def _not_cleaned(self, error: BaseException, since: float, fault: Fault) -> Settlement:
        memory, budget = self._memory, self._policy.cleanup
        memory.errors += 1
        spent_s = self._now - since
        why = f"cleanup failed (try {memory.cleanup_tries}): {told_error(error)}"
        self._watch.failures.log(logging.WARNING, f"{self._watch.name} cleanup failed", "%s: %s", self._key, why)
        if fault == "fatal" or budget.spent(spent_s, 0) is not None:
            memory.cleaned = False
            self._note(Decision(self._now, "cleanup", f"{why}; given up, the sweeper tries again"))
            return self._end()
        floor_s, left_s = retry_after_s(error) or 0.0, budget.remaining_s(spent_s)
        every, rng = self._policy.cleanup_every, self._watch.rng
        delay_s = every.delay(memory.cleanup_tries, rng, at_least_s=floor_s, at_most_s=left_s)
        return self._again(NextLook(delay_s, "cleanup", why))

    # ── errors ───────────────────────────────────────────────────────────────────────────────────────────────────

    def broken(self, error: BaseException) -> Settlement:
        """The step itself could not be made. It is tried again, and gives up as a look does, or a cleanup."""
        memory, now = self._memory, self._now
        if memory.outcome is not None:
            return self._cleanup_failed(error)
        memory.begun_at = now if memory.begun_at is None else memory.begun_at
        memory.errors += 1
        memory.errors_in_a_row += 1
        if memory.errors_in_a_row >= self._policy.odd_errors:
            outcome: Outcome = "canceled" if self._lease.cancel_requested else "failed"
            why = f"no step could be made, {memory.errors_in_a_row} times in a row: {told_error(error)}"
            return self._conclude(outcome, why, evidence=described(error))
        return self._try_again("step", error)

    def _cleanup_failed(self, error: BaseException) -> Settlement:
        memory = self._memory
        memory.cleanup_tries += 1
        memory.cleanup_at = self._now if memory.cleanup_at is None else memory.cleanup_at
        return self._not_cleaned(error, memory.cleanup_at, self._fault(error))

    def overdue(self) -> Settlement:
        """Settle the step although its function goes on behind its deadline: what it has done so far does not count."""
        memory = decode(self._lease.memory) if self._lease.memory else RunMemory(self._memory.run_id)
        if self.migrated is not None:
            memory.version, memory.op = self._memory.version, self._memory.op
            memory.user = copy.deepcopy(self.migrated)
        memory.parked = None
        anew = Step(self._watch, self._run, memory, self._op)
        anew._has_called_start = self._has_called_start
        return anew._not_ended(self._calling, not_ended(self._limit_s), self._asking)

    def _not_ended(self, what: str, error: BaseException, remote: str | None) -> Settlement:
        memory = self._memory
        self._set_clocks()
        memory.unpause(self._now)
        memory.has_token = False
        if memory.outcome is not None:
            memory.count("cleanups")
            if remote is not None:
                self._failed_at(remote, "transient")
            return self._cleanup_failed(error)
        if self._lease.cancel_requested:
            if remote is not None:
                self._failed_at(remote, "transient")
            memory.canceling_at = self._run.at if memory.canceling_at is None else memory.canceling_at
            return self._not_told("canceled", error, self._fault(error))
        if what in {"look", "verify"}:
            memory.looks += 1
            memory.count("looks")
            what = "look"
        return self._failed_in_passing(what, error, remote)


async def _caught(start: Coroutine[Any, Any, Any]) -> tuple[Any, BaseException | None]:
    """What it returns, or raises: out of a task of its own, SystemExit would end the process."""
    try:
        return await start, None
    except (asyncio.CancelledError, KeyboardInterrupt):
        raise
    except BaseException as error:  # noqa: BLE001 - it is raised where it can be dealt with
        return None, error


def _kept(evidence: Any) -> Any:
    """What the remote said, as far as it can be kept: a failure is one whatever its evidence looks like."""
    try:
        return as_json(evidence, "the evidence")
    except BadInput as error:
        return f"(not kept: {error})"
