"""Settling over HTTP: each row by its fence, rows that end alike by one PATCH.

Promises: what is not in our hands any more is left as it is and told as lost. A batch is not one transaction: where a
part of it fails, the rest has happened, and is not repeated when the batch is tried again.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

from everpoll.stores.contract import Again, Settlement
from everpoll.tables.claims import Claims
from everpoll.tables.outcome import written
from everpoll.tables.supabase.clock import DatabaseClock
from everpoll.tables.supabase.fenced import FencedWrites, Versions, Write
from everpoll.tables.supabase.http import Http
from everpoll.tables.supabase.pulse import LOST
from everpoll.tables.supabase.statements import HttpClaim, Statements

REMEMBERED = 2_000
"""Claims that are over, for whoever asks whether it was us who ended them."""


class Settling:
    """The settlements of one table in this process."""

    def __init__(
        self, http: Http, statements: Statements, claims: Claims, clock: DatabaseClock, versions: Versions
    ) -> None:
        self._http = http
        self._statements = statements
        self._claims = claims
        self._clock = clock
        self._versions = versions
        self._writes = FencedWrites(http, statements, clock, versions)
        self._done: set[int] = set()
        """Settled by a batch of which another part failed."""
        self._past: dict[int, HttpClaim] = {}

    async def settle(self, settlements: Sequence[Settlement]) -> set[int]:
        """Those that were lost."""
        held = self._claims.of(settlements)
        writes = [
            Write(one.id, claim, self._body(one, claim))
            for one in settlements
            if one.id not in self._done and isinstance(claim := held.get(one.id), HttpClaim)
        ]
        lost = {one.id for one in settlements if one.id not in held and one.id not in self._done}
        lost |= await self._writes.write(writes, self._done)
        self._let_go({number: claim for number, claim in held.items() if isinstance(claim, HttpClaim)})
        self._done.difference_update(one.id for one in settlements)
        return lost

    async def settled_before(self, settlements: Sequence[Settlement]) -> set[int]:
        """Of those that were lost, the ones that stand as this settlement would have left them."""
        table = self._statements.table
        claims = {one.id: claim for one in settlements if (claim := self._past.get(one.id)) is not None}
        rows = {}
        for request in self._statements.states([claim.key for claim in claims.values()]):
            rows.update({row[table.key]: row for row in await self._http.rows(request)})
        settled = set()
        for one in settlements:
            claim = claims.get(one.id)
            row = None if claim is None else rows.get(claim.key)
            if claim is None or row is None or row[table.status] != written(table, one).status:
                continue
            is_ours = (row[table.worker], row[table.started_at]) == (claim.worker, claim.started_at)
            is_rescued = table.error is not None and row[table.error] == LOST
            if is_ours or (isinstance(one, Again) and not is_rescued):
                settled.add(one.id)
        return settled

    def _body(self, settlement: Settlement, claim: HttpClaim) -> dict[str, object]:
        write = written(self._statements.table, settlement)
        return self._statements.settled(write, claim, self._due_at(write.delay_s))

    def _due_at(self, delay_s: float | None) -> datetime | None:
        if delay_s is None:
            return None
        now = self._clock.now()
        try:
            return now + timedelta(seconds=delay_s)
        except OverflowError:
            return datetime.max.replace(tzinfo=now.tzinfo)

    def _let_go(self, claims: dict[int, HttpClaim]) -> None:
        self._claims.let_go(claims)
        for number, claim in claims.items():
            self._versions.forget(number)
            self._past[number] = claim
        while len(self._past) > REMEMBERED:
            del self._past[next(iter(self._past))]
