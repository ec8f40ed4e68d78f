"""PushTask: the parts of this process that one push connection wakes, and the task that keeps the connection open.

    no task ──first add──▶ running ──last remove, or close──▶ no task

Promises: one task serves every part that was added. `add` returns once the task has found out whether push works, or
after `patience_s`. When an event loop ends, its parts and its task end: the first `add` in another event loop starts a
new task. Closing is repeatable, also from another event loop.
"""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine

from everpoll.drivers.wake import NOW, OnWake, Wake


class PushTask:
    """Runs `keep` while any part wants to be woken.

    `keep` calls `confirm` when push works, and `fail` when it does not.
    """

    def __init__(self, keep: Callable[[], Coroutine[None, None, None]], name: str) -> None:
        self._keep = keep
        self._name = name
        self._parts: list[OnWake] = []
        self._task: asyncio.Task[None] | None = None
        self._event_loop: asyncio.AbstractEventLoop | None = None
        self._tried = asyncio.Event()
        self._works = False

    @property
    def has_push(self) -> bool:
        """True while push works, as far as `keep` has found out."""
        return self._works

    async def add(self, on_wake: OnWake, patience_s: float | None = None) -> None:
        """Wake this part too; return once it is known whether push works, at the latest after `patience_s`."""
        event_loop = asyncio.get_running_loop()
        if self._event_loop is not event_loop:
            self._parts, self._task, self._event_loop = [], None, event_loop
        self._parts.append(on_wake)
        if self._task is None:
            self._tried = asyncio.Event()
            self._task = event_loop.create_task(self._run(), name=self._name)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                await self._tried.wait()

    async def remove(self, on_wake: OnWake) -> None:
        """Stop waking this part; without any part left, end the task."""
        self._parts = [one for one in self._parts if one != on_wake]
        if not self._parts:
            await self.close()

    async def close(self) -> None:
        """Forget all parts and end the task."""
        task, self._task = self._task, None
        self._parts, self._works = [], False
        self._tried.set()
        if task is not None and self._event_loop is asyncio.get_running_loop():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def wake(self, wake: Wake = NOW) -> None:
        """Wake all parts, unless they belong to another event loop."""
        if self._event_loop is asyncio.get_running_loop():
            for on_wake in self._parts:
                self._event_loop.call_soon(on_wake, wake)

    def from_thread(self, call: Callable[[], None]) -> None:
        """Call this in the event loop if any part waits; callable from any thread."""
        if self._event_loop is not None and self._parts:
            with contextlib.suppress(RuntimeError):  # that event loop is closed
                self._event_loop.call_soon_threadsafe(call)

    def confirm(self) -> bool:
        """Record that push works; return whether an earlier try has ended, so that a wake-up may have been missed."""
        was_tried = self._tried.is_set()
        self._works = True
        self._tried.set()
        return was_tried

    def fail(self) -> None:
        """Record that push does not work at present."""
        self._works = False
        self._tried.set()

    async def _run(self) -> None:
        try:
            await self._keep()
        finally:
            self._works = False
