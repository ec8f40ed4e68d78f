"""Session: the event loop, timer, threads and context of an app's loops, from one start to one close."""

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from everpoll.engine.thread_call import ThreadCall
from everpoll.engine.threads import LONG_S, DaemonThreads
from everpoll.loops.deadlines import Deadlines
from everpoll.loops.loop import Loop


@dataclass(slots=True, eq=False)
class Session:
    """Belongs to one event loop."""

    event_loop: asyncio.AbstractEventLoop
    deadlines: Deadlines[Loop]
    threads: DaemonThreads
    context: contextvars.Context = field(default_factory=contextvars.copy_context)
    is_closing: bool = False
    over: asyncio.Event = field(default_factory=asyncio.Event)
    _slow_check: asyncio.TimerHandle | None = None

    def spawn(
        self, run: Coroutine[Any, Any, None], name: str, context: contextvars.Context | None
    ) -> "asyncio.Task[None]":
        """Start a run in a context of its own."""
        # Not create_task: an eager task factory would begin the run before the caller has kept the task.
        return asyncio.Task(run, loop=self.event_loop, name=name, context=context or self.context.copy())

    def in_thread(self, function: Callable[[], Any]) -> "tuple[ThreadCall, asyncio.Future[Any]]":
        """Call a plain function in a thread."""
        call = ThreadCall(function, self.threads)
        future = self.event_loop.run_in_executor(self.threads, call)
        if self.threads.is_short and self._slow_check is None:
            self._replace_slow_later()
        return call, future

    def end(self) -> None:
        """Cancel the timers."""
        self.deadlines.close()
        if self._slow_check is not None:
            self._slow_check.cancel()

    def _replace_slow_later(self) -> None:
        """While calls wait for a thread, check every LONG_S whether hanging threads must be replaced."""
        self._slow_check = self.event_loop.call_later(LONG_S, self._replace_slow)

    def _replace_slow(self) -> None:
        self._slow_check = None
        self.threads.replace_slow()
        if self.threads.is_short:
            self._replace_slow_later()
