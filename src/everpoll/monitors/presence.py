"""Presence: tells a process without services whether the store has work for a worker of services.

Promises: each call queries services; open incidents and waiting messages of removed services only every LEFTOVERS_S. It
imports almost nothing of this package, because most programs have no services.
"""

import asyncio

from everpoll.monitors.kinds import CHECK_KIND, INCIDENT_KIND, MAILBOX_KIND
from everpoll.stores.contract import LIVE_STATES, Store, TaskFilter

LEFTOVERS_S = 60.0
"""How often a process without services queries open incidents and waiting messages of removed services."""


class Presence:
    """Queries the store for one process."""

    def __init__(self) -> None:
        self._leftovers_at = -LEFTOVERS_S

    async def is_any(self, store: Store) -> bool:
        """Return True if there is a service, an open incident or a waiting message."""
        if await _is_live(store, CHECK_KIND):
            return True
        now = asyncio.get_running_loop().time()
        if now < self._leftovers_at + LEFTOVERS_S:
            return False
        self._leftovers_at = now
        if await _is_live(store, INCIDENT_KIND):
            return True
        # Mailboxes never end; an empty one needs no worker.
        mailboxes = await store.tasks(TaskFilter(kind=MAILBOX_KIND, indexed=True), limit=100)
        return any(one.ended_at is None and one.args.get("notices") for one in mailboxes.tasks)


async def _is_live(store: Store, kind: str) -> bool:
    for state in LIVE_STATES:
        if (await store.tasks(TaskFilter(kind=kind, indexed=True, state=state), limit=1)).tasks:
            return True
    return False
