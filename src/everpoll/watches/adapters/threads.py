"""A plain function called from the event loop: in a daemon thread, with the caller's context."""

import asyncio
import contextvars
import functools
from collections.abc import Callable
from concurrent.futures import Executor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


async def in_thread(threads: Executor, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """What it returns. Canceled, it is left to end by itself: looks are reads."""
    call = functools.partial(contextvars.copy_context().run, function, *args, **kwargs)
    return await asyncio.get_running_loop().run_in_executor(threads, call)
