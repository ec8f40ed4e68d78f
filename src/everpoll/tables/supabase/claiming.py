"""Claiming over HTTP: look at the best rows, then take them by one conditional PATCH.

    candidates ──PATCH key=in.(…)&status=eq.queued──▶ those that come back are ours
                                                      other workers have claimed the rest: not an error
    with the functions in the database: one call, FOR UPDATE SKIP LOCKED, and no race

Promises: what a claim brought is never forgotten. Each request of a claim has a start that no other has: where its
answer got lost, the next looks hand back what has that start. Best first, never more than asked for. A row that the
table refuses to have claimed does not hold up the others: it is found one by one, and left alone for a while.
"""

import asyncio
import logging
import random
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct

from everpoll.errors import EverpollError, StoreUnavailable
from everpoll.stores.contract import LEASE_LIMIT, Lease, Leased
from everpoll.tables.claims import Claim, Claims, by_fence
from everpoll.tables.refusals import Refusals
from everpoll.tables.supabase import faults
from everpoll.tables.supabase.clock import DatabaseClock, monotonic_s, read_instant, written
from everpoll.tables.supabase.functions import CLOCK, ROWS, Functions
from everpoll.tables.supabase.http import Http, Request
from everpoll.tables.supabase.statements import Body, HttpClaim, Statements

logger = logging.getLogger("everpoll.tables")

ROUNDS = 3
"""Looks of one claim, if others take what it looked at."""
WIDER = 4
"""After a lost race, rows are drawn from so many times as many: workers that all want the same rows get in each
other's way for ever."""
UNCLEAR_S = 60.0
"""For how long a claim without an answer is looked for: longer than any statement waits for a lock."""


class Unclear(Struct, eq=False):
    """A claim whose outcome is unknown."""

    worker: str
    started_at: str
    """No other claim has it."""
    until_s: float


class Claiming:
    """The claims of one table in this process."""

    def __init__(
        self, http: Http, statements: Statements, claims: Claims, clock: DatabaseClock, functions: Functions | None
    ) -> None:
        self._http = http
        self._statements = statements
        self._table = statements.table
        self._claims = claims
        self._clock = clock
        self._functions = functions
        self._batch = LEASE_LIMIT
        self._refusals = Refusals(statements.table.name, "claimed")
        self._unclear: list[Unclear] = []
        self._rng = random.Random()  # noqa: S311 - spreads workers, no secret

    async def lease(self, worker: str, most: int) -> Leased:
        """At most so many rows, best first."""
        leases: list[Lease] = []
        missed = 0
        try:
            await self.recover()
            missed = await self._claim(worker, most, leases)
            if leases or missed:
                # Where others were quicker and nothing is left for us, there may be more: the next look comes soon.
                return Leased(leases, None if leases else 0.0, missed)
            return Leased([], await self._next_due_s())
        except EverpollError as error:
            if isinstance(error, faults.TooLarge):
                self._batch = max(1, min(most, self._batch) // 2)
            if not leases:
                raise
            logger.warning("table %s: claimed %d rows, then: %s", self._table.name, len(leases), error)
            return Leased(leases, None, missed)
        except BaseException:
            # Canceled, mostly: the caller does not get these rows, so they are treated as if their answers got lost.
            held = self._claims.held([lease.id for lease in leases])
            self._claims.let_go(held)
            for group in by_fence(held.values()):
                self._unclear.append(Unclear(group[0].worker, group[0].started_at, monotonic_s() + UNCLEAR_S))
            raise

    async def recover(self) -> None:
        """Hand back what claims without an answer may have brought: one may still be under way, so for a while."""
        for unclear in list(self._unclear):
            is_over = monotonic_s() > unclear.until_s
            claim = Claim(None, unclear.worker, unclear.started_at)
            try:
                versions: set[Any] = {None}
                if self._table.guard == "version":
                    rows = await self._http.rows(self._statements.claimed(claim))
                    versions = {row[self._table.version] for row in rows}
                for version in versions:
                    if await self._http.rows(self._statements.unclaim(claim, version)):
                        logger.warning("table %s: handed back rows of a claim whose answer got lost", self._table.name)
            except faults.REFUSED as error:
                text = "table %s: what was claimed unknowingly is left to the rescue: %s"
                logger.warning(text, self._table.name, error)
                is_over = True
            if is_over:
                self._unclear.remove(unclear)

    async def _claim(self, worker: str, most: int, leases: list[Lease]) -> int:
        """Add what could be claimed; how many rows others were quicker to get."""
        if self._functions is not None and not self._refusals.known():
            try:
                leases += await self._call(self._functions.claim, worker, min(most - len(leases), self._batch))
            except faults.REFUSED as error:
                if not faults.is_about_a_row(error):
                    raise
            else:
                return 0
        missed = 0
        for round_ in range(ROUNDS):
            wanted = min(most - len(leases), self._batch)
            among = wanted if round_ == 0 else min(wanted * WIDER, LEASE_LIMIT)
            refused = self._refusals.known()
            rows = await self._http.rows(self._statements.candidates(among + len(refused)))
            rows = [row for row in rows if row[self._table.key] not in refused][:among] if refused else rows
            drawn = self._rng.sample(range(len(rows)), min(wanted, len(rows)))
            picked = [rows[index] for index in sorted(drawn)]
            before = len(leases)
            refusals = await self._won(worker, picked, leases) if picked else 0
            lost = len(picked) - refusals - (len(leases) - before)
            if not lost:
                break
            missed += lost
        return missed

    async def _won(self, worker: str, candidates: Sequence[Body], leases: list[Lease]) -> int:
        """Add what became ours; how many rows the table refused."""
        try:
            leases += await self._patch(worker, candidates)
        except faults.REFUSED as error:
            if not faults.is_about_a_row(error):
                raise
            by_key = {row[self._table.key]: row for row in candidates}
            take = lambda row: self._patch(worker, [row])  # noqa: E731
            return await self._refusals.each(by_key, take, faults.is_about_a_row, leases)
        return 0

    async def _patch(self, worker: str, candidates: Sequence[Body]) -> list[Lease]:
        key = self._table.key
        place = {candidate[key]: index for index, candidate in enumerate(candidates)}
        starts = map(written, iter(self._clock.unique, None))
        rows = await self._send(worker, self._statements.claims(candidates, worker, starts, self._clock.is_exact))
        return [self._take(worker, row) for row in sorted(rows, key=lambda row: place[row[key]])]

    async def _call(self, function: str, worker: str, most: int) -> list[Lease]:
        started_at = written(self._clock.unique())
        arguments = {"worker": worker, "started_at": started_at, "most": most}
        rows = await self._send(worker, [(started_at, self._statements.call(function, arguments))])
        return [self._take(worker, row) for row in rows]

    async def _send(self, worker: str, requests: Iterable[tuple[str, Request]]) -> list[Body]:
        """A claim, in its parts, by their starts. Each is remembered before it is sent, until its outcome is known."""
        parts = {Unclear(worker, start, monotonic_s() + UNCLEAR_S): request for start, request in requests}
        self._unclear += parts
        answers = await asyncio.gather(*map(self._ask, parts.values()), return_exceptions=True)
        rows: list[Body] = []
        errors: list[BaseException] = []
        for part, answer in zip(parts, answers, strict=True):
            if not isinstance(answer, BaseException):
                rows += answer
            else:
                errors.append(answer)
            # What PostgREST refused has changed nothing.
            if not isinstance(answer, StoreUnavailable) and not isinstance(answer, asyncio.CancelledError):
                self._unclear.remove(part)
        if errors and not rows:
            raise errors[0]
        for error in errors:
            logger.warning("table %s: a part of a claim failed: %s", self._table.name, error)
        return rows

    async def _ask(self, request: Request) -> list[Body]:
        return await (self._called(request) if request.method == "POST" else self._http.rows(request))

    async def _called(self, request: Request) -> list[Body]:
        answer: dict[str, Any] = await self._http.answer(request)
        self._clock.saw(answer[CLOCK])
        rows: list[Body] = answer[ROWS]
        return rows

    def _take(self, worker: str, row: Body) -> Lease:
        table = self._table
        retries = (row[table.retries] or 0) if table.retries is not None else 0
        claim = HttpClaim(
            row[table.key],
            worker,
            row[table.started_at],
            retries,
            row[table.version] if table.guard == "version" else None,
        )
        return self._claims.take(claim, retries + 1, {name: row[name] for name in table.columns})

    async def _next_due_s(self) -> float | None:
        """After a look that brought nothing; 0: something is due, and another transaction has it locked."""
        is_held = self._functions is not None and not self._refusals.known()  # what is refused is due all the time
        if is_held and await self._http.rows(self._statements.candidates(1)):
            return 0.0
        request = self._statements.later()
        if request is None:
            return None
        rows: list[dict[str, Any]] = await self._http.rows(request)
        if not rows:
            return None
        due_at = rows[0][str(self._table.due_at)]
        # It is due by the database's clock, which ours may be behind of: not sooner than in a moment.
        return max(0.05, (read_instant(due_at) - self._clock.now()).total_seconds())
