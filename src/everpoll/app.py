"""Everpoll: what the user holds. The only file that knows every room."""

import asyncio
import contextlib
import signal
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from everpoll.loops import LoopOptions, Loops
from everpoll.policy import Clock, Duration, Rng, seconds

F = TypeVar("F", bound=Callable[[], Any])


class Everpoll:
    """One app: register loops on it, then `await app.run()`, or `async with app:` inside your own program."""

    def __init__(self, *, clock: Clock | None = None, rng: Rng | None = None) -> None:
        self.loops = Loops(rng=rng, wall=time.time if clock is None else clock.wall)

    def loop(self, every: Duration, **options: Unpack[LoopOptions]) -> Callable[[F], F]:
        """Run the decorated function every so often, from one interval after the start; plain ones run in threads."""

        def register(function: F) -> F:
            self.loops.add(function, every, **options)
            return function

        return register

    async def __aenter__(self) -> Self:
        await self.loops.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.loops.close(grace=0 if kind else "10s")

    async def run(self, grace: Duration = "10s") -> None:
        """Run until SIGTERM, SIGINT or cancellation; a second signal ends without waiting for the grace period."""
        grace_s = seconds(grace, name="grace")
        asked = _Signals()
        await self.loops.start()
        try:
            with asked:
                await asked.first.wait()
                await self._close_unless(asked.second, grace_s)
        except asyncio.CancelledError:
            await self.loops.close(grace_s)
            raise

    async def _close_unless(self, hurried: asyncio.Event, grace_s: float) -> None:
        """Close with the grace period, or without what is left of it once hurried."""
        closing = asyncio.ensure_future(self.loops.close(grace_s))
        again = asyncio.ensure_future(hurried.wait())
        try:
            await asyncio.wait({closing, again}, return_when=asyncio.FIRST_COMPLETED)
            if not closing.done():
                closing.cancel()
                # Not awaited itself: its cancellation is ours to ignore, one of this task is not.
                await asyncio.wait({closing})
            if not closing.cancelled():
                closing.result()
        finally:
            closing.cancel()
            again.cancel()


class _Signals:
    """SIGTERM and SIGINT as two events, the first and any further one; the handlers before are put back at the end."""

    def __init__(self) -> None:
        self.first = asyncio.Event()
        self.second = asyncio.Event()

    def __enter__(self) -> Self:
        self._before: dict[signal.Signals, Any] = {}
        for wanted in (signal.SIGTERM, signal.SIGINT):
            before = signal.getsignal(wanted)
            # Not in the main thread, or not on this platform: then cancellation is the way to end it.
            with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
                asyncio.get_running_loop().add_signal_handler(wanted, self._received)
                self._before[wanted] = before
        return self

    def __exit__(self, *_: object) -> None:
        for wanted, before in self._before.items():
            asyncio.get_running_loop().remove_signal_handler(wanted)
            # asyncio leaves the default behind; None stands for a handler that Python does not know.
            if before is not None:
                signal.signal(wanted, before)

    def _received(self) -> None:
        (self.second if self.first.is_set() else self.first).set()
