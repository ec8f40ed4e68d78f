"""Errors of a statement that carries many items: whether one item alone may have caused the error.

If it may, the caller splits the batch. Promises: a statement with such an error was not executed. After an outage a
batch is never split. A lock that another transaction holds is not an outage: it may be the lock of one task.
"""

from everpoll.drivers.locks import LockHeld
from everpoll.errors import LeaseLost, NotRunning, SchemaOutdated, StoreUnavailable, TableUnfit

OF_ALL = (StoreUnavailable, SchemaOutdated, TableUnfit, NotRunning, LeaseLost)
"""Errors that concern all items: the database is away, its schema is outdated, the store is closed."""


def may_be_one_items_fault(error: Exception) -> bool:
    """Return True if one item may have caused the error: then the others may be accepted without it.

    Such errors are a value that cannot be stored (`BadInput`), and an error of the database, as from a user's trigger.
    """
    return isinstance(error, LockHeld) or not isinstance(error, OF_ALL)
