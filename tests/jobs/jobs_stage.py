"""What tests of jobs share: counting what is asked of a store, and waiting for a task without a worker's help."""

import asyncio
from typing import Any

from everpoll import Everpoll, Task, TaskInfo

LIMIT_S = 20.0


def counted(app: Everpoll, operation: str) -> list[tuple[Any, ...]]:
    """From now on, the arguments of every call of this operation of the app's store."""
    calls: list[tuple[Any, ...]] = []
    original = getattr(app._store, operation)

    async def counts(*args: Any, **kwargs: Any) -> Any:
        calls.append(args)
        return await original(*args, **kwargs)

    setattr(app._store, operation, counts)
    return calls


async def ended(task: Task, limit_s: float = LIMIT_S) -> TaskInfo:
    """Return the whole task, once it has ended, however it did."""
    async with asyncio.timeout(limit_s):
        await (await task._jobs.results()).wait(task.id)
        return await task.info()


async def soon(event: asyncio.Event) -> None:
    """Wait for it, not for ever."""
    async with asyncio.timeout(LIMIT_S):
        await event.wait()
