"""The watch: a query is started in the Marketing Cloud, its slot is free, and it is looked at until it has ended.

`look` below is the whole decision tree of the design document. What surrounds it (one durable poller per run, budgets,
backoff, crashes, cancel, clean-up exactly once) is everpoll.
"""

import hashlib
from collections.abc import AsyncIterator
from dataclasses import asdict
from typing import Any

from everpoll import Everpoll
from everpoll.errors import TaskNotFound
from everpoll.watches import Done, Fail, LookContext, Verify, Wait, Watch
from examples.shell_query.client import NO_IDS, CloudClient
from examples.shell_query.figures import Figures
from examples.shell_query.runs import Runs, ShellQuery

NAME = "shell_query"
PREFIX = "sq-"
RESULT_PAGE_SIZE = 50
PROBE_PAGE_SIZE = 1
SQL_LIMIT = 32_000


class InvalidQuery(ValueError):
    """No cloud would run this: asking one again changes nothing."""


class ShellQueries:
    """`await ShellQueries(app, cloud, runs).watch.begin(ShellQuery(…), id=run_id)`."""

    def __init__(self, app: Everpoll, cloud: CloudClient, runs: Runs, figures: Figures | None = None) -> None:
        f = self._figures = Figures() if figures is None else figures
        self._app, self._cloud, self._runs = app, cloud, runs
        watching = app.watch(every=f.every, budget=f.budget, name=NAME, fatal=(InvalidQuery,), remote=_tenant)
        self.watch: Watch[ShellQuery] = watching(self.look)
        self.watch.verify("rowset", tries=f.rowset_tries, every=f.rowset_every)(self.rowset)
        self.watch.start(self.start)
        self.watch.adopt(self.adopt)
        self.watch.cancel(self.cancel)
        self.watch.cleanup(self.cleanup)
        self.watch.ensure(every=f.reconcile_every_s)(self.unfinished)
        app.loop(every=f.sweep_every_s, name=f"{NAME}_sweep")(self.sweep)

    # ── look: reads only ─────────────────────────────────────────────────────────────────────────────────────────

    async def look(self, op: ShellQuery, w: LookContext) -> Done | Fail | Wait | Verify:
        """Ask, judge, decide: complete, failed, rows seen, no longer running, or later."""
        f = self._figures
        activity = await self._cloud.activity(w.handle["task_id"])
        status = w.status(activity.status)
        if activity.error or status == "error":
            return Fail(activity.error or "the cloud says Error, and gives no reason")
        if status == "canceled":
            return Fail("it was stopped in the cloud", canceled=True)
        if status == "complete":
            return w.verify("rowset")
        is_time = w.due("probe", after=f.probe_after_s, every=f.probe_every_s)
        if is_time and (rows := await w.attempt(self.probe, w.key)):
            w.count("fast path")
            return Done(rows, why="the probe saw rows")
        # A completion date proves nothing: it only is a reason to ask earlier whether the query still runs.
        if w.elapsed >= (f.completed_after_s if activity.completed_date else f.stuck_after_s):
            is_running = await w.attempt(self.is_running, w)
            gone = None if is_running is None else not is_running
            if w.confirm("not running", gone, times=f.not_running_times, gap=f.not_running_gap_s):
                return w.verify("rowset")
        return Wait()

    async def rowset(self, op: ShellQuery, key: str) -> dict[str, Any] | None:
        """The check that makes a query ready: its rows can be read, even if there are none."""
        found = await self._cloud.rowset(customer_key(key), RESULT_PAGE_SIZE)
        return None if found is None else asdict(found)

    async def probe(self, key: str) -> dict[str, Any] | None:
        """The rows, if there are any; a cheap question first."""
        some = await self._cloud.rowset(customer_key(key), PROBE_PAGE_SIZE)
        if some is None or not some.rows:
            return None
        found = await self._cloud.rowset(customer_key(key), RESULT_PAGE_SIZE)
        return None if found is None else asdict(found)

    async def is_running(self, w: LookContext) -> bool:
        """What REST says; a run of an older release knows no ObjectID, so it is found by its CustomerKey, and kept."""
        object_id = w.handle.get("query_definition_id") or w.memory.get("query_definition_id", "")
        if object_id in NO_IDS:
            definition = await self._cloud.definition(customer_key(w.key))
            if definition is None:
                raise LookupError(f"the cloud knows no QueryDefinition {customer_key(w.key)}")
            object_id = w.memory["query_definition_id"] = definition.object_id
        return await self._cloud.is_running(object_id)

    # ── effects: each with the run's key, so that doing it again does nothing ────────────────────────────────────

    async def start(self, op: ShellQuery, key: str) -> dict[str, str] | None:
        """Validate, create the assets, start, persist the ids."""
        validate(op.sql_text)
        name = customer_key(key)
        await self._cloud.create_data_extension(name)
        object_id, is_new = await self._cloud.create_query(name, op.sql_text)
        if not is_new and (started := await self.adopt(op, key)):
            return started
        if await self._is_settled(op.run_id):
            # This worker was frozen while others ended the run: no run will use what it just created.
            await self._delete_assets(name)
            raise LookupError(f"the run {op.run_id} has ended already: it is not started again")
        return await self._started(op, await self._cloud.start(name), object_id)

    async def adopt(self, op: ShellQuery, key: str) -> dict[str, str] | None:
        """Find the query that an earlier try started, and whose id was not stored."""
        started = await self._cloud.started_as(customer_key(key))
        return None if started is None else await self._started(op, *started)

    async def _started(self, op: ShellQuery, task_id: str, object_id: str) -> dict[str, str] | None:
        if task_id in NO_IDS:
            return None
        await self._runs.started(op.run_id, task_id, object_id)
        return {"task_id": task_id, "query_definition_id": object_id}

    async def cancel(self, op: ShellQuery, key: str) -> None:
        """Tell the cloud."""
        await self._cloud.stop(customer_key(key))

    async def cleanup(self, op: ShellQuery, key: str, outcome: str) -> None:
        """Delete what the run has made in the cloud, and tell the business table."""
        if outcome != "ready":
            # It may run still, where it was given up: a query whose definition is deleted breaks.
            await self._cloud.stop(customer_key(key))
        await self._delete_assets(customer_key(key))
        await self._is_settled(op.run_id)

    async def _delete_assets(self, name: str) -> None:
        await self._cloud.delete("QueryDefinition", name)
        await self._cloud.delete("DataExtension", name)

    # ── the business table ───────────────────────────────────────────────────────────────────────────────────────

    async def unfinished(self) -> AsyncIterator[tuple[ShellQuery, str, dict[str, str] | None]]:
        """Rows that should have a run; one that was started already is only looked at."""
        for row in await self._runs.unfinished(self._figures.grace_s):
            if await self._is_settled(row["run_id"]):
                continue
            op = ShellQuery(**{name: row[name] for name in ShellQuery.__struct_fields__})
            ids = {"task_id": row["task_id"], "query_definition_id": row["query_definition_id"] or ""}
            yield op, op.run_id, ids if row["task_id"] else None

    async def sweep(self) -> int:
        """Delete assets of runs that have ended: what a worker made that slept through the clean-up."""
        names = {name for _, name in await self._cloud.assets(PREFIX)}
        rows = await self._runs.all() if names else {}
        ended = {customer_key(f"{NAME}:{run_id}") for run_id, row in rows.items() if row["completed_at"]}
        for name in names & ended:
            await self._cloud.stop(name)
            await self._delete_assets(name)
        return len(names & ended)

    async def _is_settled(self, run_id: str) -> bool:
        """Whether the run has its outcome; then the business table has it too."""
        try:
            info = await (await self._app.watches.run(NAME, run_id)).info()
        except TaskNotFound:
            return False
        if info.outcome is None:
            return False
        await self._runs.ended(run_id, info.outcome, None if info.outcome == "ready" else info.reason)
        return True


def customer_key(key: str) -> str:
    """The name of a run's assets in the cloud, where 36 characters are allowed: the same over every crash."""
    return f"{PREFIX}{hashlib.sha256(key.encode()).hexdigest()[:32]}"


def validate(sql: str) -> None:
    """What can be known to fail before anything is created."""
    words = sql.split(None, 1)
    if not words or words[0].lower() not in {"select", "with"}:
        raise InvalidQuery(f"{sql[:50]!r} is not a query: it must begin with SELECT or WITH")
    if len(sql) > SQL_LIMIT:
        raise InvalidQuery(f"a query has at most {SQL_LIMIT:,} characters, this one has {len(sql):,}")


def _tenant(op: ShellQuery) -> str:
    return op.tenant_id
