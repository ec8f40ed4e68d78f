"""One step of a run: all calls between a lease and its settlement.

    Leased ──▶ decide ──▶ plan ──▶ call a function of the user ──▶ event ──▶ decide ──▶ … ──▶ settlement

`decide` has all the rules; this shell calls, measures, logs and writes. Promises: a step has one settlement, which is
one fenced write of memory, due time and events. Anything that a function of the user raises, SystemExit included, is a
failure of that look, start, cancel or cleanup. What a function returns after the pool has abandoned it is ignored.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any

from everpoll.engine.calls import failure, not_ended
from everpoll.engine.work import Run
from everpoll.policy import human
from everpoll.stores.contract import Again, Ended, EndState, NewEvent, Settlement
from everpoll.stores.contract import encode as encode_json
from everpoll.watches.cancel import cancel, read_reason
from everpoll.watches.cleanup import cleanup
from everpoll.watches.context import LookContext
from everpoll.watches.decisions import decide
from everpoll.watches.decisions.events import Admitted, Calls, Event, Failed, Leased, NeedsCode, Paused
from everpoll.watches.decisions.plans import Admit, Call, Due, Over, Plan
from everpoll.watches.extension import extension_of
from everpoll.watches.failures import broken, failed
from everpoll.watches.faults import NothingSent
from everpoll.watches.functions import UserFunction
from everpoll.watches.limits import error_text, short_text
from everpoll.watches.look import look, verify
from everpoll.watches.memory import Outcome, RunMemory, encode
from everpoll.watches.run_log import log_end, log_start
from everpoll.watches.schedule import call_limit_s
from everpoll.watches.start import adopt, start

if TYPE_CHECKING:
    from everpoll.watches.runtime import Runtime

logger = logging.getLogger("everpoll.watches")

PAUSED_S = 3_600.0
"""How long a paused run waits until its row is leased again; resuming it makes it due at once."""
STATES: dict[Outcome, EndState] = {"ready": "done", "failed": "failed", "timed_out": "failed", "canceled": "canceled"}


class Step:
    """One lease of one run."""

    def __init__(self, runtime: "Runtime", run: Run, memory: RunMemory, op: Any) -> None:
        self.runtime = runtime
        watch = self.watch = runtime.watch
        self._extension = extension_of(run.lease.args)
        self.policy = watch.run_policy(self._extension)
        self.run = run
        self.op = op
        self.key = watch.key_of(memory.run_id)
        self.now = run.clock(asyncio.get_running_loop().time)
        """Reads the store's clock."""
        self.memory = memory
        self._before = memory
        self.remote: str | None = None
        """The remote that this step may call; None before it was admitted."""
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

    async def take(self) -> Settlement:
        """Make the step."""
        lease, pause = self.run.lease, self._extension.pause
        event: Event = Leased(lease.sequence, lease.cancel_requested)
        if pause is not None and not lease.cancel_requested and self.memory.outcome is None:
            event = Paused(str(pause), PAUSED_S)
        while True:
            plan = self._decided(event)
            if isinstance(plan, Call):
                event = await self._called(plan)
            elif isinstance(plan, Admit):
                event = self._admitted(plan)
            else:
                if self.remote is not None and type(event) is not Failed:
                    self.runtime.remotes.answered(self.remote)
                return self._settled(plan)

    def park(self, why: str, wait_s: float) -> Settlement:
        """Settle the step without a call: this worker has no code for the run."""
        return self._settled(self._decided(NeedsCode(why, wait_s)))

    def broken(self, error: BaseException) -> Settlement:
        """Settle a step that everpoll itself failed to make."""
        return self._settled(self._decided(broken(self, error)))

    def overdue(self) -> Settlement:
        """Settle the step while its function still runs after its deadline."""
        return self._settled(self._decided(failed(self, self._calling, not_ended(self._limit_s))))

    def _decided(self, event: Event) -> Plan:
        before = self.memory
        self.memory, plan = decide(self.policy, before, event, self.now(), self.runtime.rng.random())
        if before.started_at is None and self.memory.started_at is not None:
            log_start(self)
        return plan

    def _settled(self, plan: Plan) -> Settlement:
        memory, lease, watch = self.memory, self.run.lease, self.watch
        assert isinstance(plan, (Due, Over)), "every other plan goes on with the step"
        if memory.outcome is not None and self._before.outcome is None:
            log_end(self, memory.outcome)
        if plan.decision is not None:
            for listener in watch.on_decision:
                try:
                    listener(memory.run_id, plan.decision)
                except Exception:
                    logger.exception("%s: a listener failed", self.key)
        text = encode(memory)
        self.runtime.add_counters(memory.counters, self._before.counters)
        events = () if plan.event is None else (NewEvent(memory.seq, encode_json(plan.event)),)
        if isinstance(plan, Due):
            if logger.isEnabledFor(logging.DEBUG):
                decision, next_in = plan.decision, human(plan.delay_s)
                logger.debug("%s: %s (%s); next step in %s", self.key, decision.why, decision.rule, next_in)
            return Again(lease.id, lease.sequence, plan.delay_s, refund=True, memory=text, events=events)
        assert memory.outcome is not None, "a run ends with an outcome"
        return Ended(lease.id, lease.sequence, STATES[memory.outcome], text, _end_note(memory), events)

    def _admitted(self, plan: Admit) -> Event:
        """Ask the rate and the breaker of the remote."""
        watch = self.watch
        try:
            remote = watch.remote_of(self.op)
        except BaseException as raised:  # noqa: BLE001 - the user's own
            if plan.what in {"start", "look"}:
                return failed(self, plan.what, failure(self.run, raised), before_call=True)
            # A cancel and a cleanup go on: only the rate and the breaker need the name.
            logger.warning("%s: remote= failed: %s", self.key, error_text(failure(self.run, raised)))
            remote = watch.name
        joins = plan.what == "look" and self.runtime.joins_batch(remote)
        if plan.may_wait and not joins:
            postponed = self.runtime.remotes.admit(remote, self.now(), has_token=plan.has_token, most_s=plan.most_s)
            if postponed is not None:
                return postponed
        self.remote = remote
        return Admitted()

    async def _called(self, plan: Call) -> Event:
        if plan.what == "reason":
            return await read_reason(self, plan)
        try:
            return await EFFECTS[plan.what](self, plan)
        except BaseException as raised:  # noqa: BLE001 - the user's own
            if self.is_canceling and isinstance(raised, NothingSent):
                if self.remote is not None:
                    self.runtime.remotes.release_probe(self.remote)
                return Failed(plan.what, short_text(raised), "fatal", is_unsent=True)
            try:
                error = failure(self.run, raised)
            except BaseException:
                # The step was stopped, which proves nothing about the remote: another run may probe it.
                if self.remote is not None and not self.run.is_abandoned:
                    self.runtime.remotes.release_probe(self.remote)
                raise
            return failed(self, plan.what, error)

    async def call(self, what: Calls, function: UserFunction, w: LookContext | None = None) -> Any:
        """Call a function of the user."""
        memory = self.memory

        def called(limit_s: float) -> Coroutine[Any, Any, Any]:
            return function(limit_s, self.op, key=self.key, handle=memory.handle, outcome=memory.outcome, w=w)

        return await self.within(what, called)

    async def within(self, what: Calls, call: Callable[[float], Coroutine[Any, Any, Any]]) -> Any:
        """Call within the timeout of the watch, and within what is left of the call's budget."""
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
        """Return what is left of the budget of a call now (run, cancel or cleanup), and the whole budget."""
        memory, now, policy = self.memory, self.now(), self.policy
        if memory.outcome is not None:
            since = now if memory.cleanup_at is None else memory.cleanup_at
            return policy.cleanup.remaining_s(now - since), policy.cleanup.time_s
        if self.run.lease.cancel_requested:
            since = now if memory.canceling_at is None else memory.canceling_at
            return policy.cancel_s - max(0.0, now - since), policy.cancel_s
        return policy.budget.remaining_s(memory.elapsed_s(now)), policy.budget.time_s


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
