"""Gives an app that was made for a real database a store in memory, for the length of a block.

    with in_memory(app):    tasks are kept in memory; `drain(app)` runs them
    with inline(app):       the same, and each enqueue returns after its task has run

Promises: inside the block the app's own database is not used, also not by synchronous callers. After the block the app
has its own store again, and the tasks of the block are gone. Never: replaces the store of an app that runs.
"""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

from everpoll.logs.context import SUBJECT
from everpoll.policy import Clock
from everpoll.stores.contract import Enqueued, NewTask, Store
from everpoll.stores.flows import FlowTask
from everpoll.stores.memory import MemoryStore
from everpoll.testing.drain import DrainableApp, drain


class AppWithStore(DrainableApp, Protocol):
    """The part of an app that this needs; `Everpoll` has it."""

    def exchange_store(self, store: Store) -> Any:
        """Use another store; return the value that `restore_store` needs."""
        ...

    def restore_store(self, before: Any) -> None:
        """Use the earlier store again."""
        ...


A = TypeVar("A", bound=AppWithStore)


@contextmanager
def in_memory(app: A, *, clock: Clock | None = None) -> Iterator[A]:
    """Keep the tasks of the app in memory for the length of the block.

        with in_memory(app):
            await send_invoice.enqueue(7)
            await assert_enqueued(app, send_invoice, 7)
            await drain(app)

    `clock`: a `VirtualClock`, if delays must pass at once.
    """
    with _on(app, MemoryStore(clock)):
        yield app


@contextmanager
def inline(app: A, *, clock: Clock | None = None) -> Iterator[A]:
    """Run each task before its `enqueue` returns, for the length of the block; on a store in memory.

    Tasks with a delay, and those that wait for their next attempt, stay: `drain(app)` runs them once they are due. A
    job that enqueues others does not wait for them; the enqueue around them does.
    """
    store = _InlineStore(clock, app)
    with _on(app, store):
        yield app


@contextmanager
def _on(app: AppWithStore, store: Store) -> Iterator[None]:
    before = app.exchange_store(store)
    try:
        yield
    finally:
        app.restore_store(before)


class _InlineStore(MemoryStore):
    """Runs the due tasks of the app before an enqueue returns."""

    def __init__(self, clock: Clock | None, app: DrainableApp) -> None:
        super().__init__(clock)
        self._app = app
        self._turn: tuple[asyncio.AbstractEventLoop, asyncio.Lock] | None = None

    async def enqueue(self, tasks: Sequence[NewTask]) -> list[Enqueued]:
        answers = await super().enqueue(tasks)
        await self._run()
        return answers

    async def enqueue_flow(self, tasks: Sequence[FlowTask]) -> list[Enqueued]:
        answers = await super().enqueue_flow(tasks)
        await self._run()
        return answers

    async def _run(self) -> None:
        if SUBJECT.get() is not None:
            return  # the caller is a job: the drain under way runs its tasks, too
        event_loop = asyncio.get_running_loop()
        if self._turn is None or self._turn[0] is not event_loop:
            self._turn = (event_loop, asyncio.Lock())
        # One at a time: the drain that ends first would stop the worker of the others.
        async with self._turn[1]:
            await drain(self._app)
