"""Claims over PostgREST: a query for the first rows, then one conditional PATCH. See `tables/claiming.py`.

    candidates ──PATCH key=in.(…)&status=eq.queued──▶ the rows in the answer are ours
                                                      other workers have claimed the rest: not an error
    with the functions in the database: one call, FOR UPDATE SKIP LOCKED, and no race

Promises: no claimed row is forgotten. Each request of a claim has a start of its own: if its answer gets lost, the
next looks hand back the rows with that start.
"""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct

from everpoll.drivers.postgrest import faults
from everpoll.drivers.postgrest.clock import monotonic_s, read_instant, written
from everpoll.drivers.postgrest.http import Http, Request
from everpoll.errors import EverpollError, StoreUnavailable
from everpoll.stores.contract import LEASE_LIMIT
from everpoll.tables.claiming import Claimed, Claiming, Found, claim_rows
from everpoll.tables.claims import Claim, by_fence
from everpoll.tables.refusals import Refusals
from everpoll.tables.statements import Values
from everpoll.tables.supabase.statements import Body, Statements

logger = logging.getLogger("everpoll.tables")

UNCLEAR_S = 60.0
"""How long the rows of a claim without an answer are searched: longer than any statement waits for a lock."""


class Unclear(Struct, eq=False):
    """A claim whose outcome is unknown; no other claim has its start."""

    claim: Claim
    until_s: float


class SupabaseClaiming(Claiming):
    """The claims of one table in this process."""

    rounds = 3

    def __init__(self, http: Http, statements: Statements, refusals: Refusals) -> None:
        self._http = http
        self._statements = statements
        self._table = statements.table
        self._refusals = refusals
        self._batch = LEASE_LIMIT
        self._unclear: list[Unclear] = []

    def is_refusal(self, error: Exception) -> bool:
        """See `Claiming`."""
        return faults.is_about_a_row(error) or isinstance(error, faults.Unreadable)

    async def claim_all(self, worker: str, most: int) -> Found:
        """Claim at most so many rows; fewer after an answer that was too large."""
        claimed: list[Claimed] = []
        try:
            await self.recover()
            return await claim_rows(self, self._refusals, worker, min(most, self._batch), claimed)
        except EverpollError as error:
            if isinstance(error, faults.TooLarge):
                self._batch = max(1, min(most, self._batch) // 2)
            if not claimed:
                raise
            logger.warning("table %s: claimed %d rows, then: %s", self._table.name, len(claimed), error)
            return Found(claimed)
        except BaseException:
            # Mostly a cancellation: the caller does not get these rows, so they count as claims without an answer.
            for group in by_fence(one.claim for one in claimed):
                self._unclear.append(Unclear(group[0], monotonic_s() + UNCLEAR_S))
            raise

    async def recover(self) -> None:
        """Hand back rows of claims without an answer, for a while: such a request may still be under way."""
        for unclear in list(self._unclear):
            is_over = monotonic_s() > unclear.until_s
            try:
                for version in await self._versions(unclear.claim):
                    if await self._http.rows(self._statements.recover(unclear.claim, version)):
                        logger.warning("table %s: handed back rows of a claim whose answer got lost", self._table.name)
            except faults.REFUSED as error:
                text = "table %s: what was claimed unknowingly is left to the rescue: %s"
                logger.warning(text, self._table.name, error)
                is_over = True
            if is_over:
                self._unclear.remove(unclear)

    async def _versions(self, claim: Claim) -> set[Any]:
        """Return the versions of the rows of a claim, where the guard compares them."""
        if self._table.guard != "version":
            return {None}
        return {version for _, version in await self._http.rows(self._statements.held_rows(claim))}

    async def claim(self, worker: str, most: int) -> list[Claimed] | None:
        """See `Claiming`."""
        if self._statements.functions is None:
            return None
        claim = self._whole(worker)
        arguments = {"worker": worker, "started_at": claim.started_at, "most": most}
        return await self._send([(claim, self._statements.call(self._statements.functions.claim, arguments))])

    def _whole(self, worker: str) -> Claim:
        return Claim(None, worker, written(self._http.clock.unique()))

    async def look(self, most: int) -> list[Values]:
        """See `Claiming`."""
        return await self._http.rows(self._statements.poll(most))

    async def take(self, worker: str, rows: Sequence[Values]) -> list[Claimed]:
        """See `Claiming`."""
        place = {row[0]: index for index, row in enumerate(rows)}
        requests = self._statements.claims(rows, lambda: self._whole(worker), self._http.clock.is_exact)
        claimed = await self._send(requests)
        return sorted(claimed, key=lambda one: place[one.claim.key])

    async def _send(self, requests: Iterable[tuple[Claim, Request]]) -> list[Claimed]:
        """Send requests, each with its claim, and return the claimed rows.

        Each claim is remembered until the outcome of its request is known.
        """
        parts = {Unclear(claim, monotonic_s() + UNCLEAR_S): request for claim, request in requests}
        self._unclear += parts
        answers = await asyncio.gather(*map(self._ask, parts.values()), return_exceptions=True)
        claimed: list[Claimed] = []
        errors: list[BaseException] = []
        for part, answer in zip(parts, answers, strict=True):
            if isinstance(answer, BaseException):
                errors.append(answer)
            else:
                claimed += [self._statements.claimed(part.claim.worker, row) for row in answer]
            # A request that PostgREST refused has changed nothing.
            if not isinstance(answer, StoreUnavailable) and not isinstance(answer, asyncio.CancelledError):
                self._unclear.remove(part)
        if any(isinstance(error, faults.Unreadable) for error in errors):
            await self.recover()  # so that each row can be claimed for itself
        if errors and not claimed:
            raise errors[0]
        for error in errors:
            logger.warning("table %s: a part of a claim failed: %s", self._table.name, error)
        return claimed

    async def _ask(self, request: Request) -> list[Body]:
        """Return the rows that a request claimed, by the names of their columns."""
        if request.method == "POST":
            return await self._http.called(request)
        return [dict(zip(request.names, row, strict=True)) for row in await self._http.rows(request)]

    async def waits(self) -> tuple[bool, float | None]:
        """See `Claiming`."""
        is_due = self._statements.functions is not None and bool(await self.look(1))
        request = self._statements.later()
        rows = [] if request is None else await self._http.rows(request)
        if not rows:
            return is_due, None
        # It is due by the database's clock, which ours may be behind of: not sooner than in a moment.
        return is_due, max(0.05, (read_instant(rows[0][0]) - self._http.clock.now()).total_seconds())
