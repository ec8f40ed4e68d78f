"""Errors of a statement that carries many items: which of them one item alone may have caused.

Promises: what is split was not executed. An outage says nothing about the items, and is never split.
"""

from everpoll.errors import BadInput, EverpollError


def may_be_of_one(error: Exception) -> bool:
    """Whether the statement was refused, for a reason that may lie in one of its items.

    An error of everpoll's own tells that nothing could be done at all (the database is away, its schema is outdated);
    only `BadInput` speaks of a value. Any other comes from the database or its driver, as from a user's trigger.
    """
    return isinstance(error, BadInput) or not isinstance(error, EverpollError)
