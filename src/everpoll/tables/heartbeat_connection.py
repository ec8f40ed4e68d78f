"""The heartbeat of a table's worker: blocking calls, from the heartbeat's thread, on a connection of its own.

Promises: a beat tells the table that the rows of this worker are alive, and returns which it holds no longer: claimed
by another worker, or changed by the user. Rows without a heartbeat for too long wait again, or have failed; any number
of workers may take them back at once. A row that the table refuses to have changed costs the others neither their beat
nor their rescue.
Never: declares a worker dead after an outage that may have silenced every worker: see `outages`.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, Generic, TypeVar

from everpoll.errors import EverpollError, StoreUnavailable
from everpoll.stores.contract import Beat, Rescued
from everpoll.stores.figures import Figure
from everpoll.tables.claims import Claim, Claims, last_claims
from everpoll.tables.mapping import Table
from everpoll.tables.outages import Outages
from everpoll.tables.refusals import Refusals
from everpoll.tables.statements import TableStatements, Values

logger = logging.getLogger("everpoll.tables")

T = TypeVar("T")
S = TypeVar("S")

RESCUE_LIMIT = 500
"""Rows that one beat takes back; the next one takes the rest."""


class Beats(ABC, Generic[S]):
    """How the statements of a heartbeat are run. What `is_refusal` recognizes has changed nothing."""

    def __init__(self, statements: TableStatements[S]) -> None:
        self.statements = statements

    def session(self) -> AbstractContextManager[object]:
        """Enclose one whole beat."""
        return nullcontext()

    @abstractmethod
    def is_refusal(self, error: Exception) -> bool:
        """Tell whether the table refuses to have a row changed, so that fewer rows at once may succeed."""

    @abstractmethod
    def run(self, statements: Iterable[S]) -> list[Values]:
        """Run the statements; return the rows of all answers."""

    def stale(self, limit: int) -> list[Values]:
        """Return rows without a heartbeat for too long: the key, and what `rescue` wants to know of each."""
        return self.run(self.statements.stale(limit))

    def rescue(self, rows: Sequence[Values] | None = None) -> list[Values]:
        """Take back what is stale, or what of these rows still is; return keys, and the statuses they have now."""
        return self.run(self.statements.rescues(rows))

    @abstractmethod
    def close(self) -> None:
        """Close the connection. Repeatable."""


class TableHeartbeatConnection:
    """One heartbeat's way to its table."""

    def __init__(self, table: Table, claims: Claims, outages: Outages, beats: Beats[Any]) -> None:
        self._table = table
        self._claims = claims
        self._outages = outages
        self._beats = beats
        self._unbeaten = Refusals(table.name, "kept alive")
        self._unrescued = Refusals(table.name, "handed back")

    def rescue(self, incarnation: int, dead: Sequence[tuple[int, int]], overdue: Sequence[tuple[int, int]]) -> Rescued:
        """See the contract. No worker of a table is declared dead as a whole: each row is lost by itself."""
        del incarnation, dead, overdue
        return Rescued()

    def beat(self, incarnation: int, lease_s: float, running: Sequence[int]) -> Beat:
        """See the contract."""
        del incarnation, lease_s
        with self._beats.session():
            held = self._claims.held(running)
            ours = self._ours(list(held.values())) if held else set()
            may_rescue = self._outages.heard() and self._table.heartbeat is not None
            back = self._rescued() if may_rescue else []
        for key, status in back:
            logger.warning("%s#%s: its worker was lost; it is %s now", self._table.name, key, status)
        holding = {number for key, number in last_claims(held.items()).items() if key in ours}
        # A row that was settled meanwhile is not ours either, but it is not lost: its claim is no longer held.
        gone = tuple(number for number in self._claims.held(held) if number not in holding)
        return Beat(is_alive=True, rescued=sum(status == self._table.queued for _, status in back), canceled=gone)

    def publish(self, incarnation: int, figures: Sequence[Figure], loops: str | None) -> None:
        """See the contract. A table of the user stores neither."""

    def _ours(self, claims: list[Claim]) -> set[Any]:
        refused = self._unbeaten.known()
        fit = [claim for claim in claims if claim.key not in refused]
        unfit = [claim for claim in claims if claim.key in refused]
        try:
            return self._heard(fit) | self._held(unfit)
        except Exception as error:
            if not self._beats.is_refusal(error):
                raise
        ours = self._held(claims)
        for claim in fit:
            if claim.key in ours:
                self._tried(self._unbeaten, claim.key, partial(self._heard, [claim]))
        return ours

    def _heard(self, claims: Sequence[Claim]) -> set[Any]:
        """Write the heartbeat of those claims that still hold, where it has a column; return their keys."""
        statements = self._beats.statements
        return self._keys(statements.holds(claims) if self._table.heartbeat is None else statements.beats(claims))

    def _held(self, claims: Sequence[Claim]) -> set[Any]:
        """Return the keys of those claims that still hold."""
        return self._keys(self._beats.statements.holds(claims))

    def _keys(self, statements: Iterable[Any]) -> set[Any]:
        return {row[0] for row in self._beats.run(statements)}

    def _rescued(self) -> list[Values]:
        refused = self._unrescued.known()
        try:
            if not refused:
                return self._beats.rescue()
        except StoreUnavailable:
            raise
        except Exception as error:
            if not self._beats.is_refusal(error):
                if not isinstance(error, EverpollError):
                    raise
                # The beat has not failed: the heartbeats of our own rows are written.
                logger.warning("table %s: cannot take back rows of silent workers: %s", self._table.name, error)
                return []
        back: list[Values] = []
        for row in self._beats.stale(RESCUE_LIMIT + len(refused)):
            if row[0] not in refused:
                back += self._tried(self._unrescued, row[0], partial(self._beats.rescue, [row])) or []
        return back

    def _tried(self, refusals: Refusals, key: Any, change: Callable[[], T]) -> T | None:
        """Change one row; remember it, and return None, where the table refuses that."""
        try:
            return change()
        except Exception as error:
            if not self._beats.is_refusal(error):
                raise
            refusals.add(key, error)
            return None

    def close(self) -> None:
        """See the contract. Repeatable."""
        self._beats.close()
