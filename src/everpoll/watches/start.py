"""Starting an operation: calls the user's `start` and `adopt`.

Promises: both get the run's key. A cancel does not break off a start: an operation whose handle is not stored could not
be canceled. If an operation may be running and cannot be found, it is not started again: the run fails.
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
from everpoll.watches.look import storable
from everpoll.watches.pacing import pace_at_start
from everpoll.watches.verdicts import Done, Fail, Started, Wait

if TYPE_CHECKING:
    from everpoll.watches.step import Step


async def start(step: "Step", _plan: Call) -> Event:
    """Call start once, and check what it returns."""
    watch = step.watch
    assert watch.start_function is not None, "an intent is only stored where there is something to start"
    returned = await _unbroken(step.run, step.call("start", watch.start_function))
    begun = returned if isinstance(returned, Started) else Started(returned)
    if isinstance(returned, (Done, Fail)):
        begun = Started(None, returned)
    has_handle, is_over = is_id(begun.handle), not isinstance(begun.verdict, Wait)
    if not has_handle and not is_over and watch.adopt_function is None:
        # The remote may have started something. Without an adopt function, another start could be a second one.
        raise Hopeless(_no_handle(begun.handle))
    try:
        verdict = storable(begun.verdict, watch.name)
        handle = as_json(begun.handle, f"watch {watch.name!r}: what start returns") if has_handle else None
    except BadInput as error:
        raise _not_storable(error) from error
    return StartReturned(handle, verdict, pace_at_start(step))


async def adopt(step: "Step", plan: Call) -> Event:
    """Find the operation that was started under the run's key."""
    watch, memory = step.watch, step.memory
    is_start, is_cancel = memory.phase == "intent", step.is_canceling
    if watch.adopt_function is None:
        raise BadInput("its handle is missing, and there is no @….adopt to find it by its key")
    found = await step.call("adopt", watch.adopt_function)
    if not is_id(found):
        if plan.verdict is not None:
            raise BadInput(_no_handle(found))
        if not is_start and not is_cancel:
            raise BadInput(f"its handle is missing, and adopt({step.key!r}) found no operation")
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
            # The task may be handed back only once start has ended: else another worker could start it meanwhile.
            await asyncio.wait({starting})
            raise
        await starting
    handle, error = starting.result()
    if error is not None:
        raise error
    return handle


async def _caught(start: Coroutine[Any, Any, Any]) -> tuple[Any, BaseException | None]:
    """Return what start returned, or what it raised: a SystemExit raised in a task of its own would end the process."""
    try:
        return await start, None
    except (asyncio.CancelledError, KeyboardInterrupt):
        raise
    except BaseException as error:  # noqa: BLE001 - raised again by `_unbroken`
        return None, error
