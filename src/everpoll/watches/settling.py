"""How a step is written down: what a run remembers, when it is due again, and what subscribers are told, as one.

    _again      due again, because of this rule           _conclude   has its outcome; cleaned up next, else ended
    park        due again, once there is code for it      _end        ended

Promises: one settlement. Each decision is noted in the log of the run with its rule and its reason. An event is written
where something changed that people see, and at the end, under the next number of the run.
"""

import asyncio
import logging
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from everpoll.engine.work import Run
from everpoll.logs.context import about
from everpoll.policy import human
from everpoll.stores.contract import Again, Ended, EndState, NewEvent, Settlement
from everpoll.stores.contract import encode as encode_json
from everpoll.watches.extension import extension_of
from everpoll.watches.limits import CHANGED_LIMIT, REASON_LIMIT, WHY_LIMIT, told
from everpoll.watches.memory import Decision, Outcome, RunMemory, encode
from everpoll.watches.options import WatchPolicy
from everpoll.watches.schedule import NextLook

if TYPE_CHECKING:
    from everpoll.watches.watch import Watch

logger = logging.getLogger("everpoll.watches")


def _extended(policy: WatchPolicy, args: str) -> WatchPolicy:
    """The policy with the budget that this run has."""
    extension = extension_of(args)
    return replace(policy, budget=extension.grown(policy.budget)) if extension else policy


STATES: dict[Outcome, EndState] = {"ready": "done", "failed": "failed", "timed_out": "failed", "canceled": "canceled"}


class Settling:
    """One lease of one run, and the ways to settle it."""

    def __init__(self, watch: "Watch[Any]", run: Run, memory: RunMemory, op: Any) -> None:
        self._watch = watch
        self._policy = _extended(watch.policy, run.lease.args)
        self._run = run
        self._lease = run.lease
        self._memory = memory
        self._op = op
        self._key = watch.key_of(memory.run_id)
        self._shown = self._visible()
        self._counted = dict(memory.counters)
        self._looks_before = memory.looks
        self._look_took_s: float | None = None
        self._changed: dict[str, Any] = {}
        self._has_called_start = False
        self._calling = "step"
        """Which of the user's functions is under way …"""
        self._limit_s = 0.0
        """… within which time …"""
        self._asking: str | None = None
        """… at which remote."""
        self.migrated: dict[str, Any] | None = None
        """What the user's own memory became on the way to this version: a look that fails does not undo that."""

    @property
    def _now(self) -> float:
        return self._run.now(asyncio.get_running_loop().time())

    @property
    def _may_have_started(self) -> bool:
        """An earlier lease, or this one, may have gone as far as the remote, and may have left something there."""
        return self._lease.sequence > 1 or self._has_called_start

    def park(self, why: str, wait_s: float) -> Settlement:
        """No code here may touch it."""
        memory, why = self._memory, told(why, REASON_LIMIT)
        memory.parked = why
        memory.pause(self._now)
        return self._again(NextLook(wait_s, "needs_code", why))

    def _conclude(self, outcome: Outcome, why: str, *, value: Any = None, evidence: Any = None) -> Settlement:
        """The run has its outcome; the cleanup follows once that is committed."""
        memory, now, why = self._memory, self._now, told(why, REASON_LIMIT)
        memory.unpause(now)
        memory.outcome, memory.reason, memory.value, memory.evidence = outcome, why, value, evidence
        memory.decided_at = now
        memory.took_s = self._took_s() if outcome in {"ready", "failed"} else None
        memory.count(f"outcome:{outcome}")
        self._note(Decision(now, outcome, why, None, memory.status, self._changed))
        self._tell_end(outcome, why, now)
        # What was started elsewhere is cleaned up, too; only a start of ours that never was has left nothing behind.
        is_untouched = self._watch.starts is not None and memory.handle is None and not self._may_have_started
        if self._watch.cleans is None or is_untouched:
            return self._end()
        memory.phase = "cleaning"
        events = self._events()
        return Again(self._lease.id, self._lease.sequence, 0.0, refund=True, memory=self._stored(), events=events)

    def _tell_start(self) -> None:
        """Log that the operation runs: from here on it is looked at."""
        self._watch.changes.log(logging.INFO, f"{self._watch.name} started", "%s: started", self._key)

    def _tell_end(self, outcome: Outcome, why: str, now: float) -> None:
        memory = self._memory
        took_s = max(0.0, now - (now if memory.begun_at is None else memory.begun_at))
        looks = "1 look" if memory.looks == 1 else f"{memory.looks} looks"
        is_bad = outcome in {"failed", "timed_out"}
        (self._watch.failures if is_bad else self._watch.changes).log(
            logging.ERROR if is_bad else logging.INFO,
            f"{self._watch.name} {outcome}",
            "%s: %s after %s in %s%s",
            self._key,
            outcome.replace("_", " "),
            looks,
            human(took_s),
            f": {why}" if why else "",
            extra=about(outcome=outcome, duration_s=round(took_s, 6)),
        )

    def _again(self, planned: NextLook) -> Settlement:
        memory = self._memory
        if logger.isEnabledFor(logging.DEBUG):
            logger.debug("%s: %s (%s); next step in %s", self._key, planned.why, planned.rule, human(planned.delay_s))
        self._note(Decision(self._now, planned.rule, planned.why, planned.delay_s, memory.status, self._changed))
        events = self._events()
        return Again(
            self._lease.id, self._lease.sequence, planned.delay_s, refund=True, memory=self._stored(), events=events
        )

    def _end(self) -> Settlement:
        memory = self._memory
        assert memory.outcome is not None, "a run ends with an outcome"
        events = self._events(is_end=True)
        return Ended(
            self._lease.id, self._lease.sequence, STATES[memory.outcome], self._stored(), self._end_note(), events
        )

    def _end_note(self) -> str | None:
        memory = self._memory
        if memory.outcome == "ready":
            return None
        said = {"what": memory.outcome, "why" if memory.outcome == "canceled" else "error": memory.reason}
        return encode_json(said)

    def _note(self, decision: Decision) -> None:
        decision.why = told(decision.why, WHY_LIMIT)
        if self._memory.looks > self._looks_before:
            decision.look, decision.took_s = self._memory.looks, self._look_took_s
        if len(decision.facts) > CHANGED_LIMIT:
            decision.facts = dict(islice(decision.facts.items(), CHANGED_LIMIT))
        for listener in self._watch.on_decision:
            try:
                listener(self._memory.run_id, decision)
            except Exception:
                logger.exception("%s: a listener failed", self._key)
        self._memory.note(decision)

    def _stored(self) -> str:
        budget = self._watch.policy.budget
        self._memory.budget_s, self._memory.budget_looks = budget.time_s, budget.looks
        text = encode(self._memory)
        self._watch.tally(self._memory.counters, self._counted)
        return text

    def _visible(self) -> tuple[Any, ...]:
        """What subscribers are told of when it changes."""
        one = self._memory
        return (one.phase, one.status, one.progress, one.outcome, one.parked)

    def _events(self, *, is_end: bool = False) -> tuple[NewEvent, ...]:
        if self._visible() == self._shown and not is_end:
            return ()
        memory = self._memory
        memory.seq += 1
        body = {
            "phase": "ended" if is_end else "needs_code" if memory.parked else memory.phase,
            "status": memory.status,
            "progress": memory.progress,
            "outcome": memory.outcome,
            "reason": memory.reason,
            "looks": memory.looks,
        }
        return (NewEvent(memory.seq, encode_json({name: value for name, value in body.items() if value is not None})),)

    def _took_s(self) -> float | None:
        """How long the operation took, as far as looks can tell."""
        memory = self._memory
        # What ended in its start was never looked at: its duration says nothing about when to look.
        if memory.started_at is None or memory.decided_at is None or memory.looks == 0:
            return None
        unseen_s = memory.decided_at - max(memory.looked_at or memory.started_at, memory.started_at)
        return max(0.0, memory.elapsed_s(memory.decided_at) - unseen_s / 2)
