"""The heartbeat of a table's worker: blocking calls, from the heartbeat's thread, on a connection of its own.

Promises: one statement writes the heartbeat of the rows that this worker holds, and returns which it holds no
longer: claimed by another worker, or changed by the user. Another one hands back rows without a heartbeat for too long,
by the database's clock; any number of workers may do that at once. A row that the table refuses to have
changed costs the others neither their beat nor their rescue.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from everpoll.drivers.postgres.lane import Dial, Lane
from everpoll.errors import StoreUnavailable
from everpoll.stores.contract import Beat, Rescued
from everpoll.tables.claims import Claim, Claims
from everpoll.tables.outages import Outages
from everpoll.tables.outcome import lost_text
from everpoll.tables.postgres.refused import REFUSED
from everpoll.tables.postgres.statements import LOCKED, SECOND, Phrases
from everpoll.tables.refusals import Refusals
from everpoll.tables.sql_names import identifier, literal

RESCUE_BATCH = 500


class TablePulse:
    """One heartbeat's way to the database."""

    def __init__(self, dial: Dial, phrases: Phrases, claims: Claims, outages: Outages, worker: str) -> None:
        self._event_loop = asyncio.new_event_loop()
        self._lane = Lane(dial)
        self._claims = claims
        self._outages = outages
        self._worker = worker
        self._stale_after_s = phrases.table.stale_after_s
        self._beat_sql = beat(phrases)
        self._held_sql = held(phrases)
        self._rescue_sql = rescue(phrases)
        self._stale_sql = stale(phrases)
        self._rescue_one_sql = rescue(phrases, f" and {phrases.key} = any($2::{phrases.keys_in})")
        self._unbeaten = Refusals(phrases.table.name, "kept alive")
        self._unrescued = Refusals(phrases.table.name, "handed back")
        self._was_heard = False

    def rescue(self, incarnation: int, dead: Sequence[tuple[int, int]], overdue: Sequence[tuple[int, int]]) -> Rescued:
        """See the contract. No worker of a table is declared dead as a whole: each row is lost by itself."""
        del incarnation, dead, overdue
        return Rescued()

    def beat(self, incarnation: int, lease_s: float, running: Sequence[int]) -> Beat:
        """A sign of life for the rows that this worker holds, and a look at those of others."""
        del incarnation, lease_s
        try:
            answer = self._event_loop.run_until_complete(self._beat(running))
        except StoreUnavailable:
            # The server may have closed the connection between two beats. A beat may be repeated.
            was_heard, self._was_heard = self._was_heard, False
            if not was_heard:
                raise
            answer = self._event_loop.run_until_complete(self._beat(running))
        self._was_heard = True
        return answer

    async def _beat(self, running: Sequence[int]) -> Beat:
        gone = await self._gone(running)
        back = await self._rescued() if self._outages.heard() else 0
        return Beat(is_alive=True, rescued=back, canceled=gone)

    async def _gone(self, running: Sequence[int]) -> tuple[int, ...]:
        held = self._claims.held(running)
        if not held:
            return ()
        ours = await self._ours(list(held.values()))
        # What was settled meanwhile is not ours any more either, and not gone.
        return tuple(number for number, claim in self._claims.held(held).items() if claim.key not in ours)

    async def _ours(self, claims: list[Claim]) -> set[Any]:
        try:
            return await self._asked(self._beat_sql, claims)
        except REFUSED:
            ours = await self._asked(self._held_sql, claims)
        refused = self._unbeaten.known()
        for claim in claims:
            if claim.key in ours and claim.key not in refused:
                try:
                    await self._asked(self._beat_sql, [claim])
                except REFUSED as error:
                    self._unbeaten.add(claim.key, error)
        return ours

    async def _asked(self, sql: str, claims: list[Claim]) -> set[Any]:
        keys, starts = [claim.key for claim in claims], [claim.started_at for claim in claims]
        return {row[0] for row in await self._lane.rows(sql, keys, starts, self._worker)}

    async def _rescued(self) -> int:
        """How many wait again."""
        if self._rescue_sql is None or self._stale_sql is None or self._rescue_one_sql is None:
            return 0
        try:
            return sum(row[0] for row in await self._lane.rows(self._rescue_sql, self._stale_after_s))
        except REFUSED:
            refused = self._unrescued.known()
        back = 0
        limit = RESCUE_BATCH + len(refused)
        for (key,) in await self._lane.rows(self._stale_sql, self._stale_after_s, limit):
            if key not in refused:
                try:
                    back += sum(
                        row[0] for row in await self._lane.rows(self._rescue_one_sql, self._stale_after_s, [key])
                    )
                except REFUSED as error:
                    self._unrescued.add(key, error)
        return back

    def close(self) -> None:
        """Let go of the connection."""
        if not self._event_loop.is_closed():
            self._event_loop.run_until_complete(self._lane.close())
            self._event_loop.close()


def beat(phrases: Phrases) -> str:
    """$1 keys, $2 starts, $3 worker: the keys that still are ours, and the table hears of each.

    What a settlement has locked at this moment needs no beat.
    """
    rows = _ours(phrases)
    if phrases.table.heartbeat is None:
        return held(phrases)
    update = f"update {phrases.name} set {identifier(phrases.table.heartbeat)} = now()"
    return (
        f"with free as materialized (select {phrases.place} from {rows} {LOCKED}), "
        f"heard as ({update} where {phrases.is_one_of('free')} and {phrases.is_ours('$3')}) "
        f"select {phrases.key_out} from {rows}"
    )


def held(phrases: Phrases) -> str:
    """The same question, and no write."""
    return f"select {phrases.key_out} from {_ours(phrases)}"


def _ours(phrases: Phrases) -> str:
    fence = f"{phrases.at('started_at')} = u.s and {phrases.is_ours('$3')}"
    return f"{phrases.held()} as u (k, s) join {phrases.name} on {phrases.key} = u.k where {fence}"


def stale(phrases: Phrases) -> str | None:
    """$1 seconds, $2 how many: the keys of rows of silent workers."""
    if phrases.table.heartbeat is None:
        return None
    is_there = f"{phrases.has_status(phrases.table.running)} and {_is_stale(phrases)}"
    return f"select {phrases.key_out} from {phrases.name} where {is_there} limit $2"


def _is_stale(phrases: Phrases) -> str:
    heard_at = f"coalesce({phrases.instant('heartbeat')}, {phrases.instant('started_at')})"
    return f"{heard_at} < now() - $1::float8 * {SECOND}"


def rescue(phrases: Phrases, and_is: str = "") -> str | None:
    """$1 seconds: rows of silent workers wait again, or have failed. Each: whether it waits."""
    table = phrases.table
    if table.heartbeat is None:
        return None
    is_stale = _is_stale(phrases)
    is_there = f"{phrases.has_status(table.running)} and {is_stale}{and_is}"
    stale = f"select {phrases.place} from {phrases.name} where {is_there} limit {RESCUE_BATCH} {LOCKED}"
    return (
        f"with stale as materialized ({stale}) update {phrases.name} set {_given_back(phrases)} "
        f"where {phrases.is_one_of('stale')} and {phrases.is_still(table.running)} and {is_stale} "
        f"returning {phrases.has_status(table.queued)}"
    )


def _given_back(phrases: Phrases) -> str:
    table = phrases.table
    # Without a column to count in, a row never runs out of attempts: its worker's death is not its own failure.
    is_last = "false" if table.retries is None else f"{phrases.retries} + 1 >= {table.attempts}"
    attempt = "" if table.retries is None else f" || ' (attempt ' || {phrases.retries} + 1 || ' of {table.attempts})'"
    silence = literal(lost_text(table))
    error = f"'worker ' || coalesce({phrases.at('worker')}::text, '?') || {silence}{attempt}"
    values = {
        "status": f"case when {is_last} then {phrases.word(table.failed)} else {phrases.word(table.queued)} end",
        "retries": f"{phrases.retries} + 1",
        "error": phrases.error(error),
        **{use: f"case when {is_last} then {phrases.at(use)} end" for use in phrases.emptied},
    }
    if table.finished_at is not None:
        values["finished_at"] = f"case when {is_last} then now() else {phrases.at('finished_at')} end"
    return phrases.sets(values)
