"""The caller's transaction: the operations of a store inside it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from everpoll.drivers.callers.work import CallerWork
    from everpoll.stores.contract import Ended, Enqueued, Lease, NewTask


class OwnTransactions(Protocol):
    """The operations of a store that callers may do through their own connections.

    `drivers.callers` does the returned work on the caller's connection. `anew`: the connection was one of another
    database than this store knows; read the identity of the database again.
    """

    async def enqueue_inside(self, tasks: "Sequence[NewTask]", *, anew: bool = False) -> "CallerWork[list[Enqueued]]":
        """Enqueue tasks in the caller's transaction; its commit wakes workers.

        Raises `BadInput` for a store in memory.
        """
        ...

    async def complete_inside(self, incarnation: int, ended: "Ended", *, anew: bool = False) -> "CallerWork[None]":
        """End a task as done in the caller's transaction. Raises `LeaseLost` if the lease was lost; the transaction
        cannot be committed then."""
        ...

    async def is_complete(self, incarnation: int, lease: "Lease") -> bool:
        """Return True if a committed transaction has ended the task under this lease; if so, forget the lease."""
        ...
