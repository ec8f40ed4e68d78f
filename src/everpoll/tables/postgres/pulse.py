"""What the heartbeat asks of Postgres: each statement for itself, by the database's clock. See `tables/pulse.py`."""

import asyncio
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from everpoll.drivers.postgres.lane import Dial, Lane
from everpoll.errors import StoreUnavailable
from everpoll.tables.claims import Claim
from everpoll.tables.postgres.claiming import REFUSED
from everpoll.tables.postgres.statements import Statements


class PostgresBeats:
    """A connection and an event loop of their own."""

    def __init__(self, dial: Dial, statements: Statements) -> None:
        self._event_loop = asyncio.new_event_loop()
        self._lane = Lane(dial)
        self._statements = statements
        self._stale_after_s = statements.table.stale_after_s
        self._was_heard = False

    def session(self) -> AbstractContextManager[object]:
        """See `BeatDatabase`."""
        return nullcontext()

    def is_refusal(self, error: Exception) -> bool:
        """See `BeatDatabase`."""
        return isinstance(error, REFUSED)

    def beat(self, claims: Sequence[Claim]) -> set[Any]:
        """See `BeatDatabase`."""
        return self._ours(self._statements.beat, claims)

    def held(self, claims: Sequence[Claim]) -> set[Any]:
        """See `BeatDatabase`."""
        return self._ours(self._statements.held, claims)

    def stale(self, limit: int) -> dict[Any, Any]:
        """See `BeatDatabase`."""
        return {key: key for (key,) in self._rows(self._statements.stale, self._stale_after_s, limit)}

    def rescue(self, row: Any = None) -> list[tuple[Any, str]]:
        """See `BeatDatabase`."""
        which = () if row is None else ([row],)
        sql = self._statements.rescue(is_one=row is not None)
        return [tuple(one) for one in self._rows(sql, self._stale_after_s, *which)]

    def _ours(self, sql: str, claims: Sequence[Claim]) -> set[Any]:
        keys, starts = [claim.key for claim in claims], [claim.started_at for claim in claims]
        return {row[0] for row in self._rows(sql, keys, starts, claims[0].worker)}

    def _rows(self, sql: str, *args: Any) -> list[Any]:
        try:
            answer = self._event_loop.run_until_complete(self._lane.rows(sql, *args))
        except StoreUnavailable:
            # The server may have closed the connection between two beats. All of this may be repeated.
            was_heard, self._was_heard = self._was_heard, False
            if not was_heard:
                raise
            answer = self._event_loop.run_until_complete(self._lane.rows(sql, *args))
        self._was_heard = True
        return answer

    def close(self) -> None:
        """See `BeatDatabase`."""
        if not self._event_loop.is_closed():
            self._event_loop.run_until_complete(self._lane.close())
            self._event_loop.close()
