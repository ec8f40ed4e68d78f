"""The caller's own transaction: what a store does inside it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from everpoll.drivers.callers.work import CallerWork
    from everpoll.stores.contract import Ended, Enqueued, Lease, NewTask


class OwnTransactions(Protocol):
    """The part of a store that callers reach through connections of their own.

    The work that these calls return is done by `drivers.callers`, on the caller's connection. `anew`: the work before
    led elsewhere, and what this store knows about its own database may be outdated.
    """

    async def enqueue_inside(self, tasks: "Sequence[NewTask]", *, anew: bool = False) -> "CallerWork[list[Enqueued]]":
        """Enqueue these in the caller's transaction; its commit wakes workers. `BadInput`: there are no connections."""
        ...

    async def complete_inside(self, incarnation: int, ended: "Ended", *, anew: bool = False) -> "CallerWork[None]":
        """End a task as done in the caller's transaction. A lease that was lost is `LeaseLost`, and nothing of that
        transaction can be committed then."""
        ...

    async def is_complete(self, incarnation: int, lease: "Lease") -> bool:
        """Return whether a committed transaction has ended the task under this lease; if so, forget the lease."""
        ...
