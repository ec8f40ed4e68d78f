"""The fleet: workers, schedules, adopted tables."""

import asyncio
import logging
import os
import socket
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec import Struct

from everpoll.engine.live_workers import ended_here
from everpoll.engine.meter import PollerHealth
from everpoll.jobs.schedule_listing import ScheduleInfo, list_schedules
from everpoll.server import cursors
from everpoll.server.route import ApiCall
from everpoll.server.route_kinds import listing
from everpoll.server.shapes import After, Limit, Page, instant_example
from everpoll.stores.contract import WorkerInfo
from everpoll.tables import AdoptedTable
from everpoll.tables.contract import Finding, StatusCount
from everpoll.version import __version__

logger = logging.getLogger("everpoll.server")

COUNT_S = 3.0
"""How long counting the rows of a table may take: one database that does not answer must not hold up the list."""


class FleetQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """The page of a list."""

    limit: Limit = 1_000
    after: After = None


class WorkerItem(Struct, frozen=True, kw_only=True):
    """A worker."""

    incarnation: str
    """The identity of the worker's process, random for each start; `label` is only for people."""
    label: str
    host: str
    pid: int
    queues: list[str]
    slots: int
    running: int
    version: str
    started_at: datetime
    beat_at: datetime
    is_alive: bool
    stopped_at: datetime | None
    table: str | None = None
    """The adopted table whose rows it runs, in this process; null: it runs tasks of its queues."""
    has_more_running: bool = False
    """True: more tasks may run than `running`, because counting is bounded."""


class WorkerPage(Page, frozen=True, kw_only=True):
    """Workers that are alive, and those that ended within a day."""

    items: list[WorkerItem]
    after: str | None


class SchedulePage(Page, frozen=True, kw_only=True):
    """Schedules, by name."""

    items: list[ScheduleInfo]
    after: str | None


class TablesQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Which tables to list."""

    check: bool = False
    """Also check columns, indexes and push of each table."""
    counts: bool = False
    """Also count the rows of each status."""


class TableItem(Struct, frozen=True, kw_only=True):
    """An adopted table of this process."""

    name: str
    has_handler: bool
    mapping: dict[str, str | None]
    """The columns and status words of the mapping."""
    poller: PollerHealth | None
    """The metrics of its poller; null while it does not run in this process."""
    findings: list[Finding] | None
    """The findings; null without `check`."""
    counts: list[StatusCount] | None
    """Rows by status; null without `counts`, or if they cannot be counted."""


class TablePage(Page, frozen=True, kw_only=True):
    """Adopted tables, by name."""

    items: list[TableItem]
    after: str | None


async def list_workers(call: ApiCall) -> WorkerPage:
    """Answer `GET /api/workers`."""
    query: FleetQuery = call.query
    found = await (await call.serving.store()).workers()
    gone, after = ended_here(found), cursors.read_text("workers", query.after)
    of_tables = (item for one in call.serving.app.tables.values() if (item := _table_worker(one)) is not None)
    items = sorted((*(_worker(one, gone) for one in found), *of_tables), key=lambda one: (one.label, one.incarnation))
    rest = [one for one in items if after is None or _worker_place(one) > after]
    page = rest[: query.limit]
    more = cursors.write("workers", _worker_place(page[-1])) if len(rest) > len(page) else None
    return WorkerPage(items=page, after=more)


def _worker_place(one: WorkerItem) -> str:
    return f"{one.label}\n{one.incarnation}"


async def list_fleet_schedules(call: ApiCall) -> SchedulePage:
    """Answer `GET /api/schedules`."""
    query: FleetQuery = call.query
    after = cursors.read_text("schedules", query.after)
    found = await list_schedules(await call.serving.store())
    rest = [one for one in found if after is None or one.name > after]
    page = rest[: query.limit]
    more = cursors.write("schedules", page[-1].name) if len(rest) > len(page) else None
    return SchedulePage(items=page, after=more)


async def list_tables(call: ApiCall) -> TablePage:
    """Answer `GET /api/tables`."""
    query: TablesQuery = call.query
    tables = [one for _, one in sorted(call.serving.app.tables.items())]
    counts = await asyncio.gather(*map(_counts, tables)) if query.counts else [None] * len(tables)
    items = [await _table(one, query.check, counted) for one, counted in zip(tables, counts, strict=True)]
    return TablePage(items=items, after=None)


def _worker(one: WorkerInfo, gone: set[int]) -> WorkerItem:
    return WorkerItem(
        incarnation=str(one.incarnation),
        label=one.label,
        host=one.host,
        pid=one.pid,
        queues=list(one.queues),
        slots=one.slots,
        running=one.running,
        version=one.version,
        started_at=one.started_at,
        beat_at=one.beat_at,
        is_alive=one.is_alive and one.incarnation not in gone,
        stopped_at=one.stopped_at,
        has_more_running=one.has_more_running,
    )


def _table_worker(adopted: AdoptedTable) -> WorkerItem | None:
    """Return the worker of an adopted table in this process; None if it does not run."""
    worker, started_at = adopted.worker, adopted.started_at
    if worker is None or started_at is None:
        return None
    health = worker.health()
    return WorkerItem(
        incarnation=str(worker.incarnation),
        label=worker.options.label,
        host=socket.gethostname(),
        pid=os.getpid(),
        queues=[],
        slots=health.slots,
        running=health.running,
        version=__version__,
        started_at=started_at,
        beat_at=datetime.now(UTC) - timedelta(seconds=health.heartbeat_age_s or 0.0),
        is_alive=health.polling and not health.is_fenced,
        stopped_at=None,
        table=adopted.name,
    )


async def _table(adopted: AdoptedTable, check: bool, counts: list[StatusCount] | None) -> TableItem:
    table = adopted.table
    columns = ("status", "order_by", "worker", "started_at", "finished_at", "error", "heartbeat", "retries", "priority")
    words = ("queued", "running", "done", "failed", "guard")
    return TableItem(
        name=adopted.name,
        has_handler=adopted.has_handler,
        mapping={name: getattr(table, name, None) for name in (*columns, *words)},
        poller=adopted.health(),
        findings=await adopted.source.inspect() if check else None,
        counts=counts,
    )


async def _counts(adopted: AdoptedTable) -> list[StatusCount] | None:
    """Return the rows by status; None if they cannot be counted."""
    try:
        async with asyncio.timeout(COUNT_S):
            return await adopted.source.counts()
    except Exception:
        # The table is not reachable or does not fit. Its findings and its poller tell why, so the list must not fail.
        logger.debug("the rows of table %r cannot be counted", adopted.name, exc_info=True)
        return None


_WORKER: dict[str, Any] = {
    "incarnation": "4611686018427387905",
    "label": "web-1",
    "host": "web-1",
    "pid": 17,
    "queues": ["default"],
    "slots": 50,
    "running": 1,
    "version": "0.1.0",
    "started_at": instant_example(0),
    "beat_at": instant_example(10),
    "is_alive": True,
    "stopped_at": None,
    "table": None,
}
_TABLE: dict[str, Any] = {
    "name": "execution_jobs",
    "has_handler": True,
    "mapping": {"status": "status", "queued": "queued", "order_by": "created_at"},
    "poller": None,
    "findings": None,
    "counts": [{"status": "queued", "rows": 12, "is_capped": False}],
}

_SCHEDULE: dict[str, Any] = {
    "name": "sweep",
    "job": "sweep",
    "timetable": "*/5 * * * * Europe/Berlin",
    "missed": "once",
    "next_at": instant_example(300),
    "last_at": instant_example(0),
    "is_registered": True,
    "task_id": 12,
}

FLEET_ROUTES = [
    listing(
        path="/api/workers",
        noun="fleet",
        summary="List the workers that are alive, and those that ended within a day.",
        handler=list_workers,
        query=FleetQuery,
        answer=WorkerPage,
        item=_WORKER,
    ),
    listing(
        path="/api/schedules",
        noun="fleet",
        summary="List schedules, with the job and the times of each.",
        handler=list_fleet_schedules,
        query=FleetQuery,
        answer=SchedulePage,
        item=_SCHEDULE,
    ),
    listing(
        path="/api/tables",
        noun="fleet",
        summary="List the tables that this process has adopted.",
        handler=list_tables,
        query=TablesQuery,
        answer=TablePage,
        limit_s=10.0,
        item=_TABLE,
    ),
]
