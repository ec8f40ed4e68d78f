"""Hooks: functions that a worker calls for jobs that are done or have failed, after the commit.

Promises: hooks only observe; an error that one raises is logged and changes nothing. The hooks of an app are called one
after the other, while jobs run. A worker calls its hooks for the jobs that it ended itself, by settling or rescuing
them, at most once for each job: if the worker dies right after the commit, they are not called. Work that must happen
belongs in a following job. At most `WAITING_LIMIT` jobs wait for slow hooks. If there are no hooks, no rows are read.
"""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from everpoll.engine.threads import DaemonThreads
from everpoll.errors import BadInput
from everpoll.policy import shown
from everpoll.stores.contract import Store, TaskInfo

logger = logging.getLogger("everpoll.jobs")

Hook = Callable[[TaskInfo], Any]
CLOSE_S = 5.0
READ_LIMIT = 50
WAITING_LIMIT = 100_000
"""How many jobs may wait for hooks; for further jobs, no hooks are called."""


class Hooks:
    """The hooks of one app."""

    def __init__(self, store: Callable[[], Awaitable[Store]]) -> None:
        self._store = store
        self._hooks: dict[str, list[tuple[str | None, Hook]]] = {"done": [], "failed": []}
        self._waiting: list[int] = []
        self._is_full = False
        # Daemon threads: a hook that hangs must not keep the program from ending.
        self._threads = DaemonThreads(limit=1, name="everpoll-hook")
        self._calling: asyncio.Task[None] | None = None

    def add(self, state: str, hook: Hook, name: str | None = None) -> Hook:
        """Call this hook for each job that ends in this state; with a name, only for that job."""
        if not callable(hook):
            raise BadInput(f"on_{state}: {shown(hook)} is not a function: write it above one that takes a TaskInfo")
        self._hooks[state].append((name, hook))
        return hook

    @property
    def is_empty(self) -> bool:
        """True if there are no hooks."""
        return not any(self._hooks.values())

    def ended(self, ended: Iterable[int]) -> None:
        """Call the hooks for these tasks, which this process's worker has ended and committed."""
        if self.is_empty or not (task_ids := list(ended)):
            return
        room = WAITING_LIMIT - len(self._waiting)
        self._waiting.extend(task_ids[:room])
        if len(task_ids) > room and not self._is_full:
            logger.warning("hooks are slower than jobs: they are not called for more than %d jobs", WAITING_LIMIT)
        self._is_full = len(task_ids) > room
        if self._calling is None or self._calling.done():
            self._calling = asyncio.get_running_loop().create_task(self._call_all(), name="everpoll-hooks")

    async def close(self) -> None:
        """Wait for up to CLOSE_S until the waiting hooks were called."""
        calling, self._calling = self._calling, None
        if calling is None or calling.get_loop() is not asyncio.get_running_loop():
            return
        await asyncio.wait({calling}, timeout=CLOSE_S)
        if not calling.done():
            logger.warning(
                "hooks did not end within %g s: they are not called for %d jobs", CLOSE_S, len(self._waiting)
            )
            calling.cancel()
            await asyncio.wait({calling}, timeout=CLOSE_S)
        self._waiting.clear()

    async def _call_all(self) -> None:
        while self._waiting:
            some, self._waiting = self._waiting[:READ_LIMIT], self._waiting[READ_LIMIT:]
            try:
                found = await (await self._store()).info(some)
            except Exception as error:  # noqa: BLE001 - hooks observe: nothing depends on them
                logger.warning("cannot call hooks for %d jobs: %s", len(some), error)
                continue
            for task_id in some:
                if (info := found.get(task_id)) is not None and info.ended_at is not None and info.kind == "job":
                    await self._call(info)

    async def _call(self, info: TaskInfo) -> None:
        for name, hook in self._hooks.get(info.state, ()):
            if name is not None and name != info.name:
                continue
            try:
                await self._called(hook, info)
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                calling = asyncio.current_task()
                if isinstance(error, asyncio.CancelledError) and calling is not None and calling.cancelling():
                    raise
                logger.exception("%s#%d: a hook for %s jobs failed", info.name, info.id, info.state)

    async def _called(self, hook: Hook, info: TaskInfo) -> None:
        if inspect.iscoroutinefunction(hook):
            await hook(info)
            return
        answer = await asyncio.get_running_loop().run_in_executor(self._threads, hook, info)
        if inspect.isawaitable(answer):  # an object whose __call__ is async
            await answer
