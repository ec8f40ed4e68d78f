"""How an app ends: a first SIGTERM or SIGINT closes it within the grace period, a second one at once."""

import asyncio
import contextlib
import signal
from collections.abc import Callable, Coroutine
from typing import Any, Self


class StopSignals:
    """SIGTERM and SIGINT as two events: the first signal, and any later one. Leaving restores the earlier handlers."""

    def __init__(self) -> None:
        self.first = asyncio.Event()
        self.second = asyncio.Event()

    def __enter__(self) -> Self:
        self._before: dict[signal.Signals, Any] = {}
        for wanted in (signal.SIGTERM, signal.SIGINT):
            before = signal.getsignal(wanted)
            # Not in the main thread, or not on this platform: there, only cancellation ends the app.
            with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
                asyncio.get_running_loop().add_signal_handler(wanted, self._received)
                self._before[wanted] = before
        return self

    def __exit__(self, *_: object) -> None:
        for wanted, before in self._before.items():
            asyncio.get_running_loop().remove_signal_handler(wanted)
            # asyncio leaves the default handler behind. None stands for a handler that Python did not install.
            if before is not None:
                signal.signal(wanted, before)

    def _received(self) -> None:
        (self.second if self.first.is_set() else self.first).set()


async def run_until_signal(
    start: Coroutine[Any, Any, None], close: Callable[[float], Coroutine[Any, Any, None]], grace_s: float
) -> None:
    """Start, wait for the first signal, and close. A second signal cuts the grace period short.

    If the start fails, or this is canceled, it closes with the grace period and raises.
    """
    asked = StopSignals()
    try:
        with asked:
            starting = asyncio.ensure_future(start)
            first = asyncio.ensure_future(asked.first.wait())
            try:
                await asyncio.wait({starting, first}, return_when=asyncio.FIRST_COMPLETED)
                if starting.done():
                    starting.result()
                await first
            finally:
                first.cancel()
                starting.cancel()
                await asyncio.wait({starting})
            await finish_unless(asked.second, close(grace_s))
    except BaseException:
        await close(grace_s)
        raise


async def finish_unless(hurried: asyncio.Event, closing: Coroutine[Any, Any, None]) -> None:
    """Await `closing`, or cancel it once `hurried` is set and wait for that cancellation to end."""
    close = asyncio.ensure_future(closing)
    again = asyncio.ensure_future(hurried.wait())
    try:
        await asyncio.wait({close, again}, return_when=asyncio.FIRST_COMPLETED)
        if not close.done():
            close.cancel()
            # `wait` does not raise the cancellation of `close`, but raises a cancellation of the current task.
            await asyncio.wait({close})
        if not close.cancelled():
            close.result()
    finally:
        close.cancel()
        again.cancel()


async def finish_all(*closing: Coroutine[Any, Any, None]) -> None:
    """Await all of them together. A cancellation reaches each one, and is raised after all have ended."""
    tasks = [asyncio.ensure_future(one) for one in closing]
    try:
        await asyncio.wait(tasks)
    except asyncio.CancelledError:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        raise
    for task in tasks:
        task.result()


async def finish(closing: Coroutine[Any, Any, None]) -> None:
    """Await it to its end. A cancellation meanwhile does not reach it, and is raised after it has ended."""
    task = asyncio.ensure_future(closing)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        raise
