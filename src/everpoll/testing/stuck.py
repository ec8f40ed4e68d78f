"""Stuck: the error of a test whose time cannot go on, with a list of its tasks and where they wait.

Promises: the block that owns the clock raises the error, after its own clean-up, with the place where it waited as the
cause. Never interrupts another task.
"""

import asyncio
from types import CodeType, FrameType
from typing import Any

from everpoll.errors import EverpollError

_TASKS_SHOWN = 20


class Guard:
    """The task that owns the clock, and the error with which it must end, if any.

    Works as `asyncio.timeout` does: the owner is cancelled, and `settle` turns that cancellation into the error.
    """

    def __init__(self, owner: asyncio.Task[Any]) -> None:
        self._owner = owner
        self._cancelling = owner.cancelling()
        self._error: EverpollError | None = None

    def interrupt(self, error: EverpollError) -> bool:
        """End the owner's block with `error`; return False if the block has ended, or was interrupted before."""
        if self._error is not None or self._owner.done():
            return False
        self._error = error
        self._owner.cancel(str(error))
        return True

    def settle(self, outcome: BaseException | None) -> None:
        """End the block with `outcome`; raise the error unless another one must be seen first."""
        if self._error is None:
            return
        left = self._owner.uncancel()
        if outcome is None or (isinstance(outcome, asyncio.CancelledError) and left <= self._cancelling):
            raise self._error from outcome
        outcome.add_note(str(self._error))


def waiting_tasks(loop: asyncio.AbstractEventLoop) -> str:
    """Return a line for each unfinished asyncio task: its name, what it runs and where it waits."""
    tasks = sorted(asyncio.all_tasks(loop), key=lambda task: (len(task.get_name()), task.get_name()))
    lines = [f"  - {task.get_name()}: {_where(task)}" for task in tasks[:_TASKS_SHOWN]]
    if len(tasks) > _TASKS_SHOWN:
        lines.append(f"  - and {len(tasks) - _TASKS_SHOWN} more")
    return "\n".join(lines) or "  (no task is left)"


def _where(task: asyncio.Task[Any]) -> str:
    frames = [frame for frame in _frames(task.get_coro()) if not _is_plumbing(frame.f_code)]
    if not frames:
        return getattr(task.get_coro(), "__qualname__", repr(task.get_coro()))
    return f"{frames[0].f_code.co_qualname} waits at {frames[-1].f_code.co_filename}:{frames[-1].f_lineno}"


def _frames(awaited: object) -> list[FrameType]:
    # Task.get_stack() shows the outermost coroutine only; the line that explains a deadlock is the innermost.
    frames: list[FrameType] = []
    while awaited is not None:
        frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "gi_frame", None)
        if isinstance(frame, FrameType):
            frames.append(frame)
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "gi_yieldfrom", None)
    return frames


def _is_plumbing(code: CodeType) -> bool:
    path = code.co_filename.replace("\\", "/")
    return "/asyncio/" in path or path.endswith(("/testing/clock.py", "/testing/timekeeper.py"))
