"""Gathers facts about a Postgres database for `everpoll doctor`.

Promises: two connections of its own at most, which end with the examination. Every question is a read-only
transaction with a limit, so that nothing stays in a session that a pooler passes on. The notification test listens on a
channel of its own, and only where the session is not shared.
"""

import asyncio
import secrets
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

from everpoll.drivers.postgres.address import PostgresAddress
from everpoll.drivers.postgres.connections import Connections
from everpoll.drivers.postgres.connector import Connector
from everpoll.drivers.postgres.faults import ConnectionsUsedUp
from everpoll.drivers.postgres.lane import Connection, Lane
from everpoll.drivers.postgres.listener import ListeningConnection
from everpoll.errors import EverpollError
from everpoll.stores.contract import DEADLINE_GRACE_S, TaskFilter, TaskInfo
from everpoll.stores.examination import (
    CONNECT_S,
    HEAD_LIMIT,
    LEASES_LIMIT,
    LIMIT_S,
    LISTED_LIMIT,
    SCHEMA_UNFIT,
    ClockFacts,
    ConnectionFacts,
    DueTasks,
    Facts,
    Held,
    HeldTransaction,
    IndexFacts,
    LeaseFacts,
    NotGathered,
    PushFacts,
    SchemaFacts,
    TableRows,
    TransactionFacts,
    gathered,
    nothing_seen,
    unseen,
)
from everpoll.stores.index_definitions import expected_indexes
from everpoll.stores.postgres import examination_sql as sql
from everpoll.stores.postgres import functions, listing, reading, schema

PUSH_S = 8.0
"""How long the notification test may take: it may have to compare sessions first, and then waits for the answer."""
NO_CONNECTION = "end idle sessions, raise max_connections, or give each worker fewer with ?connections=2 in its address"


class PostgresExaminer:
    """Gathers facts about one database. `wall` is the clock of this process."""

    def __init__(self, address: PostgresAddress, wall: Callable[[], float] = time.time) -> None:
        self._address = address
        self._wall = wall
        self._connections = Connections(Connector(address), 2)
        self._lane = Lane(self._connections)

    async def examine(self, transaction_age_s: float, listed_kind: str) -> Facts:
        """See the contract."""
        place = f"Postgres at {self._address.place}"
        try:
            reached = await self._reached()
            if isinstance(reached, NotGathered):
                return nothing_seen(place, reached)
            return await self._facts(place, reached, transaction_age_s, listed_kind)
        finally:
            await self._connections.close()

    async def _facts(self, place: str, reached: str, age_s: float, listed_kind: str) -> Facts:
        found = await gathered(self._schema())
        is_fit = isinstance(found, SchemaFacts) and found.is_there and not found.missing
        unfit = found if isinstance(found, NotGathered) else SCHEMA_UNFIT
        lane = self._lane
        return Facts(
            place=place,
            reached=reached,
            schema=found,
            indexes=await gathered(self._indexes()) if is_fit else unfit,
            clock=await gathered(self._clock()),
            transactions=await gathered(self._transactions(age_s)),
            leases=await gathered(self._leases()) if is_fit else unfit,
            workers=_frozen(await gathered(reading.workers(lane))) if is_fit else unfit,
            queues=_frozen(await gathered(reading.queues(lane))) if is_fit else unfit,
            due=await gathered(self._due()) if is_fit else unfit,
            listed=await gathered(self._listed(listed_kind)) if is_fit else unfit,
            rows=await gathered(self._rows()),
            connections=await gathered(self._used()),
            push=await gathered(self._push(), PUSH_S),
        )

    async def _reached(self) -> str | NotGathered:
        try:
            async with asyncio.timeout(CONNECT_S):
                return str((await self._ask(sql.WHERE))[0][0])
        except ConnectionsUsedUp as error:
            return NotGathered(str(error), NO_CONNECTION)
        except (EverpollError, TimeoutError) as error:
            return unseen(error, CONNECT_S)

    async def _ask(self, statement: str, *args: Any) -> list[Any]:
        """Run one query, in a read-only transaction that ends within the limit."""

        async def use(connection: Connection) -> list[Any]:
            async with connection.transaction(readonly=True):
                await connection.execute(sql.SETTINGS.format(limit_ms=round(LIMIT_S * 1000)))
                return list(await connection.fetch(statement, *args))

        return await self._lane.call(use)

    async def _schema(self) -> SchemaFacts:
        [(has_migrations, has_functions)] = await self._ask(sql.TABLES_THERE)
        if not has_migrations:
            return SchemaFacts(is_there=False)
        applied = {str(name) for (name,) in await self._ask(schema.APPLIED)}
        known = schema.migrations()
        missing = [name for name in known if name not in applied]
        if not (has_functions and (await self._ask(functions.IS_INSTALLED, functions.digest()))[0][0]):
            missing.append(f"functions {functions.digest()}")
        return SchemaFacts(missing=tuple(missing), newer=tuple(sorted(applied - known.keys())))

    async def _indexes(self) -> IndexFacts:
        wanted = expected_indexes(schema.migrations().values())
        found = {str(name): bool(is_valid) for name, is_valid in await self._ask(sql.INDEXES)}
        missing = tuple(name for name in wanted if name not in found)
        invalid = tuple(sorted(name for name, is_valid in found.items() if not is_valid))
        plans = []
        for question in sql.QUESTIONS:
            lines = [str(line) for (line,) in await self._ask(f"explain (costs off) {question.statement}")]
            plans.append(question.judged(lines))
        remedies = [wanted[name] for name in missing]
        remedies += [f"reindex index concurrently everpoll.{name}" for name in invalid]
        return IndexFacts(
            there=len(found), missing=missing, invalid=invalid, plans=tuple(plans), remedies=tuple(remedies)
        )

    async def _clock(self) -> ClockFacts:
        began, steady = self._wall(), time.monotonic()
        [(theirs,)] = await self._ask(sql.NOW)
        took_s = time.monotonic() - steady
        return ClockFacts(ahead_s=theirs - began - took_s / 2, uncertain_s=took_s, of="database")

    async def _transactions(self, age_s: float) -> TransactionFacts:
        sessions = [
            HeldTransaction(
                age_s=age,
                holder=f"{role}, application {application or '(without a name)'}, {origin}, process {pid}",
                state=state or "unknown",
                remedy=f"end it in its program, or run: select pg_terminate_backend({pid})",
            )
            for pid, role, application, origin, state, age in await self._ask(sql.SESSIONS, age_s)
        ]
        prepared = [
            HeldTransaction(
                age_s=age,
                holder=f"prepared transaction {gid!r} of {owner}",
                state="prepared",
                remedy=f"decide it, and run: rollback prepared {quoted}, or: commit prepared {quoted}",
            )
            for gid, quoted, owner, age in await self._ask(sql.PREPARED, age_s)
        ]
        [(hidden, grant)] = await self._ask(sql.HIDDEN)
        held = sorted((*sessions, *prepared), key=lambda one: -one.age_s)
        return TransactionFacts(held=tuple(held), hidden=hidden, grant=grant)

    async def _leases(self) -> LeaseFacts:
        held = await self._ask(sql.LEASES, LEASES_LIMIT)
        [(overdue, most_s)] = await self._ask(sql.OVERDUE, LEASES_LIMIT, DEADLINE_GRACE_S)
        return LeaseFacts(
            held=tuple(Held(incarnation=owner, tasks=int(tasks)) for owner, tasks in held),
            overdue=overdue,
            most_overdue_s=most_s or 0.0,
        )

    async def _due(self) -> tuple[DueTasks, ...]:
        return tuple(
            DueTasks(
                queue=queue,
                kind=kind,
                name=name,
                version=version,
                tasks=tasks,
                oldest_s=oldest_s,
                keys=tuple(keys or ()),
            )
            for queue, kind, name, version, tasks, oldest_s, keys in await self._ask(sql.DUE, HEAD_LIMIT)
        )

    async def _listed(self, kind: str) -> tuple[TaskInfo, ...]:
        page = await listing.tasks(self._lane, TaskFilter(kind=kind, indexed=True), LISTED_LIMIT, None)
        return page.tasks

    async def _rows(self) -> tuple[TableRows, ...]:
        return tuple(
            TableRows(table=table, live=live, dead=dead, size_bytes=size, vacuumed_s=vacuumed_s)
            for table, live, dead, size, vacuumed_s in await self._ask(sql.ROWS)
        )

    async def _used(self) -> ConnectionFacts:
        limits = [(int(used), int(limit), str(of)) for used, limit, of in await self._ask(sql.CONNECTIONS)]
        used, limit, of = max(limits, key=lambda one: one[0] / max(1, one[1]))
        return ConnectionFacts(used=used, limit=limit, of=of)

    async def _push(self) -> PushFacts:
        began = time.monotonic()
        channel = f"everpoll_doctor_{secrets.token_hex(8)}"
        connection = ListeningConnection(self._connections, channel, lambda *_: None, self._lane)
        with closing(connection):
            arrives = await connection.open()
        return PushFacts(arrives=arrives, took_s=time.monotonic() - began)


def _frozen(found: "list[Any] | NotGathered") -> "tuple[Any, ...] | NotGathered":
    return found if isinstance(found, NotGathered) else tuple(found)
