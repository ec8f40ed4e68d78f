"""One run of a loop, with its registration and the future of the callers that wait for its outcome."""

import asyncio
from collections.abc import Callable, Generator
from typing import Any

from everpoll.engine.thread_call import ThreadCall
from everpoll.errors import EverpollError
from everpoll.loops.registration import Registration
from everpoll.loops.state import Outcome


class Run:
    """A run under way. All callers that triggered it share one future, which gets the outcome."""

    __slots__ = ("answer", "generation", "number", "registration", "task", "thread", "thread_future")

    def __init__(
        self, number: int, generation: int, registration: Registration, answer: "asyncio.Future[Outcome] | None"
    ) -> None:
        self.number = number
        self.generation = generation
        self.registration = registration
        self.answer = answer
        self.task: asyncio.Task[None] | None = None
        self.thread: ThreadCall | None = None
        self.thread_future: asyncio.Future[Any] | None = None

    def under_way(self) -> "list[asyncio.Future[Any]]":
        """Return the unfinished task and thread; those of a closed event loop never end, so they are left out."""
        works = [work for work in (self.task, self.thread_future) if work is not None and not work.done()]
        return [work for work in works if not work.get_loop().is_closed()]

    def is_over(self) -> bool:
        """Return whether no part of the run is running, or will run."""
        return not self.under_way() and (self.thread is None or self.thread.withdraw())


class Triggered:
    """What `trigger()` returns: await it for the outcome, or ignore it.

    Any number of triggers during a run share one future, so a thousand of them cost no more than one.
    """

    __slots__ = ("_future", "_is_own")

    def __init__(self, future: "asyncio.Future[Outcome]", is_own: Callable[[], bool]) -> None:
        self._future = future
        self._is_own = is_own

    def __await__(self) -> Generator[Any, None, Outcome]:
        if not self._future.done() and self._is_own():
            raise EverpollError("a loop cannot await its own trigger: that run begins when this one has ended")
        # Shielded: if one caller stops waiting, the others must still get the outcome.
        return asyncio.shield(self._future).__await__()

    def done(self) -> bool:
        """Return whether the outcome is known."""
        return self._future.done()
