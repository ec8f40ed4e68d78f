"""Going on: when the next step of a run is, after an answer, an error, or a remote that may not be asked now.

Promises: no plan lies behind the deadline, and none before what the remote has asked for. An error in passing is
counted, told to the breaker of its remote, and tried again for as long as it may get better.
"""

import logging
import math
from dataclasses import replace
from typing import Any

from everpoll.engine.calls import described, failure
from everpoll.errors import BadInput
from everpoll.http.retry_after import retry_after_s
from everpoll.logs.context import about
from everpoll.policy import human, shown
from everpoll.stores.contract import Settlement
from everpoll.watches.cadence import History
from everpoll.watches.faults import Fault, fault_of
from everpoll.watches.limits import told, told_error
from everpoll.watches.options import DEFAULT_START, FALLBACK
from everpoll.watches.remotes import Postponed
from everpoll.watches.schedule import CLOCK_SLACK_S, NextLook, Wishes, is_last, next_look
from everpoll.watches.settling import Settling

logger = logging.getLogger("everpoll.watches")

SILENT = "looks without a word"
"""Those that returned None."""


class Planning(Settling):
    """One lease of one run, and the ways to go on with it later."""

    def _asked(self, remote: str) -> Postponed | None:
        """Whether the remote may be asked now; None: yes."""
        memory, now = self._memory, self._now
        left_s = self._policy.budget.remaining_s(memory.elapsed_s(now))
        most_s = 0.0 if self._watch.looks_at_many else left_s
        return self._watch.remotes.ask(remote, now, has_token=memory.has_token, most_s=most_s)

    def _postpone(self, postponed: Postponed) -> Settlement:
        memory, now, rule, why, wait_s = self._memory, self._now, postponed.rule, postponed.why, postponed.wait_s
        memory.count(f"postponed:{rule}")
        if rule == "breaker":
            pause_s, memory.has_token = self._pause_left_s(), False
            if pause_s > 0:
                memory.pause(now, pause_s)
                return self._again(NextLook(min(wait_s, pause_s), rule, why))
            memory.unpause(now)
        left_s = self._policy.budget.remaining_s(memory.elapsed_s(now))
        # Whose turn comes behind its deadline has none: all of those would ask at once, at the deadline. Nor has who
        # joins others in a call: that one takes it.
        memory.has_token = rule == "rate" and wait_s <= left_s and not self._watch.looks_at_many
        return self._again_unless_spent(NextLook(min(wait_s, left_s), rule, why))

    def _pause_left_s(self) -> float:
        """How much longer the budget may stand still for outages of the remote."""
        memory = self._memory
        counted_s = memory.outage_s + (0.0 if memory.paused_most_s is None else memory.pause_s(self._now))
        left_s = self._policy.outage_s - counted_s
        return left_s if left_s > CLOCK_SLACK_S else 0.0

    def _pending(self, hints: dict[str, float], after_s: float | None, floor_s: float | None = None) -> Settlement:
        now = self._now
        elapsed_s = self._memory.elapsed_s(now)
        wishes = Wishes(self._cadence_s(elapsed_s), hints, after_s, floor_s, self._watch.rng.random())
        return self._again_unless_spent(next_look(wishes, self._policy.budget, now, elapsed_s))

    def _again_unless_spent(self, planned: NextLook) -> Settlement:
        """Once the last look of the budget was made, there is nothing to wait for."""
        budget, memory = self._policy.budget, self._memory
        elapsed_s = memory.elapsed_s(self._now)
        if is_last(budget, elapsed_s) or (budget.looks is not None and memory.looks >= budget.looks):
            why = budget.spent(elapsed_s, memory.looks)
            why = why or f"time budget of {human(budget.time_s)} is spent"
            return self._conclude("timed_out", f"{why}{self._last_seen()}")
        return self._again(planned)

    def _last_seen(self) -> str:
        """What the last look brought, for whoever reads that time is over."""
        memory = self._memory
        outage = f"; its remote could not be asked for {human(round(memory.outage_s))}" if memory.outage_s >= 1 else ""
        if memory.errors_in_a_row:
            errors = [self._changed, *(decision.facts for decision in reversed(memory.log))]
            said = next((facts["error"] for facts in errors if "error" in facts), None)
            what = "starts" if memory.phase == "intent" else "looks"
            return f"{outage}; the last {memory.errors_in_a_row} {what} failed: {said}" if said else outage
        if memory.looks and memory.counters.get(SILENT) == memory.counters.get("looks"):
            return "; every look returned None: is there a return missing?"
        said = ", ".join(one for one in (memory.status, memory.progress) if one)
        return f"; last seen: {said}" if said else ""

    def _cadence_s(self, elapsed_s: float) -> float:
        # The look at what was started elsewhere comes at once: the first wait is behind it.
        looks = max(0, self._memory.looks - self._memory.is_given)
        history = History(looks, elapsed_s, self._watch.durations_s)
        try:
            wait_s: Any = self._policy.cadence.next_s(history, self._watch.rng)
            if isinstance(wait_s, (int, float)) and 0 <= wait_s <= math.inf:
                return float(wait_s)
            raise BadInput(f"next_s returned {shown(wait_s)}; it returns seconds, 0 or more")
        except Exception as error:  # noqa: BLE001 - the user's own, and no reason to lose what was just seen
            logger.error("%s: its cadence failed, going on without it: %s", self._key, told_error(error))
            self._memory.count("cadence failed")
            self._changed["cadence failed"] = told(told_error(error))
            return FALLBACK.delay(looks + 1, self._watch.rng)

    def _failure(self, error: BaseException, remote: str) -> BaseException:
        """What it means for the run. What is none of its business passes on, and has proven nothing of the remote."""
        try:
            return failure(self._run, error)
        except BaseException:
            if not self._run.is_abandoned:
                self._watch.remotes.abandoned(remote)
            raise

    def _remote(self) -> str:
        """Who is told to cancel, or cleaned up at: what the user's own function cannot say is no reason not to."""
        try:
            return self._watch.remote_of(self._op)
        except BaseException as error:  # noqa: BLE001 - the user's own
            logger.warning("%s: cannot tell its remote: %s", self._key, told_error(failure(self._run, error)))
            return self._watch.name

    def _weighed(self, raised: BaseException, remote: str | None) -> tuple[BaseException, Fault]:
        """What a cancel or a cleanup has raised, and what that means; its remote's breaker is told."""
        error = failure(self._run, raised) if remote is None else self._failure(raised, remote)
        fault = self._fault(error)
        if remote is not None:
            self._failed_at(remote, fault)
        return error, fault

    def _failed_at(self, remote: str, fault: Fault, call: int | None = None) -> Postponed | None:
        """Tell the breaker; how long the remote rests now, if it does."""
        if fault == "transient":
            return self._watch.remotes.failed(remote, self._now, call)
        self._watch.remotes.answered(remote)
        return None

    def _fault(self, error: BaseException) -> Fault:
        try:
            return fault_of(error, self._policy.rules)
        except Exception as wrong:  # noqa: BLE001 - the user's own rule, or an attribute of somebody else's error
            logger.error("%s: cannot tell what %s means: %s", self._key, type(error).__name__, told_error(wrong))
            return "odd"

    def _failed_in_passing(
        self, what: str, error: BaseException, remote: str | None = None, call: int | None = None
    ) -> Settlement:
        """A start, an adoption or a look has raised: go on, or give up."""
        memory, fault = self._memory, self._fault(error)
        memory.errors += 1
        memory.errors_in_a_row += 1
        memory.count(f"{what} failed")
        subject, text = f"{self._watch.name} {what} failed", "%s: %s failed (%s): %s"
        extra = about(error_type=type(error).__name__)
        args = (self._key, what, fault, told_error(error))
        self._watch.failures.log(logging.WARNING, subject, text, *args, extra=extra)
        resting = None if remote is None else self._failed_at(remote, fault, call)
        if fault == "fatal":
            return self._conclude("failed", f"{what} failed: {told_error(error)}", evidence=described(error))
        if fault == "odd" and memory.errors_in_a_row >= self._policy.odd_errors:
            why = f"{what} failed {memory.errors_in_a_row} times in a row: {told_error(error)}"
            return self._conclude("failed", why, evidence=described(error))
        self._changed["error"] = told(told_error(error))
        if resting is not None and self._pause_left_s() > 0:
            # It was the probe, or is the last straw: nobody can look, and that burns neither its time nor its looks.
            memory.looks -= what == "look"
            # What it asks for is heard, within the budget: that stands still meanwhile, and a day is soon said.
            wished_s = min(retry_after_s(error) or 0.0, self._policy.budget.remaining_s(memory.elapsed_s(self._now)))
            return self._postpone(replace(resting, wait_s=max(resting.wait_s, wished_s)))
        if what == "look":
            return self._pending({}, None, retry_after_s(error))
        return self._try_again(what, error)

    def _try_again(self, what: str, error: BaseException, left_s: float | None = None) -> Settlement:
        memory = self._memory
        if what == "cancel":
            memory.errors += 1
            memory.errors_in_a_row += 1
        left_s = self._policy.budget.remaining_s(memory.elapsed_s(self._now)) if left_s is None else left_s
        floor_s, rng = retry_after_s(error) or 0.0, self._watch.rng
        delay_s = DEFAULT_START.delay(memory.errors_in_a_row, rng, at_least_s=floor_s, at_most_s=left_s)
        if what == "cancel" and memory.cancel_sent:
            what = "the remote was told to cancel, but the look after that"
        return self._again(NextLook(delay_s, "error", f"{what} failed: {told(told_error(error))}"))
