"""The heartbeat: a sign of life for every row that this worker holds, and rows taken back from dead workers.

Promises: a beat is one transaction, from its own thread, on its own connection; it reports which of our rows another
program has changed. Rows of dead workers are taken back within the stale limit and one beat.
Never: declares a worker dead after an outage that may have silenced every worker: a file that was kept locked, a
machine that slept, a clock that was set forward. A worker that notices that its own last beat is that old gives the
others the time of a beat before it takes anything from them. Therefore every beat takes the write lock, also one with
nothing to write, which costs next to nothing: a worker that never asks for the lock does not notice that it is held.
A row that the table refuses to have changed costs the others neither their beat nor their rescue.
"""

import logging
import sqlite3
import threading
from collections.abc import Callable, Sequence
from typing import Any

from everpoll.drivers.sqlite.address import Address
from everpoll.drivers.sqlite.connection import Connection, connect
from everpoll.drivers.sqlite.faults import explained
from everpoll.stores.contract import Beat, Rescued
from everpoll.tables.claims import Claim, Claims
from everpoll.tables.outages import Outages
from everpoll.tables.refusals import Refusals
from everpoll.tables.sqlite.claiming import instants
from everpoll.tables.sqlite.instants import SECOND_US, now_us, stored
from everpoll.tables.sqlite.settling import by_fence, fence
from everpoll.tables.sqlite.statements import RESCUE_LIMIT, Statements, bound_keys

logger = logging.getLogger("everpoll.tables")


class SqlitePulse:
    """One heartbeat's way to the file; connects at the first beat, and anew after a beat that failed."""

    def __init__(
        self, address: Address, patience_s: float, statements: Statements, claims: Claims, outages: Outages
    ) -> None:
        self._address = address
        self._patience_s = patience_s
        self._statements = statements
        self._claims = claims
        self._outages = outages
        self._con: Connection | None = None
        self._lock = threading.Lock()
        self._unbeaten = Refusals(statements.table.name, "kept alive")
        self._unrescued = Refusals(statements.table.name, "handed back")

    def rescue(self, incarnation: int, dead: Sequence[tuple[int, int]], overdue: Sequence[tuple[int, int]]) -> Rescued:
        """See the contract. No worker of a table is declared dead as a whole: each row is lost by itself."""
        del incarnation, dead, overdue
        return Rescued()

    def beat(self, incarnation: int, lease_s: float, running: Sequence[int]) -> Beat:
        """See the contract."""
        del incarnation, lease_s
        with self._lock:
            try:
                return self._beat(running)
            except Exception as error:
                self._close()
                fault = explained(error, self._address.path)
                if fault is error:
                    raise
                raise fault from error

    def _beat(self, running: Sequence[int]) -> Beat:
        if self._con is None:
            self._con = connect(self._address, patience_s=self._patience_s, cache_kb=2_000)
            self._con.execute("pragma busy_timeout = 0")  # begin() waits by itself
        con = self._con
        con.begin(self._patience_s)
        may_rescue = self._outages.heard()
        lost = self._extend(con, running)
        rescued = self._rescue(con) if may_rescue else []
        con.execute("commit")
        con.check_place()
        for key, status in rescued:
            logger.warning("%s#%s: its worker was lost; it is %s now", self._statements.table.name, key, status)
        return Beat(is_alive=True, rescued=len(rescued), canceled=tuple(lost))

    def _extend(self, con: Connection, running: Sequence[int]) -> list[int]:
        lost: list[int] = []
        bound = instants(self._statements, now_us())
        for group in by_fence(self._claims.held(running)):
            held = self._heard(con, bound, [claim for _, claim in group])
            lost += [number for number, claim in group if claim.key not in held]
        # What was settled meanwhile is not ours any more either, and not lost.
        return list(self._claims.held(lost))

    def _heard(self, con: Connection, bound: dict[str, Any], claims: list[Claim]) -> set[Any]:
        """Of claims with one fence, the keys of those that still hold."""
        try:
            return self._asked(con, self._statements.beat, bound, claims)
        except sqlite3.IntegrityError:
            if not con.in_transaction:
                raise
        held, refused = self._asked(con, self._statements.held, {}, claims), self._unbeaten.known()
        for claim in claims:
            if claim.key in held and claim.key not in refused:
                try:
                    self._asked(con, self._statements.beat, bound, [claim])
                except sqlite3.IntegrityError as error:
                    self._unbeaten.add(claim.key, error)
        return held

    def _asked(
        self, con: Connection, statement: Callable[[int], str], bound: dict[str, Any], claims: list[Claim]
    ) -> set[Any]:
        keys = bound_keys([claim.key for claim in claims])
        return {key for (key,) in con.execute(statement(len(keys)), {**bound, **fence(claims[0]), **keys}).fetchall()}

    def _rescue(self, con: Connection) -> list[tuple[object, str]]:
        if self._statements.rescue is None:
            return []
        table, now = self._statements.table, now_us()
        stale_us = now - round(table.stale_after_s * SECOND_US)
        bound = {
            "stale": stored(self._statements.kinds["heartbeat"], stale_us),
            "stale_start": stored(self._statements.kinds["started_at"], stale_us),
            **instants(self._statements, now),
        }
        try:
            return con.execute(self._statements.rescue, bound).fetchall()
        except sqlite3.IntegrityError:
            if not con.in_transaction:
                raise
        return self._rescue_singly(con, bound)

    def _rescue_singly(self, con: Connection, bound: dict[str, Any]) -> list[tuple[object, str]]:
        assert self._statements.rescue_one is not None, "something can be rescued at all"
        refused = self._unrescued.known()
        stale = f"{self._statements.stale} limit {RESCUE_LIMIT + len(refused)}"
        rescued: list[tuple[object, str]] = []
        for (key,) in con.execute(stale, bound).fetchall():
            if key not in refused:
                try:
                    rescued += con.execute(self._statements.rescue_one, {**bound, "k0": key}).fetchall()
                except sqlite3.IntegrityError as error:
                    self._unrescued.add(key, error)
        return rescued

    def close(self) -> None:
        """See the contract. Repeatable."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        con, self._con = self._con, None
        if con is not None:
            con.undo()
            con.close()
