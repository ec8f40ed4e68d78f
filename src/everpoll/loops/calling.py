"""Calls the user's condition and hook of a loop, and its function in a thread.

Promises: a condition or a hook that raises never ends its loop. A condition's error is a failure of the loop; a hook's
error is only logged.
"""

import asyncio
import contextvars
import inspect
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, cast

from everpoll.loops.change_log import logger
from everpoll.loops.options import Condition, Hook
from everpoll.loops.outcome import failure, short
from everpoll.loops.reducer import CONDITION_SKIP
from everpoll.loops.run import Run
from everpoll.loops.state import Outcome

if TYPE_CHECKING:
    from everpoll.loops.session import Session


def ask_at_once(condition: Condition) -> bool | str:
    """Return the answer of a plain condition, or the text of the error that it raised."""
    try:
        answer = cast("Callable[[], object]", condition)()
        if inspect.isawaitable(answer):
            if inspect.iscoroutine(answer):
                answer.close()
            return "it returned an awaitable: declare the condition with async def"
        return bool(answer)
    except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - any error is a failure of the loop
        # A timer calls this, not a task: there is nothing to cancel, and raising would lose the deadline.
        return failure(error).reason or ""


async def ask(condition: Condition, timeout_s: float | None) -> Outcome | None:
    """Ask an async condition, within the loop's timeout; return the outcome if the run ends here, else None."""
    try:
        async with asyncio.timeout(timeout_s) as limit:
            wanted = bool(await cast("Awaitable[object]", condition()))
        if limit.expired():
            raise TimeoutError  # The condition suppressed its cancellation; its answer is still too late.
    except Exception as error:  # noqa: BLE001 - as in ask_at_once
        return Outcome("failed", short(f"condition: {failure(error).reason}"))
    return None if wanted else CONDITION_SKIP


async def call_in_thread(run: Run, session: "Session") -> object:
    """Call a plain function in a thread; a coroutine that it returns is awaited here."""
    function = partial(contextvars.copy_context().run, run.registration.function)
    run.thread, run.thread_future = session.in_thread(function)
    try:
        result = await asyncio.shield(run.thread_future)
    except asyncio.CancelledError:
        if run.thread.withdraw():
            run.thread_future.cancel()  # It has not begun: do not wait for a free thread.
        raise
    return await result if inspect.isawaitable(result) else result


async def call_hook(hook: Hook, name: str, outcome: Outcome, timeout_s: float | None) -> None:
    """Call the hook of the loop of that name with an outcome."""
    try:
        answer = hook(outcome)
        if inspect.isawaitable(answer):
            async with asyncio.timeout(timeout_s):
                await answer
    except Exception:  # noqa: BLE001 - a hook's trouble is not the loop's
        logger.exception("loop %r: its on_outcome hook raised; the outcome stands", name)
