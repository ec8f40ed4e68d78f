"""Decisions about a run that a caller has canceled.

    reason ──▶ admitted ──▶ adopt, if the handle is missing ──▶ cancel, once ──▶ look, until it has ended

Promises: the outcome is `canceled`, whatever the remote does, and comes within the budget of the cancel.
"""

from everpoll.policy import human
from everpoll.watches.decisions.draft import Draft
from everpoll.watches.decisions.events import Adopted, CancelReason, Failed, Looked, Postponed
from everpoll.watches.decisions.plans import Admit, Call, Plan
from everpoll.watches.decisions.policy import DEFAULT_START
from everpoll.watches.limits import short_text
from everpoll.watches.verdicts import Done, Fail, Verify


def begin(draft: Draft) -> Plan:
    """Read the reason of the cancel first; then ask the remote."""
    draft.memory.unpause(draft.now)
    return Call("reason") if draft.memory.phase != "canceling" else _proceed(draft)


def reasoned(draft: Draft, event: CancelReason) -> Plan:
    """Note the reason, and go on; a run that was never started ends at once."""
    memory = draft.memory
    memory.cancel_why = event.why
    if memory.phase == "intent" and not draft.notes.may_have_started:
        return draft.conclude("canceled", f"{_canceled(draft)}; it was not started yet")
    memory.phase, memory.errors_in_a_row = "canceling", 0
    memory.canceling_at = draft.now
    return _proceed(draft)


def admitted(draft: Draft) -> Plan:
    """Find the handle if it is missing, then ask the remote to cancel."""
    return Call("adopt") if draft.memory.handle is None and draft.policy.can_adopt else _ask_remote(draft)


def postponed(draft: Draft, event: Postponed) -> Plan:
    """Wait for the breaker, within the budget of the cancel."""
    return draft.make_due(min(event.wait_s, left_s(draft)), event.rule, event.why)


def adopted(draft: Draft, event: Adopted) -> Plan:
    """Take the handle, if adopt found one, and go on."""
    draft.memory.handle = event.handle
    return _ask_remote(draft)


def cancel_sent(draft: Draft) -> Plan:
    """Look whether the operation has ended."""
    draft.memory.cancel_sent = True
    return _look(draft)


def looked(draft: Draft, event: Looked) -> Plan:
    """End the run if the operation has ended, or if time is over; else look again."""
    memory, verdict, remaining_s = draft.memory, event.verdict, left_s(draft)
    draft.take_report(event.report)
    draft.notes.look_took_s, memory.remote = event.took_s, event.remote
    end = None
    if isinstance(verdict, (Done, Fail, Verify)):
        end = "the remote has ended"
    elif remaining_s <= 0:
        end = f"the remote did not end within {human(draft.policy.cancel_s)}"
    if end is not None:
        value = verdict.value if isinstance(verdict, Done) else None
        evidence = verdict.evidence if isinstance(verdict, Fail) else None
        memory.status = short_text(status) if (status := getattr(verdict, "status", None)) else memory.status
        return draft.conclude("canceled", f"{_canceled(draft)}; {end}", value=value, evidence=evidence)
    memory.errors_in_a_row = 0
    memory.count("looks after cancel")
    memory.cancel_looks += 1
    delay_s = DEFAULT_START.delay(memory.cancel_looks, draft, at_most_s=remaining_s)
    return draft.make_due(delay_s, "cancel", "the remote was asked to cancel and has not ended yet")


def failed(draft: Draft, event: Failed) -> Plan:
    """Try again while the budget of the cancel lasts; then end the run without the remote."""
    memory, remaining_s, canceled = draft.memory, left_s(draft), _canceled(draft)
    if event.report is not None:
        draft.take_words(event.report)
    if event.what == "look":
        draft.notes.look_took_s, memory.remote = event.took_s, event.remote
    if event.is_unsent:
        return draft.conclude("canceled", f"{canceled}; no request was sent to the remote: {event.error}")
    if remaining_s <= 0 or event.fault == "fatal":
        what = "look" if memory.cancel_sent else "cancel"
        return draft.conclude("canceled", f"{canceled}; the {what} failed: {event.error}")
    memory.errors += 1
    memory.errors_in_a_row += 1
    what = "the remote was asked to cancel, but the look after that" if memory.cancel_sent else "cancel"
    return draft.try_again(what, event.error, event.retry_after_s, remaining_s)


def left_s(draft: Draft) -> float:
    """Return what is left of the budget of the cancel."""
    since = draft.memory.canceling_at
    return draft.policy.cancel_s - (0.0 if since is None else max(0.0, draft.now - since))


def _canceled(draft: Draft) -> str:
    why = draft.memory.cancel_why
    return f"canceled: {why}" if why else "canceled"


def _proceed(draft: Draft) -> Plan:
    memory, policy = draft.memory, draft.policy
    # A cancel that does not call the remote waits for no breaker.
    calls_remote = policy.can_adopt if memory.handle is None and policy.can_start else policy.can_cancel
    if calls_remote:
        return Admit("cancel", has_token=True, may_wait=left_s(draft) > 0)
    return admitted(draft)


def _ask_remote(draft: Draft) -> Plan:
    """Ask the remote to cancel, once; or end the run if that is not possible."""
    memory, policy = draft.memory, draft.policy
    if memory.handle is None and policy.can_start:
        why = "adopt found no operation that it had started"
        if not policy.can_adopt:
            why = "its operation may run: there is no @….adopt to find it by its key"
        return draft.conclude("canceled", f"{_canceled(draft)}; {why}")
    if not policy.can_cancel:
        return draft.conclude("canceled", f"{_canceled(draft)}; the watch has no @….cancel to ask the remote")
    if memory.cancel_sent:
        return _look(draft)
    memory.count("cancels")
    return Call("cancel")


def _look(draft: Draft) -> Plan:
    draft.memory.looks += 1
    draft.memory.count("looks")
    return Call("look")
