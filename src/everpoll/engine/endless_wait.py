"""Refuses to wait under a virtual clock while no worker runs: such a test would never end.

In virtual time a query each second takes no time, so queries would go on at full speed for ever. By a real clock the
caller waits: a worker may start at any time on any machine.
"""

from everpoll.errors import NotRunning
from everpoll.stores.contract import Store

PATIENCE = 600
"""Queries without news: ten minutes of virtual time."""


async def refuse_endless_wait(store: Store, looks: int) -> None:
    """Raise `NotRunning` where no worker lives that could bring news, and none was started for a while."""
    is_virtual = store.beats_in_loop
    if is_virtual and looks and looks % PATIENCE == 0 and not any(one.is_alive for one in await store.workers()):
        raise NotRunning("no worker is running, so this would wait for ever: write `async with app:`")
