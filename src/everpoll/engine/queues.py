"""Queues: `app.queues["mail"]` pauses, resumes and counts one.

    open ──pause──▶ paused: tasks are enqueued and wait; what runs goes on; no worker of the fleet leases
      ▲────resume──────┘    workers are woken

Promises: a pause is durable, and holds for every worker of the fleet from the first lease after it.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

from everpoll.engine.actors import checked_actor
from everpoll.errors import BadInput
from everpoll.policy import flaw_of, shown
from everpoll.policy.storable_texts import ERROR_LIMIT, storable
from everpoll.stores.contract import QueueInfo, Store

NAME_LIMIT = 200


class Queue:
    """One queue, by its name."""

    __slots__ = ("_store", "name")

    def __init__(self, name: str, store: Callable[[], Awaitable[Store]]) -> None:
        if (flaw := flaw_of(name, NAME_LIMIT)) is not None:
            raise BadInput(f"queue {shown(name)} {flaw}: write a text of 1 to {NAME_LIMIT} characters")
        self.name = name
        self._store = store

    def __repr__(self) -> str:
        return f"<Queue {self.name}>"

    async def pause(self, reason: str = "", *, by: str = "") -> None:
        """Pause the queue: no worker of the fleet leases from it until `resume()`. `by` names the actor for the log.

        What runs goes on. Pausing a paused queue replaces the reason.
        """
        await (await self._store()).pause(self.name, storable(reason, ERROR_LIMIT), checked_actor(by))

    async def resume(self, *, by: str = "") -> bool:
        """End the pause; return False if the queue was not paused."""
        return await (await self._store()).resume(self.name, checked_actor(by))

    async def info(self) -> QueueInfo:
        """Return how much waits in it, since when, and whether it is paused."""
        found = await (await self._store()).queues()
        empty = QueueInfo(queue=self.name, ready=0, waiting=0, running=0)
        return next((one for one in found if one.queue == self.name), empty)


class Queues(Mapping[str, Queue]):
    """The queues that a worker of this app serves, by name. Any other name can be looked up, too."""

    def __init__(self, names: Callable[[], Sequence[str]], store: Callable[[], Awaitable[Store]]) -> None:
        self._names = names
        self._store = store

    def __getitem__(self, name: str) -> Queue:
        return Queue(name, self._store)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names())

    def __len__(self) -> int:
        return len(self._names())

    def __contains__(self, name: object) -> bool:
        return name in self._names()

    def __repr__(self) -> str:
        return f"<Queues {', '.join(self)}>"
