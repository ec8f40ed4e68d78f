"""Looking at an operation: calls the user's `look`, or joins a call of `look_many`; then calls the check it asks for.

Promises: a verdict that a row cannot hold is a failure of the look. A look works on a copy of the run's memory, so a
look that fails changes no fact.
"""

import asyncio
import inspect
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from everpoll.engine.calls import failure
from everpoll.errors import BadInput
from everpoll.http.retry_after import retry_after_s
from everpoll.policy import shown
from everpoll.watches.context import LookContext
from everpoll.watches.decisions.events import Event, Looked, Verified
from everpoll.watches.decisions.plans import Call
from everpoll.watches.limits import as_json, error_text
from everpoll.watches.pacing import pace_after_look
from everpoll.watches.verdicts import Done, Fail, Verdict, Verify, Wait

if TYPE_CHECKING:
    from everpoll.watches.step import Step

V = TypeVar("V", bound=Verdict | Verify)


async def look(step: "Step", _plan: Call) -> Event:
    """Call the look, and check its verdict."""
    watch, clock = step.watch, asyncio.get_running_loop().time
    assert step.remote is not None, "a remote is called only once it was admitted"
    context = step.context = LookContext(step.memory.for_look(), step.now(), watch.checks, step.key)
    remote, op, began = step.remote, step.op, clock()
    try:
        verdict = await step.within("look", lambda limit_s: step.runtime.look(limit_s, op, context, remote))
    finally:
        step.look_took_s = round(clock() - began, 6)
    context.check_memory()
    if step.is_canceling:
        kept = storable(verdict, watch.name) if isinstance(verdict, (Done, Fail, Verify)) else None
        return Looked(kept, context.report(), None, step.look_took_s, step.named_remote)
    checked = _checked(verdict, watch.name)
    pace = None
    if checked is None or isinstance(checked, Wait):
        pace = pace_after_look(step, None if checked is None else checked.progress)
    return Looked(checked, context.report(), pace, step.look_took_s, step.named_remote)


async def verify(step: "Step", plan: Call) -> Event:
    """Call the check that the look asked for. If it raises, it has not passed."""
    context, name = step.context, plan.name
    assert context is not None, "a check follows a look"
    assert name is not None, "a check has a name"
    error, floor_s = None, None
    try:
        value = await step.call("verify", step.watch.checks[name].function, context)
    except BaseException as raised:  # noqa: BLE001 - the user's own
        reason = failure(step.run, raised)
        value, error, floor_s = None, error_text(reason), retry_after_s(reason)
    context.check_memory()
    verdict = storable(value, step.watch.name) if isinstance(value, (Done, Fail)) else None
    is_proven = verdict is None and bool(value)
    proof = (
        as_json(value, f"watch {step.watch.name!r}: what {name} returns") if is_proven and value is not True else None
    )
    return Verified(
        name, context.report(), verdict, is_proven, proof, error, floor_s, step.look_took_s, step.named_remote
    )


def _checked(verdict: object, name: str) -> Verdict | Verify | None:
    if verdict is None or isinstance(verdict, (Verify, Wait)):
        return verdict
    if isinstance(verdict, (Done, Fail)):
        return storable(verdict, name)
    if inspect.iscoroutine(verdict):
        verdict.close()
        raise BadInput("the look returned a coroutine: write await before the call")
    raise BadInput(f"the look returned {shown(verdict)}; it returns Done(…), Fail(…), Wait(…) or w.verify(…)")


def storable(verdict: V, name: str) -> V:
    """Return the verdict in the form in which a row holds it; raise `BadInput` if it is too large."""
    if isinstance(verdict, Done) and verdict.value is not None:
        return replace(verdict, value=as_json(verdict.value, f"watch {name!r}: what Done carries"))
    if isinstance(verdict, Fail) and verdict.evidence is not None:
        return replace(verdict, evidence=_storable_evidence(verdict.evidence))
    return verdict


def _storable_evidence(evidence: Any) -> Any:
    """Return the evidence, or a note if a row cannot hold it: the failure counts in any case."""
    try:
        return as_json(evidence, "the evidence")
    except BadInput as error:
        return f"(not stored: {error})"
