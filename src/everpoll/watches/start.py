"""Starting an operation: calls the user's `start` and `adopt`.

Promises: both get the run's key. A cancel does not break off a start: what was started and not stored could not be
canceled. Never starts again what may run already and cannot be found: that fails the run.
"""

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from everpoll.engine.work import Run, StopReason
from everpoll.errors import BadInput, Hopeless
from everpoll.policy import shown
from everpoll.watches.context import is_id
from everpoll.watches.decisions.events import Adopted, Event, StartReturned
from everpoll.watches.decisions.plans import Call
from everpoll.watches.limits import as_json
from everpoll.watches.look import stored
from everpoll.watches.pacing import pace_at_start
from everpoll.watches.verdicts import Done, Fail, Started, Wait

if TYPE_CHECKING:
    from everpoll.watches.step import Step


async def start(step: "Step", _plan: Call) -> Event:
    """Call start once, and check what it returns."""
    watch = step.watch
    assert watch.starts is not None, "an intent is only stored where there is something to start"
    returned = await _unbroken(step.run, step.call("start", watch.starts))
    begun = returned if isinstance(returned, Started) else Started(returned)
    if isinstance(returned, (Done, Fail)):
        begun = Started(None, returned)
    has_handle, is_over = is_id(begun.handle), not isinstance(begun.verdict, Wait)
    if not has_handle and not is_over and watch.adopts is None:
        # The remote may have started something. Without an adopt function, another start could be a second one.
        raise Hopeless(_no_handle(begun.handle))
    try:
        verdict = stored(begun.verdict, watch.name)
        handle = as_json(begun.handle, f"watch {watch.name!r}: what start returns") if has_handle else None
    except BadInput as error:
        raise _not_storable(error) from error
    return StartReturned(handle, verdict, pace_at_start(step))


async def adopt(step: "Step", plan: Call) -> Event:
    """Find the operation that was started under the run's key."""
    watch, memory = step.watch, step.memory
    is_start, is_cancel = memory.phase == "intent", step.is_canceling
    if watch.adopts is None:
        raise BadInput("its handle is missing, and there is no @….adopt to find it by its key")
    found = await step.call("adopt", watch.adopts)
    if not is_id(found):
        if plan.verdict is not None:
            raise BadInput(_no_handle(found))
        if not is_start and not is_cancel:
            raise BadInput(f"its handle is missing, and adopt({step.key!r}) found none")
        return Adopted(None)
    try:
        handle = as_json(found, f"watch {watch.name!r}: what adopt returns")
    except BadInput as error:
        raise (_not_storable(error) if is_start else error) from error
    return Adopted(handle, plan.verdict, pace_at_start(step) if is_start else None)


def _no_handle(returned: object) -> str:
    return f"start returned {shown(returned)}, which is not a handle; return what the look needs to find it"


def _not_storable(error: BadInput) -> Hopeless:
    return Hopeless(f"it was started, and its answer cannot be stored: {error}")


async def _unbroken(run: Run, start: Coroutine[Any, Any, Any]) -> Any:
    starting = asyncio.ensure_future(_caught(start))
    try:
        await asyncio.shield(starting)
    except asyncio.CancelledError:
        if run.stop_reason is not StopReason.CANCELED:
            starting.cancel()
            # Handed back while it still runs, it could be under way twice.
            await asyncio.wait({starting})
            raise
        await starting
    handle, error = starting.result()
    if error is not None:
        raise error
    return handle


async def _caught(start: Coroutine[Any, Any, Any]) -> tuple[Any, BaseException | None]:
    """Return what it returns, or raises: out of a task of its own, SystemExit would end the process."""
    try:
        return await start, None
    except (asyncio.CancelledError, KeyboardInterrupt):
        raise
    except BaseException as error:  # noqa: BLE001 - raised again by `_unbroken`
        return None, error
