"""What this worker may have claimed without knowing.

An answer can get lost: the connection breaks, the call times out or is canceled after the server has committed. Then a
row stands in the table as ours, no handler runs it, and without a heartbeat column no rescue ever takes it back. So a
claim whose outcome is unknown is a doubt, and the next look first hands back every row that the table shows as ours
and that no handler here has. A new connection is one, too: its server may have forgotten what was settled (a failover,
a crash with asynchronous commits).

Only a worker whose id is its own may do that: `WORKER_ID` may have been given to two processes, and each would take
away the other's rows. Theirs are left to the rescue.
"""

import time
from collections.abc import Callable

SECOND_LOOK_S = 60.0
"""A statement may still lie unread in a dead connection while a new one overtakes it: so a doubt is settled twice."""


class Doubts:
    """Of one worker."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._due_at: list[float] = []
        self._was_connected = False
        self.is_id_unique = False

    def begin(self) -> None:
        """A claim may have been made without an answer."""
        now = self._clock()
        self._due_at = [now, now + SECOND_LOOK_S]

    def connected(self) -> None:
        """The server may have forgotten what it answered. One look is enough: what is to be found is there already."""
        if self._was_connected:
            now = self._clock()
            self._due_at = [now, *(one for one in self._due_at if one > now)]
        self._was_connected = True

    def are_due(self) -> bool:
        """Whether something is to be handed back now."""
        return self.is_id_unique and bool(self._due_at) and self._due_at[0] <= self._clock()

    @property
    def are_left(self) -> bool:
        """Whether there is a doubt at all."""
        return self.is_id_unique and bool(self._due_at)

    def settled(self) -> None:
        """Unknown claims have been handed back."""
        self._due_at = self._due_at[1:]
