"""The heartbeat's own connection: blocking calls, from the heartbeat's thread.

Promises: a beat is one statement, a rescue another, on a connection and an event loop of its own that runs only while
it beats; a handler that blocks the worker's event loop does not stop it. A connection that was cut while it was idle is
replaced within the same call.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from everpoll.drivers.postgres.lane import Connector, Lane
from everpoll.errors import StoreUnavailable
from everpoll.policy.liveness import OtherWorker
from everpoll.stores.contract import RESCUE_LIMIT, Beat, Rescued
from everpoll.stores.figures import Figure
from everpoll.stores.postgres.figures import PUBLISH, PUBLISH_LOOPS, arguments
from everpoll.stores.postgres.functions import versioned

BEAT = versioned("select * from everpoll.beat($1, $2, $3)")
RESCUE = versioned("select * from everpoll.rescue($1, $2, $3, $4, $5, $6)")


class PostgresHeartbeatConnection:
    """The connection of one heartbeat."""

    def __init__(self, connector: Connector, on_rescue: Callable[[], None]) -> None:
        self._event_loop = asyncio.new_event_loop()
        self._lane = Lane(connector)
        self._on_rescue = on_rescue
        self._was_heard = False

    def beat(self, incarnation: int, lease_s: float, running: Sequence[int]) -> Beat:
        """See the contract."""
        row = self._asked(BEAT, incarnation, lease_s, list(running))
        canceled = set(row["canceled"] or ())
        others = zip(row["others"] or (), row["others_beats"] or (), row["others_lease_s"] or (), strict=True)
        return Beat(
            is_alive=row["is_alive"],
            canceled=tuple(one for one in running if one in canceled),
            others=tuple(OtherWorker(*other) for other in others),
            has_leftovers=bool(row["has_leftovers"]),
        )

    def rescue(self, incarnation: int, dead: Sequence[tuple[int, int]], overdue: Sequence[tuple[int, int]]) -> Rescued:
        """See the contract."""
        row = self._asked(RESCUE, incarnation, *_columns(dead), *_columns(overdue), RESCUE_LIMIT)
        if row["rescued"]:
            self._on_rescue()
        return Rescued(row["rescued"], tuple(row["ended"] or ()))

    def publish(self, incarnation: int, figures: Sequence[Figure], loops: str | None) -> None:
        """See the contract."""
        if figures:
            self._asked(PUBLISH, *arguments(incarnation, figures))
        if loops is not None:
            self._asked(PUBLISH_LOOPS, incarnation, loops)

    def _asked(self, sql: str, *args: Any) -> Any:
        try:
            row = self._event_loop.run_until_complete(self._lane.row(sql, *args))
        except StoreUnavailable:
            # The server may have ended the connection while it was idle. Both statements may be repeated.
            was_heard, self._was_heard = self._was_heard, False
            if not was_heard:
                raise
            row = self._event_loop.run_until_complete(self._lane.row(sql, *args))
        self._was_heard = True
        return row

    def close(self) -> None:
        """Close the connection."""
        if not self._event_loop.is_closed():
            self._event_loop.run_until_complete(self._lane.close())
            self._event_loop.close()


def _columns(pairs: Sequence[tuple[int, int]]) -> tuple[list[int], list[int]]:
    return [one for one, _ in pairs], [other for _, other in pairs]
