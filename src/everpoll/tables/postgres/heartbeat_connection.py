"""The heartbeat in Postgres: each statement on its own, by the database's clock.

See `tables/heartbeat_connection.py`.
"""

import asyncio
from collections.abc import Iterable

from everpoll.drivers.postgres.lane import Connector, Lane
from everpoll.errors import StoreUnavailable
from everpoll.tables.heartbeat_connection import Beats
from everpoll.tables.postgres.claiming import REFUSED
from everpoll.tables.postgres.statements import Sql, Statements
from everpoll.tables.statements import Values


class PostgresBeats(Beats[Sql]):
    """A connection and an event loop of their own."""

    def __init__(self, statements: Statements, connector: Connector) -> None:
        super().__init__(statements)
        self._event_loop = asyncio.new_event_loop()
        self._lane = Lane(connector)
        self._was_heard = False

    def is_refusal(self, error: Exception) -> bool:
        """See `Beats`."""
        return isinstance(error, REFUSED)

    def run(self, statements: Iterable[Sql]) -> list[Values]:
        """See `Beats`."""
        return [row for sql in statements for row in self._rows(sql)]

    def _rows(self, sql: Sql) -> list[Values]:
        try:
            answer = self._event_loop.run_until_complete(self._lane.rows(*sql))
        except StoreUnavailable:
            # The server may have closed the connection between two beats. All of this may be repeated.
            was_heard, self._was_heard = self._was_heard, False
            if not was_heard:
                raise
            answer = self._event_loop.run_until_complete(self._lane.rows(*sql))
        self._was_heard = True
        return answer

    def close(self) -> None:
        """See `Beats`."""
        if not self._event_loop.is_closed():
            self._event_loop.run_until_complete(self._lane.close())
            self._event_loop.close()
