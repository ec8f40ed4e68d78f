"""The signals that make the poller go on: a free slot, a shorter backlog, a reason to poll.

Made before the pool, the settler and the poller: the first two set the events, the poller waits for them.
"""

import asyncio


class PollSignals:
    """The events of one worker's poller."""

    def __init__(self) -> None:
        self.freed = asyncio.Event()
        """Set when there may be room for more tasks: a slot is free, or settlements were written."""
        self.is_slot_awaited = False
        """Whether the poller waits for `freed`: if not, no run needs to set it."""
        self.woken = asyncio.Event()
        """Set when there is a reason to poll before the planned time."""
        self.full_queues: set[str] = set()
        """The queues that had no room at the last poll."""

    def slot_freed(self, queue: str) -> None:
        """Note that a handler of this queue has ended. Called once a run."""
        if self.is_slot_awaited:
            self.is_slot_awaited = False
            self.freed.set()
        if queue in self.full_queues:
            self.woken.set()
