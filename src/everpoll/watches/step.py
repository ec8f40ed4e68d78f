"""One step of a run: everything between a lease and its settlement.

    Leased ──▶ decide ──▶ plan ──▶ call a function of the user ──▶ event ──▶ decide ──▶ … ──▶ settlement

`decide` has all the rules; this shell calls, measures, logs and writes. Promises: one settlement, one fenced write with
memory, due time and events together. Whatever the user's functions raise, SystemExit included, becomes a failure of
that look, start, cancel or cleanup. What a function returns after the pool has abandoned it is ignored.
"""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Coroutine
from copy import copy
from typing import TYPE_CHECKING, Any

from everpoll.engine.calls import described, failure, not_ended
from everpoll.engine.work import Run
from everpoll.errors import BadInput
from everpoll.http.retry_after import retry_after_s
from everpoll.logs.context import about
from everpoll.policy import human, shown
from everpoll.stores.contract import Again, Ended, EndState, NewEvent, Settlement
from everpoll.stores.contract import encode as encode_json
from everpoll.watches.cancel import cancel, reason
from everpoll.watches.cleanup import cleanup
from everpoll.watches.context import LookContext
from everpoll.watches.decisions import decide
from everpoll.watches.decisions.events import (
    Admitted,
    Broken,
    Calls,
    Event,
    Failed,
    Fault,
    Leased,
    NeedsCode,
    Pace,
    Postponed,
)
from everpoll.watches.decisions.plans import Admit, Call, Due, Over, Plan
from everpoll.watches.decisions.spans import mark_progress
from everpoll.watches.extension import extension_of
from everpoll.watches.faults import NothingSent, fault_of
from everpoll.watches.functions import UserFunction
from everpoll.watches.limits import error_text, short_text
from everpoll.watches.look import look, verify
from everpoll.watches.memory import Outcome, RunMemory, encode
from everpoll.watches.options import FALLBACK
from everpoll.watches.schedule import call_limit_s
from everpoll.watches.start import adopt, start

if TYPE_CHECKING:
    from everpoll.watches.runtime import Runtime

logger = logging.getLogger("everpoll.watches")

STATES: dict[Outcome, EndState] = {"ready": "done", "failed": "failed", "timed_out": "failed", "canceled": "canceled"}


class Step:
    """One lease of one run."""

    def __init__(self, runtime: "Runtime", run: Run, memory: RunMemory, op: Any) -> None:
        self.runtime = runtime
        watch = self.watch = runtime.watch
        self.policy = watch.run_policy(extension_of(run.lease.args))
        self.run = run
        self.op = op
        self.key = watch.key_of(memory.run_id)
        self.now = run.clock(asyncio.get_running_loop().time)
        """Reads the store's clock."""
        self.memory = memory
        self._before = memory
        self.remote: str | None = None
        """The remote that this step has been admitted to."""
        self.context: LookContext | None = None
        """The `w` of the look of this step."""
        self.look_took_s: float | None = None
        self._calling: Calls = "look"
        self._limit_s = 0.0

    @property
    def is_canceling(self) -> bool:
        """Whether this step cancels the run."""
        return self.run.lease.cancel_requested and self.memory.outcome is None

    @property
    def named_remote(self) -> str | None:
        """The remote, if the watch names its remotes."""
        return None if self.remote == self.watch.name else self.remote

    # ── the step ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def take(self) -> Settlement:
        """Make the step."""
        lease = self.run.lease
        event: Event = Leased(lease.sequence, lease.cancel_requested)
        while True:
            plan = self._decided(event)
            if isinstance(plan, Call):
                event = await self._called(plan)
            elif isinstance(plan, Admit):
                event = self._asked(plan)
            else:
                if self.remote is not None and type(event) is not Failed:
                    self.watch.remotes.answered(self.remote)
                return self._settled(plan)

    def park(self, why: str, wait_s: float) -> Settlement:
        """Settle the step without a call: this worker has no code for the run."""
        return self._settled(self._decided(NeedsCode(why, wait_s)))

    def broken(self, error: BaseException) -> Settlement:
        """Settle a step that everpoll itself failed to make."""
        lease, text, fault = self.run.lease, error_text(error), self._fault(error)
        if self.memory.outcome is not None:
            self._log_cleanup_failure(text, self.memory.cleanup_tries + 1)
        event = Broken(text, fault, described(error), retry_after_s(error), lease.sequence, lease.cancel_requested)
        return self._settled(self._decided(event))

    def overdue(self) -> Settlement:
        """Settle the step although its function goes on after its deadline."""
        event = self._failure(self._calling, not_ended(self._limit_s))
        return self._settled(self._decided(event))

    def _decided(self, event: Event) -> Plan:
        before = self.memory
        self.memory, plan = decide(self.policy, before, event, self.now(), self.watch.rng.random())
        if before.started_at is None and self.memory.started_at is not None:
            self.watch.changes.log(logging.INFO, f"{self.watch.name} started", "%s: started", self.key)
        return plan

    def _settled(self, plan: Plan) -> Settlement:
        memory, lease, watch = self.memory, self.run.lease, self.watch
        assert isinstance(plan, (Due, Over)), "every other plan goes on with the step"
        if memory.outcome is not None and self._before.outcome is None:
            self._log_end(memory.outcome)
        if plan.decision is not None:
            for listener in watch.on_decision:
                try:
                    listener(memory.run_id, plan.decision)
                except Exception:
                    logger.exception("%s: a listener failed", self.key)
        text = encode(memory)
        self.runtime.tally(memory.counters, self._before.counters)
        events = () if plan.event is None else (NewEvent(memory.seq, encode_json(plan.event)),)
        if isinstance(plan, Due):
            if logger.isEnabledFor(logging.DEBUG):
                decision, next_in = plan.decision, human(plan.delay_s)
                logger.debug("%s: %s (%s); next step in %s", self.key, decision.why, decision.rule, next_in)
            return Again(lease.id, lease.sequence, plan.delay_s, refund=True, memory=text, events=events)
        assert memory.outcome is not None, "a run ends with an outcome"
        return Ended(lease.id, lease.sequence, STATES[memory.outcome], text, _end_note(memory), events)

    # ── calls ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _asked(self, plan: Admit) -> Event:
        """Ask the rate and the breaker of the remote."""
        watch = self.watch
        try:
            remote = watch.remote_of(self.op)
        except BaseException as raised:  # noqa: BLE001 - the user's own
            if plan.what in {"start", "look"}:
                return self._failure(plan.what, failure(self.run, raised), is_unasked=True)
            # A cancel and a cleanup go on: only the rate and the breaker need the name.
            logger.warning("%s: cannot tell its remote: %s", self.key, error_text(failure(self.run, raised)))
            remote = watch.name
        joins = plan.what == "look" and self.runtime.joins_a_call(remote)
        if plan.may_wait and not joins:
            postponed = watch.remotes.ask(remote, self.now(), has_token=plan.has_token, most_s=plan.most_s)
            if postponed is not None:
                return postponed
        self.remote = remote
        return Admitted()

    async def _called(self, plan: Call) -> Event:
        if plan.what == "reason":
            return await reason(self, plan)
        try:
            return await EFFECTS[plan.what](self, plan)
        except BaseException as raised:  # noqa: BLE001 - the user's own
            if self.is_canceling and isinstance(raised, NothingSent):
                if self.remote is not None:
                    self.watch.remotes.abandoned(self.remote)
                return Failed(plan.what, short_text(raised), "fatal", is_unsent=True)
            try:
                error = failure(self.run, raised)
            except BaseException:
                # The step was stopped. That proves nothing about the remote: another run may probe it.
                if self.remote is not None and not self.run.is_abandoned:
                    self.watch.remotes.abandoned(self.remote)
                raise
            return self._failure(plan.what, error)

    async def call(self, what: Calls, function: UserFunction, w: LookContext | None = None) -> Any:
        """Call a function of the user."""
        memory = self.memory

        def called(limit_s: float) -> Coroutine[Any, Any, Any]:
            return function(limit_s, self.op, key=self.key, handle=memory.handle, outcome=memory.outcome, w=w)

        return await self.within(what, called)

    async def within(self, what: Calls, call: Callable[[float], Coroutine[Any, Any, Any]]) -> Any:
        """Call within the timeout of the watch, and within what is left of the budget that the call uses up."""
        run = self.run
        self._calling, self._limit_s = what, call_limit_s(self.watch.policy.timeout_s, *self._left())
        run.ends_by(asyncio.get_running_loop().time() + self._limit_s)
        try:
            answer = await call(self._limit_s)
        finally:
            run.ends_by(None)
        if run.is_abandoned:
            raise asyncio.CancelledError(f"{what} has ended after it was abandoned")
        return answer

    def _left(self) -> tuple[float, float]:
        """Return what is left of the budget that a call uses up now, and the whole of it."""
        memory, now, policy = self.memory, self.now(), self.policy
        if memory.outcome is not None:
            since = now if memory.cleanup_at is None else memory.cleanup_at
            return policy.cleanup.remaining_s(now - since), policy.cleanup.time_s
        if self.run.lease.cancel_requested:
            since = now if memory.canceling_at is None else memory.canceling_at
            return policy.cancel_s - max(0.0, now - since), policy.cancel_s
        return policy.budget.remaining_s(memory.elapsed_s(now)), policy.budget.time_s

    def pace_at_start(self) -> Pace:
        """Ask the cadence for the wait before the first look."""
        memory = copy(self.memory)
        memory.started_at = None
        return self._pace(memory, memory.looks)

    def pace(self, progress: float | None = None) -> Pace:
        """Ask the cadence for the wait before the next look, given the share of progress that this look reported."""
        memory = self.memory
        if progress is not None:
            memory = copy(memory)
            mark_progress(memory, progress, self.now())
        return self._pace(memory, memory.looks)

    def _pace(self, memory: RunMemory, looks: int) -> Pace:
        # An operation that was started elsewhere is looked at at once: the first wait comes after that look.
        looks = max(0, looks - memory.is_given)
        learning, rng, kind = self.watch.learning, self.watch.rng, None
        try:
            kind = learning.kind_of(self.op)
            wait_s, why = learning.decided(kind, looks, memory, self.now(), rng)
            if isinstance(wait_s, (int, float)) and 0 <= wait_s <= math.inf:
                return Pace(float(wait_s), None, why, kind or None)
            raise BadInput(f"next_s returned {shown(wait_s)}; it returns seconds, 0 or more")
        except Exception as error:  # noqa: BLE001 - the user's own; the verdict of the look must not get lost
            logger.error("%s: its cadence failed, going on without it: %s", self.key, error_text(error))
            return Pace(FALLBACK.delay(looks + 1, rng), short_text(error_text(error)), None, kind or None)

    # ── failures ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _failure(self, what: Calls, error: BaseException, *, is_unasked: bool = False) -> Failed:
        """Classify, count and log a failure of a call."""
        memory, text, fault = self.memory, error_text(error), self._fault(error)
        is_look = what in {"look", "verify"}
        context = self.context if is_look else None
        report = None
        if context is not None:
            report = context.report(has_failed=True)
            context.let_go()
        if memory.outcome is not None:
            self._log_cleanup_failure(text, memory.cleanup_tries)
        elif not self.is_canceling:
            self._log_failure("start" if memory.phase == "intent" else "look" if is_look else what, text, fault, error)
        pace = resting = None
        if is_look and not self.is_canceling:
            pace = self._pace(memory, memory.looks + is_unasked)
        if self.remote is not None:
            resting = self._tell_breaker(self.remote, fault, None if context is None else context.call)
        return Failed(
            what,
            text,
            fault,
            None if fault == "transient" else described(error),
            retry_after_s(error),
            resting,
            is_unasked,
            report=report,
            pace=pace,
            took_s=self.look_took_s,
            remote=self.named_remote,
        )

    def _tell_breaker(self, remote: str, fault: Fault, call: int | None) -> Postponed | None:
        """Tell the breaker of the remote; return how long the remote rests now, if it does."""
        if fault == "transient":
            return self.watch.remotes.failed(remote, self.now(), call)
        self.watch.remotes.answered(remote)
        return None

    def _fault(self, error: BaseException) -> Fault:
        try:
            return fault_of(error, self.watch.policy.rules)
        except Exception as wrong:  # noqa: BLE001 - the user's own rule, or an attribute of a library's error
            logger.error("%s: cannot tell what %s means: %s", self.key, type(error).__name__, error_text(wrong))
            return "odd"

    # ── log ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _log_failure(self, what: str, text: str, fault: Fault, error: BaseException) -> None:
        subject, line = f"{self.watch.name} {what} failed", "%s: %s failed (%s): %s"
        extra = about(error_type=type(error).__name__)
        self.watch.failures.log(logging.WARNING, subject, line, self.key, what, fault, text, extra=extra)

    def _log_cleanup_failure(self, text: str, tries: int) -> None:
        why = f"cleanup failed (try {tries}): {text}"
        self.watch.failures.log(logging.WARNING, f"{self.watch.name} cleanup failed", "%s: %s", self.key, why)

    def _log_end(self, outcome: Outcome) -> None:
        memory = self.memory
        assert memory.decided_at is not None, "an outcome has its time"
        took_s = 0.0 if memory.begun_at is None else max(0.0, memory.decided_at - memory.begun_at)
        looks = "1 look" if memory.looks == 1 else f"{memory.looks} looks"
        is_bad = outcome in {"failed", "timed_out"}
        (self.watch.failures if is_bad else self.watch.changes).log(
            logging.ERROR if is_bad else logging.INFO,
            f"{self.watch.name} {outcome}",
            "%s: %s after %s in %s%s",
            self.key,
            outcome.replace("_", " "),
            looks,
            human(took_s),
            f": {memory.reason}" if memory.reason else "",
            extra=about(outcome=outcome, duration_s=round(took_s, 6)),
        )


EFFECTS: dict[Calls, Callable[[Step, Call], Awaitable[Event]]] = {
    "start": start,
    "adopt": adopt,
    "look": look,
    "verify": verify,
    "cancel": cancel,
    "cleanup": cleanup,
}


def _end_note(memory: RunMemory) -> str | None:
    if memory.outcome == "ready":
        return None
    return encode_json({"what": memory.outcome, "why" if memory.outcome == "canceled" else "error": memory.reason})
