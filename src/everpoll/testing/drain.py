"""drain: runs all due tasks in a test, and returns when none is left.

Promises: when it returns, no task of the app's queues is due or running. Delayed tasks, retries that wait for their
backoff, and tasks of paused queues stay as they are. The worker that it starts has stopped by then. Never starts loops,
and never closes the app or its store, so a test needs no `async with app` to enqueue before it and to read results
after.
"""

import asyncio
from collections.abc import Collection, Iterable
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from everpoll.errors import BadInput
from everpoll.policy import Backoff, Duration, human, seconds, shown
from everpoll.stores.contract import QueueInfo, Store

# Most tests enqueue a handful of quick jobs: the first queries come quickly.
CADENCE = Backoff("1ms", factor=1.5, cap="50ms", jitter=0)


class DrainableApp(Protocol):
    """The part of an app that `drain` needs; `Everpoll` has it."""

    @property
    def queues(self) -> Collection[str]:
        """The queues that its worker serves."""
        ...

    async def store(self) -> Store:
        """Return the store of its tasks."""
        ...

    def working(self) -> AbstractAsyncContextManager[None]:
        """Run a worker for the length of a block."""
        ...


async def drain(app: DrainableApp, timeout: Duration = "30s") -> None:  # noqa: ASYNC109 - the word of the API
    """Run a worker of the app until no task is due or running; `TimeoutError` names the queues that still have tasks.

        await audit.enqueue("https://example.com")
        await drain(app)
        assert (await task.info()).state == "done"

    Tasks that are delayed stay: with a `VirtualClock`, advance it and drain again. Tasks that due ones enqueue are run
    too. If the app runs already, its own worker does the work, and goes on afterwards.
    """
    limit_s = seconds(timeout, name="timeout")
    if not hasattr(app, "working"):
        raise BadInput(f"drain({shown(app)}): drain takes the app, and runs its jobs of all names: write drain(app)")
    store = await app.store()
    left = _left(await store.queues(), app.queues)
    if not left:
        return
    limit = asyncio.timeout(limit_s)
    try:
        async with limit, app.working():
            looks = 0
            while left := _left(await store.queues(), app.queues):
                looks += 1
                await asyncio.sleep(CADENCE.delay(looks))
    except TimeoutError:
        if not limit.expired():
            raise
        raise TimeoutError(f"not drained within {human(limit_s)}: {_listed(left)}") from None


def _left(queues: Iterable[QueueInfo], served: Collection[str]) -> list[QueueInfo]:
    """Return the queues that have tasks to run; of a paused queue, only running tasks count."""
    waiting = (one for one in queues if one.queue in served)
    return [one for one in waiting if one.running or ((one.ready or one.limited) and one.paused is None)]


def _listed(left: list[QueueInfo]) -> str:
    lines = (f"queue {one.queue!r} has {one.ready + one.limited} due and {one.running} running" for one in left)
    return "; ".join(lines) or "the last tasks ended just now"
