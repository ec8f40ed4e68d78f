"""Refuses to wait under a virtual clock while no worker runs: such a test would never end.

In virtual time a second passes at once, so a query each second would go on at full speed for ever. By a real clock the
caller may wait: a worker may start at any time on any machine.
"""

from everpoll.errors import NotRunning
from everpoll.stores.contract import Store

PATIENCE = 600
"""How many queries without a change are made before workers are counted: ten minutes of virtual time."""


async def refuse_endless_wait(store: Store, queries: int) -> None:
    """Raise `NotRunning` under virtual time, if nothing has changed for a while and no worker is alive."""
    is_virtual = store.beats_in_loop
    if is_virtual and queries and queries % PATIENCE == 0 and not any(one.is_alive for one in await store.workers()):
        raise NotRunning("no worker is running, so this would wait for ever: write `async with app:`")
