"""The one decision of watches: (policy, memory, event, now, chance) → (memory, plan).

    outcome known?  ──▶ clean up                                                     (after the outcome is committed)
    canceled?       ──▶ ask the remote to cancel, look until it has ended, or time is over
    paused?         ──▶ later, and the budget stands still                           (the shell sends `Paused`)
    not started?    ──▶ adopt what an earlier lease has started, else start          (both with the same key)
    budget spent?   ──▶ timed out
    remote refused? ──▶ later                                                        (by its rate or its breaker)
    else            ──▶ look, and judge the verdict

Pure: the store's time and the random number for jitter are arguments, and errors are text. The memory that goes in
stays as it is, so a step that breaks off has changed nothing. A step is a series of events from `Leased` to a plan that
settles it; between two steps, `memory.step` is None.
"""

from collections.abc import Callable
from typing import Any

from everpoll.watches.decisions import canceling, cleaning, looking, starting
from everpoll.watches.decisions.draft import Draft
from everpoll.watches.decisions.events import (
    Admitted,
    Adopted,
    Broken,
    CancelReason,
    CancelSent,
    Cleaned,
    Event,
    Failed,
    Leased,
    Looked,
    NeedsCode,
    Paused,
    Postponed,
    StartReturned,
    Verified,
)
from everpoll.watches.decisions.plans import Call, Plan
from everpoll.watches.decisions.policy import RunPolicy
from everpoll.watches.limits import REASON_LIMIT, short_text
from everpoll.watches.memory import RunMemory


def decide(
    policy: RunPolicy, memory: RunMemory, event: Event, now: float, chance: float = 0.5
) -> tuple[RunMemory, Plan]:
    """Return the next memory and plan. `chance` in [0, 1) is the random number for jitter; 0.5 moves nothing."""
    draft = Draft(policy, memory, now, chance)
    plan = _RULES[type(event)](draft, event)
    return draft.memory, plan


def _leased(draft: Draft, event: Leased) -> Plan:
    memory, now = draft.memory, draft.now
    draft.notes.may_have_started = event.sequence > 1
    draft.notes.cancel_requested = event.cancel_requested
    memory.begun_at = now if memory.begun_at is None else memory.begun_at
    if memory.started_at is None and memory.phase in {"looking", "verifying"}:
        memory.unpause(now)
        memory.started_at, memory.paused_s = now, 0.0
    if memory.outcome is not None:
        return cleaning.begin(draft)
    if event.cancel_requested:
        return canceling.begin(draft)
    if memory.phase == "intent":
        return starting.begin(draft)
    if memory.handle is None and draft.policy.can_start:
        return Call("adopt")
    return looking.begin(draft)


def _admitted(draft: Draft, _event: Admitted) -> Plan:
    if draft.memory.outcome is not None:
        return cleaning.admitted(draft)
    if draft.notes.cancel_requested:
        return canceling.admitted(draft)
    return starting.admitted(draft) if draft.memory.phase == "intent" else looking.admitted(draft)


def _postponed(draft: Draft, event: Postponed) -> Plan:
    if draft.memory.outcome is not None:
        return cleaning.postponed(draft, event)
    return canceling.postponed(draft, event) if draft.notes.cancel_requested else looking.postponed(draft, event)


def _adopted(draft: Draft, event: Adopted) -> Plan:
    if draft.notes.cancel_requested:
        return canceling.adopted(draft, event)
    return starting.adopted(draft, event) if draft.memory.phase == "intent" else starting.find(draft, event)


def _looked(draft: Draft, event: Looked) -> Plan:
    return canceling.looked(draft, event) if draft.notes.cancel_requested else looking.looked(draft, event)


def _failed(draft: Draft, event: Failed) -> Plan:
    if draft.memory.outcome is not None:
        return cleaning.failed(draft, event)
    return canceling.failed(draft, event) if draft.notes.cancel_requested else looking.failed(draft, event)


def _broken(draft: Draft, event: Broken) -> Plan:
    """Try the step again; give up by the same rules as after failed looks or cleanups."""
    memory = draft.memory
    draft.notes.may_have_started = event.sequence > 1
    if memory.outcome is not None:
        cleaning.count_try(draft)
        return cleaning.failed(draft, event)
    memory.begun_at = draft.now if memory.begun_at is None else memory.begun_at
    memory.errors += 1
    memory.errors_in_a_row += 1
    if memory.errors_in_a_row >= draft.policy.unexpected_errors:
        why = f"everpoll failed to make a step, {memory.errors_in_a_row} times in a row: {event.error}"
        return draft.conclude("canceled" if event.cancel_requested else "failed", why, evidence=event.evidence)
    return draft.try_again("step", event.error, event.retry_after_s)


def _needs_code(draft: Draft, event: NeedsCode) -> Plan:
    """Park the run: its budget is paused until a worker has the code for it."""
    why = draft.memory.parked = short_text(event.why, REASON_LIMIT)
    draft.memory.pause(draft.now)
    return draft.make_due(event.wait_s, "needs_code", why)


def _paused(draft: Draft, event: Paused) -> Plan:
    """Make no look: the budget is paused until the run is resumed or canceled."""
    memory, now = draft.memory, draft.now
    memory.begun_at = now if memory.begun_at is None else memory.begun_at
    memory.pause(now)
    return draft.make_due(event.wait_s, "paused", short_text(event.why, REASON_LIMIT))


_RULES: dict[type[Any], Callable[[Draft, Any], Plan]] = {
    Leased: _leased,
    Admitted: _admitted,
    Postponed: _postponed,
    CancelReason: canceling.reasoned,
    StartReturned: starting.start_returned,
    Adopted: _adopted,
    Looked: _looked,
    Verified: looking.verified,
    CancelSent: lambda draft, _event: canceling.cancel_sent(draft),
    Cleaned: lambda draft, _event: cleaning.cleaned(draft),
    Failed: _failed,
    Broken: _broken,
    NeedsCode: _needs_code,
    Paused: _paused,
}
