"""Decisions about looks and checks, and about failures before the run has an outcome.

Promises: no look is planned after the deadline, and none before the remote's Retry-After. A failure is counted, and
tried again as long as that may help. While the breaker of the remote is open, the budget is paused.
"""

from everpoll.watches.decisions.draft import NO_VERDICT, Draft
from everpoll.watches.decisions.events import Failed, Looked, Postponed, Verified
from everpoll.watches.decisions.plans import Admit, Call, Plan
from everpoll.watches.limits import short_text
from everpoll.watches.schedule import LookTimes, NextLook, next_look, spent
from everpoll.watches.verdicts import Done, Fail, Verify, Wait


def begin(draft: Draft) -> Plan:
    """Ask whether the remote may be called, unless the budget is spent."""
    if why := spent(draft.policy.budget, draft.elapsed_s, draft.memory.looks):
        return draft.conclude("timed_out", f"{why}{draft.last_seen()}")
    return Admit("look", draft.memory.has_token, draft.longest_token_wait_s)


def admitted(draft: Draft) -> Plan:
    """Count the look, and look."""
    memory = draft.memory
    memory.unpause(draft.now)
    memory.has_token = False
    memory.looks += 1
    memory.count("looks")
    return Call("look")


def postponed(draft: Draft, event: Postponed) -> Plan:
    """Wait for the rate, or for the breaker; for the breaker, pause the budget as long as the policy allows."""
    memory, now = draft.memory, draft.now
    memory.count(f"postponed:{event.rule}")
    if event.rule == "breaker":
        pause_s, memory.has_token = draft.pause_left_s, False
        if pause_s > 0:
            memory.pause(now, pause_s)
            return draft.make_due(min(event.wait_s, pause_s), event.rule, event.why)
        memory.unpause(now)
    left_s = draft.left_s
    # Take no rate token if the wait would exceed the budget: else all such runs would call at once, at the deadline. A
    # run of `look_many` takes none either, because its call does.
    memory.has_token = event.rule == "rate" and event.wait_s <= left_s and not draft.policy.has_look_many
    return draft.make_due_or_time_out(NextLook(min(event.wait_s, left_s), event.rule, event.why))


def looked(draft: Draft, event: Looked) -> Plan:
    """Judge the verdict of a look."""
    memory, report, verdict = draft.memory, event.report, event.verdict
    draft.notes.look_took_s, memory.remote = event.took_s, event.remote
    if isinstance(verdict, Verify) and report.floor_s is None:
        # The report comes again with the result of the check. If that result cannot be stored, the look changes no
        # fact.
        return Call("verify", verdict.name)
    memory.errors_in_a_row = 0
    draft.take_report(report)
    draft.notes.note_change(report.changed)
    if isinstance(verdict, Verify):
        # A call by `w.attempt` met a Retry-After. The check may call the same remote, so it waits as well.
        memory.phase = "verifying"
        memory.sighted_at = draft.now if memory.sighted_at is None else memory.sighted_at
        times = LookTimes(0.0, {}, floor_s=report.floor_s, chance=draft.chance)
        return draft.make_due_or_time_out(next_look(times, draft.policy.budget, draft.now, draft.elapsed_s))
    if isinstance(verdict, (Done, Fail)):
        return _ended(draft, verdict, has_reported=report.has_reported)
    if verdict is None:
        memory.count(NO_VERDICT)
        verdict = Wait()
    memory.phase = "looking"
    memory.looked_at, memory.sighted_at = draft.now, None
    draft.take_wait(verdict)
    wait_s, why = draft.wait_of(event.pace)
    times = LookTimes(wait_s, report.hints, verdict.after_s, report.floor_s, draft.chance, why)
    return draft.make_due_or_time_out(next_look(times, draft.policy.budget, draft.now, draft.elapsed_s))


def verified(draft: Draft, event: Verified) -> Plan:
    """Judge the result of a check."""
    memory, name, check = draft.memory, event.name, draft.policy.checks[event.name]
    draft.notes.look_took_s, memory.remote = event.took_s, event.remote
    memory.errors_in_a_row = 0
    memory.sighted_at = draft.now if memory.sighted_at is None else memory.sighted_at
    draft.take_report(event.report)
    tries = memory.verifies.get(name, 0) + 1
    memory.verifies = {**memory.verifies, name: tries}
    memory.count(f"verify:{name}")
    draft.notes.note_change(event.report.changed | {f"verify:{name}": f"try {tries} of {check.tries}"})
    if event.verdict is not None:
        return _ended(draft, event.verdict, has_reported=event.report.has_reported)
    if event.is_proven:
        return draft.conclude("ready", f"{name} is verified, at try {tries}", value=event.value)
    error = "" if event.error is None else short_text(f": {event.error}")
    if tries >= check.tries:
        return draft.conclude(check.exhausted, f"{name} could not be verified in {tries} tries{error}")
    memory.phase = "verifying"
    times = LookTimes(check.every.delay(tries, draft), {}, floor_s=event.retry_after_s, chance=draft.chance)
    planned = next_look(times, draft.policy.budget, draft.now, draft.elapsed_s)
    why = f"{name} is not there yet (try {tries} of {check.tries}){error}"
    return draft.make_due_or_time_out(NextLook(planned.delay_s, "verify", why))


def failed(draft: Draft, event: Failed) -> Plan:
    """Try again after a failed start, adoption or look, or give up."""
    memory, policy, what = draft.memory, draft.policy, _what(draft, event)
    if event.report is not None:
        draft.take_words(event.report)
    if what == "look":
        memory.looks += event.before_call
        if not event.before_call:
            draft.notes.look_took_s, memory.remote = event.took_s, event.remote
    memory.errors += 1
    memory.errors_in_a_row += 1
    memory.count(f"{what} failed")
    if event.fault == "fatal":
        return draft.conclude("failed", f"{what} failed: {event.error}", evidence=event.evidence)
    if event.fault == "unexpected" and memory.errors_in_a_row >= policy.unexpected_errors:
        why = f"{what} failed {memory.errors_in_a_row} times in a row: {event.error}"
        return draft.conclude("failed", why, evidence=event.evidence)
    draft.notes.note_change({"error": short_text(event.error)})
    if event.breaker_wait is not None and draft.pause_left_s > 0:
        # The breaker is open, so no look is possible: this one uses up neither time nor looks.
        memory.looks -= what == "look"
        # A Retry-After counts, too, but no longer than the rest of the budget: a remote may ask for a day.
        floor_s = min(event.retry_after_s or 0.0, draft.left_s)
        breaker_wait = event.breaker_wait
        return postponed(draft, Postponed(max(breaker_wait.wait_s, floor_s), breaker_wait.rule, breaker_wait.why))
    if what == "look":
        wait_s, reason = draft.wait_of(event.pace)
        times = LookTimes(wait_s, {}, None, event.retry_after_s, draft.chance, reason)
        return draft.make_due_or_time_out(next_look(times, policy.budget, draft.now, draft.elapsed_s))
    return draft.try_again(what, event.error, event.retry_after_s)


def _what(draft: Draft, event: Failed) -> str:
    """Name what has failed: an adoption before the start is part of the start, a check is part of its look."""
    if draft.memory.phase == "intent":
        return "start"
    return "look" if event.what == "verify" else event.what


def _ended(draft: Draft, verdict: Done | Fail, *, has_reported: bool) -> Plan:
    if not has_reported:
        # "running" was the status of an operation that has ended since.
        draft.memory.status = draft.memory.progress = None
    return draft.conclude_by(verdict)
