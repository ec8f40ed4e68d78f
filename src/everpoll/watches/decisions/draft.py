"""A draft: the memory of a run while `decide` changes it, and the ways to settle the step.

Promises: the memory that went in stays as it was. Each settlement adds one decision to the log of the run, with its
rule and its reason. No next look is planned after the deadline.
"""

from copy import copy
from itertools import islice
from typing import Any

from everpoll.policy import human
from everpoll.watches.decisions.events import Pace, Report
from everpoll.watches.decisions.plans import Due, Over, Plan
from everpoll.watches.decisions.policy import DEFAULT_START, RunPolicy
from everpoll.watches.decisions.spans import mark_progress, span_of
from everpoll.watches.limits import CHANGED_LIMIT, REASON_LIMIT, WHY_LIMIT, short_text
from everpoll.watches.memory import Decision, Outcome, RunMemory, StepNotes
from everpoll.watches.schedule import CLOCK_SLACK_S, NextLook, is_last
from everpoll.watches.verdicts import Done, Fail, Wait

NO_VERDICT = "looks that returned None"
"""Counts the looks that returned None."""


class Draft:
    """One call of `decide`."""

    __slots__ = ("chance", "memory", "notes", "now", "policy")

    def __init__(self, policy: RunPolicy, memory: RunMemory, now: float, chance: float) -> None:
        self.policy = policy
        self.now = now
        self.chance = chance
        draft = self.memory = copy(memory)
        draft.counters = memory.counters.copy()
        before = memory.step
        self.notes = draft.step = StepNotes(visible(memory), memory.looks) if before is None else copy(before)

    def random(self) -> float:
        """Return the drawn number: backoffs take a draft as their random generator."""
        return self.chance

    @property
    def elapsed_s(self) -> float:
        """How much of the time budget is used."""
        return self.memory.elapsed_s(self.now)

    @property
    def left_s(self) -> float:
        """What is left of the time budget."""
        return self.policy.budget.remaining_s(self.elapsed_s)

    @property
    def longest_token_wait_s(self) -> float:
        """How long a run may wait for its rate token. Runs of `look_many` take none: their common call does."""
        return 0.0 if self.policy.has_look_many else self.left_s

    @property
    def pause_left_s(self) -> float:
        """How much longer the budget may be paused for outages of the remote."""
        memory = self.memory
        counted_s = memory.outage_s + (0.0 if memory.paused_most_s is None else memory.pause_s(self.now))
        left_s = self.policy.outage_s - counted_s
        return left_s if left_s > CLOCK_SLACK_S else 0.0

    def take_report(self, report: Report) -> None:
        """Store what a look has reported."""
        memory = self.memory
        self.take_words(report)
        memory.confirms = memory.confirms if report.confirms is None else report.confirms
        memory.dues = memory.dues if report.dues is None else report.dues
        memory.user = memory.user if report.user is None else report.user

    def take_words(self, report: Report) -> None:
        """Store counters, status and progress, which count even if the look has failed."""
        memory = self.memory
        memory.counters = memory.counters if report.counters is None else report.counters.copy()
        if report.has_reported:
            memory.status, memory.progress = report.status, report.progress

    def take_wait(self, verdict: Wait) -> None:
        """Store the status, the progress and the note of a verdict."""
        memory = self.memory
        memory.status = memory.status if verdict.status is None else short_text(verdict.status)
        if verdict.progress is not None:
            mark_progress(memory, verdict.progress, self.now)
            memory.progress = f"{verdict.progress:.0%}"
        memory.progress = memory.progress if verdict.note is None else short_text(verdict.note)

    def wait_of(self, pace: Pace | None) -> tuple[float, str | None]:
        """Return the wait that the cadence chose, and its reason; count a failure of the cadence."""
        assert pace is not None, "every event after which a run may wait has a pace"
        if pace.error is not None:
            self.memory.count("cadence failed")
            self.notes.note_change({"cadence failed": pace.error})
        self.memory.learned_as = pace.kind
        return pace.wait_s, pace.why

    def conclude_by(self, verdict: Done | Fail) -> Plan:
        """Set the outcome that the verdict names."""
        if verdict.status is not None:
            self.memory.status = short_text(verdict.status)
        if isinstance(verdict, Done):
            return self.conclude("ready", verdict.why, value=verdict.value)
        return self.conclude("canceled" if verdict.canceled else "failed", verdict.reason, evidence=verdict.evidence)

    def make_due(self, delay_s: float, rule: str, why: str) -> Plan:
        """Make the run due again."""
        decision = self._logged(Decision(self.now, rule, why, delay_s, self.memory.status, self.notes.changed))
        return Due(delay_s, decision, self._ready_for_row())

    def make_due_or_time_out(self, planned: NextLook) -> Plan:
        """Make the run due again, or time it out if this was the last look of its budget."""
        budget, memory, elapsed_s = self.policy.budget, self.memory, self.elapsed_s
        if is_last(budget, elapsed_s) or (budget.looks is not None and memory.looks >= budget.looks):
            why = budget.spent(elapsed_s, memory.looks) or f"time budget of {human(budget.time_s)} is spent"
            return self.conclude("timed_out", f"{why}{self.last_seen()}")
        return self.make_due(planned.delay_s, planned.rule, planned.why)

    def try_again(self, what: str, error: str, retry_after_s: float | None, left_s: float | None = None) -> Plan:
        """Make the run due again after a failure of anything but a look."""
        delay_s = DEFAULT_START.delay(
            self.memory.errors_in_a_row,
            self,
            at_least_s=retry_after_s or 0.0,
            at_most_s=self.left_s if left_s is None else left_s,
        )
        return self.make_due(delay_s, "error", f"{what} failed: {short_text(error)}")

    def conclude(self, outcome: Outcome, why: str, *, value: Any = None, evidence: Any = None) -> Plan:
        """Set the outcome. The cleanup is a step of its own, after the outcome is committed."""
        memory, now, policy = self.memory, self.now, self.policy
        memory.unpause(now)
        memory.outcome, memory.value, memory.evidence = outcome, value, evidence
        memory.reason = short_text(why, REASON_LIMIT)
        memory.decided_at = now
        memory.span = span_of(memory, has_start=policy.can_start)
        memory.count(f"outcome:{outcome}")
        decision = self._logged(Decision(now, outcome, memory.reason, None, memory.status, self.notes.changed))
        # An operation that was started elsewhere is cleaned up, too. Only a start that was never called left nothing.
        is_untouched = policy.can_start and memory.handle is None and not self.notes.may_have_started
        if not policy.can_clean or is_untouched:
            return self.end(decision)
        memory.phase = "cleaning"
        return Due(0.0, decision, self._ready_for_row())

    def end(self, decision: Decision | None) -> Plan:
        """End the run, which has its outcome."""
        assert self.memory.outcome is not None, "a run ends with an outcome"
        event = self._ready_for_row(is_end=True)
        assert event is not None, "the end is always an event"
        return Over(decision, event)

    def note(self, rule: str, why: str) -> Decision:
        """Log a decision about the cleanup, which comes after the outcome."""
        return self._logged(Decision(self.now, rule, why))

    def last_seen(self) -> str:
        """Return the last observation, as the end of the reason for a timeout."""
        memory = self.memory
        outage = f"; its remote was unreachable for {human(round(memory.outage_s))}" if memory.outage_s >= 1 else ""
        if memory.errors_in_a_row:
            errors = [self.notes.changed, *(decision.facts for decision in reversed(memory.log))]
            said = next((facts["error"] for facts in errors if "error" in facts), None)
            what = "starts" if memory.phase == "intent" else "looks"
            return f"{outage}; the last {memory.errors_in_a_row} {what} failed: {said}" if said else outage
        if 0 < memory.counters.get(NO_VERDICT, 0) == memory.counters.get("looks"):
            return "; every look returned None: is there a return missing?"
        said = ", ".join(one for one in (memory.status, memory.progress) if one)
        return f"; last seen: {said}" if said else ""

    def _logged(self, decision: Decision) -> Decision:
        decision.why = short_text(decision.why, WHY_LIMIT)
        if self.memory.looks > self.notes.looks:
            decision.look, decision.took_s = self.memory.looks, self.notes.look_took_s
        if len(decision.facts) > CHANGED_LIMIT:
            decision.facts = dict(islice(decision.facts.items(), CHANGED_LIMIT))
        self.memory.note(decision)
        return decision

    def _ready_for_row(self, *, is_end: bool = False) -> dict[str, Any] | None:
        """Complete the memory for its row; return the event for subscribers, or None if they see no change."""
        memory, budget = self.memory, self.policy.own_budget
        memory.budget_s, memory.budget_looks = budget.time_s, budget.looks
        memory.step = None
        if not is_end and visible(memory) == self.notes.visible:
            return None
        memory.seq += 1
        body = {
            "phase": "ended" if is_end else "needs_code" if memory.parked else memory.phase,
            "status": memory.status,
            "progress": memory.progress,
            "outcome": memory.outcome,
            "reason": memory.reason,
            "looks": memory.looks,
        }
        return {name: value for name, value in body.items() if value is not None}


def visible(memory: RunMemory) -> tuple[str | None, ...]:
    """Return the values that subscribers see: a change of them is an event."""
    return (memory.phase, memory.status, memory.progress, memory.outcome, memory.parked)
