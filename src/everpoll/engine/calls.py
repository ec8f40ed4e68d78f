"""Calling users' functions: async ones in the event loop, plain ones in threads, within a timeout.

Promises: a function that takes too long raises `JobTimeout` here; whatever a function raises can be written down.
Never: returns while a thread still runs, which nothing can interrupt; only the timeout leaves it behind.
"""

import asyncio
import contextvars
import functools
import inspect
import os
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from everpoll.engine.thread_call import ThreadCall
from everpoll.engine.threads import DaemonThreads
from everpoll.engine.work import Run
from everpoll.errors import JobTimeout
from everpoll.policy.storable_texts import ERROR_LIMIT, storable

HOME = str(Path(__file__).parents[1]) + os.sep
# Bytes.
TRACEBACK_LIMIT = 8_000


class Callee:
    """One function of the user, ready to be called."""

    __slots__ = ("_function", "_in_loop", "_threads", "timeout_s")

    def __init__(
        self, function: Callable[..., Any], timeout_s: float | None, threads: Callable[[], DaemonThreads]
    ) -> None:
        self._function = function
        self._in_loop = inspect.iscoroutinefunction(function)
        self._threads = threads
        self.timeout_s = timeout_s

    def __call__(self, *args: Any, **kwargs: Any) -> Awaitable[Any]:
        """Call it, and return what it returns."""
        return self.within(self.timeout_s, *args, **kwargs)

    @property
    def cheapest(self) -> Callable[..., Awaitable[Any]]:
        """The cheapest way to call it: the function itself, if it is async and has no timeout."""
        return self._function if self._in_loop and self.timeout_s is None else self

    def within(self, timeout_s: float | None, /, *args: Any, **kwargs: Any) -> Awaitable[Any]:
        """Call it within this time instead of its own timeout."""
        if not self._in_loop:
            return self._in_thread(timeout_s, args, kwargs)
        called: Awaitable[Any] = self._function(*args, **kwargs)
        return called if timeout_s is None else self._within(timeout_s, called)

    async def _in_thread(self, timeout_s: float | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        context = contextvars.copy_context()
        threads = self._threads()
        call = ThreadCall(functools.partial(context.run, self._function, *args, **kwargs), threads)
        running = asyncio.get_running_loop().run_in_executor(threads, call)
        try:
            await asyncio.wait({running}, timeout=timeout_s)
        except asyncio.CancelledError:
            # `is_stopping` tells the function. Handed back while it still runs, the task would run twice at once.
            try:
                await asyncio.wait({running}, timeout=timeout_s)
            finally:
                call.leave_behind()
                if not running.cancel() and not running.cancelled():
                    running.exception()  # looked at, or asyncio would call it forgotten
            raise
        if not running.done():
            running.cancel()
            if not call.has_begun:
                raise JobTimeout(f"no thread was free for it within its timeout of {timeout_s:g} s")
            left = "; its thread is left behind" if call.leave_behind() else ""
            raise JobTimeout(f"{_too_long(timeout_s)}{left}")
        try:
            value = running.result()
        except KeyboardInterrupt as error:
            # No signal is delivered in a thread: it is the function's own, and must not end the program from here.
            raise RuntimeError("the function raised KeyboardInterrupt") from error
        if not inspect.isawaitable(value):
            return value
        return await value if timeout_s is None else await self._within(timeout_s, value)

    async def _within(self, timeout_s: float, awaitable: Awaitable[Any]) -> Any:
        limit = asyncio.timeout(timeout_s)
        try:
            async with limit:
                value = await awaitable
        except TimeoutError as error:
            if limit.expired():
                raise JobTimeout(_too_long(timeout_s)) from error
            raise
        if limit.expired():
            raise JobTimeout(_too_long(timeout_s))
        return value


def not_ended(timeout_s: float | None) -> JobTimeout:
    """Return the error of a function that goes on although it was canceled at its timeout."""
    return JobTimeout(f"{_too_long(timeout_s)}, and goes on although it was canceled; it is left behind")


def _too_long(timeout_s: float | None) -> str:
    return f"took longer than its timeout of {round(timeout_s or 0.0, 3):g} s"


def failure(run: Run, error: BaseException) -> BaseException:
    """Return what a function raised, as its own failure; raise `CancelledError` where the engine stopped it.

    Whatever it is, GeneratorExit and SystemExit included, or its task would be handed back and run again for ever. Only
    KeyboardInterrupt passes through: a person pressed Ctrl-C while it ran.
    """
    if isinstance(error, KeyboardInterrupt):
        raise error
    if isinstance(error, asyncio.CancelledError):
        if run.stop_reason is not None or _is_canceled():
            raise error
        # The engine did not cancel it: something that it awaited was canceled, which is a failure like any other.
        return error
    if run.stop_reason is not None:
        # It was stopped, and its clean-up raised: that does not count as an attempt.
        raise asyncio.CancelledError(str(run.stop_reason)) from error
    return error


def described(error: BaseException) -> dict[str, str]:
    """Return type, text and traceback of an error, such as every database can hold."""
    if (described_there := _described_there(error)) is not None:
        return described_there
    lines = traceback.format_exception(type(error), error, own_frames(error))
    return {
        "type": type(error).__name__,
        "error": _text(error),
        "traceback": storable("".join(lines), TRACEBACK_LIMIT, keep_end=True),
    }


def own_frames(error: BaseException) -> TracebackType | None:
    """Return the traceback from the user's function on: frames of everpoll do not help the reader."""
    if _described_there(error) is not None:
        return None
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename.startswith(HOME):
        frames = frames.tb_next
    return frames or error.__traceback__


def _described_there(error: BaseException) -> dict[str, str] | None:
    """Return what another process says about an error that it raised; None: this process raised it."""
    found = getattr(error, "description", None)
    return found if isinstance(found, dict) else None


def _text(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - an error that cannot be printed is an error all the same
        text = "(its text cannot be read)"
    return storable(text, ERROR_LIMIT)


def _is_canceled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
