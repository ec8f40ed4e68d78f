"""Enqueued tasks, for tests that do not run them.

Promises: tasks are compared by the parameters of the job's function, so `f(1, b=2)` and `f(1, 2)` are the same call.
Tasks in any state count, also ended ones.
"""

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import msgspec

from everpoll.stores.contract import Store, TaskFilter, TaskInfo

PAGE = 1_000
LISTED = 10
"""How many calls a failed assertion shows."""


class Opened(Protocol):
    """The part of an app that this needs; `Everpoll` has it."""

    async def store(self) -> Store:
        """Return the store of its tasks."""
        ...


class Named(Protocol):
    """The part of a job that this needs; `Job` has it."""

    @property
    def name(self) -> str:
        """The name of the job."""
        ...

    @property
    def signature(self) -> inspect.Signature:
        """The parameters of its function, without the task."""
        ...

    @property
    def new_task(self) -> Callable[..., Any]:
        """Make the task of these arguments."""
        ...


class EnqueuedCall(NamedTuple):
    """One task, as it was enqueued."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    info: TaskInfo


async def enqueued(app: Opened, job: Named) -> list[EnqueuedCall]:
    """Return the tasks of a job, oldest first."""
    store, after = await app.store(), None
    found: list[EnqueuedCall] = []
    while True:
        page = await store.tasks(TaskFilter(name=job.name, kind="job"), PAGE, after)
        for info in page.tasks:
            given = info.args or {}
            found.append(EnqueuedCall(tuple(given.get("args", ())), dict(given.get("kwargs", {})), info))
        after = page.after
        if after is None:
            return found[::-1]


async def assert_enqueued(app: Opened, job: Named, /, *args: Any, **kwargs: Any) -> TaskInfo:
    """Return the newest task of this call.

    If there is none, raise `AssertionError` with the calls that were enqueued.
    """
    wanted = msgspec.json.decode(job.new_task(args, kwargs).args)
    expected = _bound(job.signature, tuple(wanted.get("args", ())), wanted.get("kwargs", {}))
    calls = await enqueued(app, job)
    for call in reversed(calls):
        if _bound(job.signature, call.args, call.kwargs) == expected:
            found: TaskInfo = call.info
            return found
    what = f"{job.name}({_shown(tuple(wanted.get('args', ())), wanted.get('kwargs', {}))})"
    if not calls:
        raise AssertionError(f"{what} was not enqueued; no task of {job.name} was")
    listed = "\n".join(f"  {job.name}({_shown(call.args, call.kwargs)}), {call.info.state}" for call in calls[-LISTED:])
    more = f"\n  … and {len(calls) - LISTED} before them" if len(calls) > LISTED else ""
    raise AssertionError(f"{what} was not enqueued; these were:\n{listed}{more}")


def _bound(signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    bound = signature.bind_partial(*args, **kwargs)
    bound.apply_defaults()
    return dict(bound.arguments)


def _shown(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    return ", ".join([*map(repr, args), *(f"{name}={value!r}" for name, value in kwargs.items())])
