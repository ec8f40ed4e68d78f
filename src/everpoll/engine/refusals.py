"""Errors of a statement that carries many items: which of them one item alone may have caused.

Promises: what is split was not executed. An outage says nothing about the items, and is never split. A lock that
another transaction holds is not an outage: it may be that of one task.
"""

from everpoll.drivers.locks import LockHeld
from everpoll.errors import LeaseLost, NotRunning, SchemaOutdated, StoreUnavailable, TableUnfit

OF_ALL = (StoreUnavailable, SchemaOutdated, TableUnfit, NotRunning, LeaseLost)
"""Nothing could be done at all: the database is away, its schema is outdated, the store is closed."""


def may_be_of_one(error: Exception) -> bool:
    """Return whether the statement was refused, for a reason that may lie in one of its items.

    A value that cannot be kept is one (`BadInput`); so is what a database or its driver says, as of a user's trigger.
    """
    return isinstance(error, LockHeld) or not isinstance(error, OF_ALL)
