"""Calls a plain function from the event loop: in a daemon thread, with the caller's context."""

import asyncio
import contextvars
import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar, cast

from everpoll.engine.thread_call import ThreadCall
from everpoll.engine.threads import DaemonThreads

P = ParamSpec("P")
T = TypeVar("T")


async def in_thread(threads: DaemonThreads, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Call the function in a thread. If the caller is canceled, the function runs on: looks are reads."""
    call = ThreadCall(functools.partial(contextvars.copy_context().run, function, *args, **kwargs), threads)
    try:
        return cast("T", await asyncio.get_running_loop().run_in_executor(threads, call))
    finally:
        call.leave_behind()  # If the caller was canceled and the function still runs, another thread takes its place.
