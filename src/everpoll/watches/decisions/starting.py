"""Decisions about the start of a run.

    intent ──admitted──▶ adopt, if an earlier lease may have started it ──nothing found──▶ start ──▶ looking

Promises: `start` and `adopt` get the run's key, so that a crash between the remote's start and the stored handle starts
nothing twice. The budget begins again at the start.
"""

from typing import Any

from everpoll.policy import human
from everpoll.watches.decisions.draft import Draft
from everpoll.watches.decisions.events import Adopted, Pace, StartReturned
from everpoll.watches.decisions.plans import Admit, Call, Plan
from everpoll.watches.verdicts import Wait


def begin(draft: Draft) -> Plan:
    """Ask whether the remote may be called, unless the time budget is spent."""
    if why := draft.policy.budget.spent(draft.elapsed_s, 0):
        return draft.conclude("timed_out", f"it was never started: {why}{draft.last_seen()}")
    return Admit("start", draft.memory.has_token, draft.longest_token_wait_s)


def admitted(draft: Draft) -> Plan:
    """Adopt what an earlier lease may have started, else start."""
    memory = draft.memory
    memory.unpause(draft.now)
    memory.has_token = False
    if draft.policy.can_adopt and draft.notes.may_have_started:
        return Call("adopt")
    return _start(draft)


def start_returned(draft: Draft, event: StartReturned) -> Plan:
    """Take the handle; if start returned none, adopt the operation by its key."""
    if event.handle is None and isinstance(event.verdict, Wait):
        return Call("adopt", verdict=event.verdict)
    return _started(draft, event.handle, event.verdict, event.pace)


def adopted(draft: Draft, event: Adopted) -> Plan:
    """Take the handle that adopt found, else start."""
    if event.handle is None:
        return _start(draft)
    if event.verdict is None:
        draft.memory.count("adopted")
    return _started(draft, event.handle, event.verdict or Wait(), event.pace)


def find(draft: Draft, event: Adopted) -> Plan:
    """Store the handle that was missing; the look comes with the next step."""
    draft.memory.handle = event.handle
    draft.memory.count("adopted")
    return draft.make_due(0.0, "adopted", "its handle was found by its key and stored")


def _start(draft: Draft) -> Plan:
    draft.notes.may_have_started = True
    return Call("start")


def _started(draft: Draft, handle: Any, verdict: Any, pace: Pace | None) -> Plan:
    memory = draft.memory
    memory.handle = handle
    memory.started_at, memory.paused_s = draft.now, 0.0
    memory.phase = "looking"
    memory.errors_in_a_row = 0
    if not isinstance(verdict, Wait):
        return draft.conclude_by(verdict)
    draft.take_wait(verdict)
    wait_s, why = draft.wait_of(pace)
    first_s = min(max(wait_s, verdict.after_s or 0.0), draft.policy.budget.time_s)
    because = f", for {why}" if why is not None and first_s == wait_s else ""
    return draft.make_due(first_s, "started", f"started: the first look in {human(first_s)}{because}")
