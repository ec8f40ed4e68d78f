"""Decisions about the cleanup of a run that has its outcome.

Promises: a cleanup never changes the outcome. A cleanup that fails is tried again within its own budget; after that,
the sweeper tries it again.
"""

from everpoll.watches.decisions.draft import Draft
from everpoll.watches.decisions.events import Broken, Failed, Postponed
from everpoll.watches.decisions.plans import Admit, Call, Plan


def begin(draft: Draft) -> Plan:
    """Clean up, if the watch has a cleanup."""
    if not draft.policy.can_clean:
        return draft.end(None)
    return Admit("cleanup", has_token=True, may_wait=_left_s(draft) > 0)


def admitted(draft: Draft) -> Plan:
    """Call the cleanup."""
    count_try(draft)
    draft.memory.count("cleanups")
    return Call("cleanup")


def count_try(draft: Draft) -> None:
    """Count a try of the cleanup."""
    draft.memory.cleanup_tries += 1


def postponed(draft: Draft, event: Postponed) -> Plan:
    """Wait for the breaker, within the budget of the cleanup."""
    return draft.make_due(min(event.wait_s, _left_s(draft)), event.rule, event.why)


def cleaned(draft: Draft) -> Plan:
    """End the run."""
    draft.memory.cleaned = True
    return draft.end(draft.note("cleanup", f"cleaned up, at try {draft.memory.cleanup_tries}"))


def failed(draft: Draft, event: Failed | Broken) -> Plan:
    """Try again within the budget; then end the run."""
    memory, policy, left_s = draft.memory, draft.policy, _left_s(draft)
    memory.errors += 1
    why = f"cleanup failed (try {memory.cleanup_tries}): {event.error}"
    if event.fault == "fatal" or left_s <= 0:
        memory.cleaned = False
        return draft.end(draft.note("cleanup", f"{why}; its budget is spent: the sweeper tries it again later"))
    floor_s = event.retry_after_s or 0.0
    delay_s = policy.cleanup_every.delay(memory.cleanup_tries, draft, at_least_s=floor_s, at_most_s=left_s)
    return draft.make_due(delay_s, "cleanup", why)


def _left_s(draft: Draft) -> float:
    memory = draft.memory
    memory.cleanup_at = draft.now if memory.cleanup_at is None else memory.cleanup_at
    return draft.policy.cleanup.remaining_s(draft.now - memory.cleanup_at)
