"""The heartbeat's own connection: blocking calls, from the heartbeat's thread.

Promises: a beat is one statement, on a connection and an event loop of its own that runs only while it beats; a handler
that blocks the worker's event loop does not stop it. A connection that was cut while nothing was asked of it is
replaced within the same beat.
"""

import asyncio
from collections.abc import Callable, Sequence

from everpoll.drivers.postgres.lane import Dial, Lane
from everpoll.errors import StoreUnavailable
from everpoll.stores.contract import DEADLINE_GRACE_S, RESCUE_LIMIT, Beat
from everpoll.stores.silence import Silence

BEAT = "select * from everpoll.beat($1, $2, $3, $4, $5, $6)"


class PostgresPulse:
    """One heartbeat's way to the database."""

    def __init__(self, dial: Dial, silence: Silence, on_rescue: Callable[[], None]) -> None:
        self._event_loop = asyncio.new_event_loop()
        self._lane = Lane(dial)
        self._silence = silence
        self._on_rescue = on_rescue
        self._was_heard = False

    def beat(self, incarnation: int, lease_s: float, overdue_s: float | None, running: Sequence[int]) -> Beat:
        """See the contract."""
        try:
            beat = self._event_loop.run_until_complete(self._beat(incarnation, lease_s, overdue_s, running))
        except StoreUnavailable:
            # The server may have ended the connection while nobody looked at it. A beat may be repeated.
            was_heard, self._was_heard = self._was_heard, False
            if not was_heard:
                raise
            beat = self._event_loop.run_until_complete(self._beat(incarnation, lease_s, overdue_s, running))
        self._was_heard = True
        if beat.rescued:
            self._on_rescue()
        return beat

    async def _beat(self, incarnation: int, lease_s: float, overdue_s: float | None, running: Sequence[int]) -> Beat:
        most_rescues = None if self._silence.was_cut_off(incarnation, lease_s) else RESCUE_LIMIT
        row = await self._lane.row(BEAT, incarnation, lease_s, overdue_s, list(running), DEADLINE_GRACE_S, most_rescues)
        self._silence.heard(incarnation)
        canceled = set(row["canceled"] or ())
        return Beat(
            is_alive=row["is_alive"],
            rescued=row["rescued"],
            canceled=tuple(one for one in running if one in canceled),
        )

    def close(self) -> None:
        """Let go of the connection."""
        if not self._event_loop.is_closed():
            self._event_loop.run_until_complete(self._lane.close())
            self._event_loop.close()
