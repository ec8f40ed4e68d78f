"""Calling users' functions: async ones in the event loop, plain ones in threads, within a timeout.

Promises: a function that takes too long raises `JobTimeout` here. The text of every error can be stored.
Never: returns while a thread still runs the function, because a thread cannot be interrupted; at the timeout the thread
is left behind.
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
        """Call the function within its own timeout, and return its result."""
        return self.within(self.timeout_s, *args, **kwargs)

    @property
    def cheapest(self) -> Callable[..., Awaitable[Any]]:
        """The fastest way to call it: the function itself, if it is async and has no timeout."""
        return self._function if self._in_loop and self.timeout_s is None else self

    def within(self, timeout_s: float | None, /, *args: Any, **kwargs: Any) -> Awaitable[Any]:
        """Call the function within this time instead of its own timeout."""
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
            # The function can read `is_stopping`. If its task were handed back now, two runs would overlap.
            try:
                await asyncio.wait({running}, timeout=timeout_s)
            finally:
                call.leave_behind()
                if not running.cancel() and not running.cancelled():
                    running.exception()  # read, because asyncio logs an error that was never read
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
            # Threads get no signals, so the function raised this itself: it must not end the program.
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
    """Return the error if it is a failure of the function; raise `CancelledError` if the engine stopped the function.

    GeneratorExit and SystemExit are failures, too: otherwise the task would be handed back and run again for ever. Only
    KeyboardInterrupt passes through: a person pressed Ctrl-C while the function ran.
    """
    if isinstance(error, KeyboardInterrupt):
        raise error
    if isinstance(error, asyncio.CancelledError):
        if run.stop_reason is not None or _is_canceled():
            raise error
        # The engine did not cancel it: something that it awaited was canceled, which is a failure like any other.
        return error
    if run.stop_reason is not None:
        # The engine stopped the function, and its clean-up raised: that does not count as an attempt.
        raise asyncio.CancelledError(str(run.stop_reason)) from error
    return error


def described(error: BaseException) -> dict[str, str]:
    """Return type, text and traceback of an error, in a form that every database can store."""
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
    except Exception:  # noqa: BLE001 - the error has no readable text, and is still reported
        text = "(its text cannot be read)"
    return storable(text, ERROR_LIMIT)


def _is_canceled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
