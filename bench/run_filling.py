"""Fills a store with runs of a watch: a few are really begun and looked at, the others are copies of their rows.

Its app has some schedules, too.
"""

import asyncio
import time
from collections.abc import Iterator, Sequence
from typing import Any

from bench.database import Database, Row, spread
from everpoll import Budget, Everpoll
from everpoll.watches import Done, Fail, Wait

WATCH = "export"
LOOKED_S = 0.05
RAN_S = 600.0
SCHEDULES = 5
FAILED_EVERY = 10
"""Of so many ended runs, one failed."""
_COPIED = ("created_at", "rank", "version", "kind", "queue", "name", "args", "memory", "cancels_itself", "indexed")
SQLITE = f"""with recursive n(i) as (select 1 union all select i + 1 from n where i < ?1)
    insert into everpoll_tasks (id, key, line, due_at, {", ".join(_COPIED)})
    select ?3 + n.i, t.key || '-' || n.i, 1, t.created_at + 86400000000, {", ".join(f"t.{one}" for one in _COPIED)}
    from n cross join everpoll_tasks t where t.id = ?2"""  # noqa: S608 - ours
POSTGRES = f"""insert into everpoll.tasks (id, key, line, due_at, {", ".join(_COPIED)})
    select $3 + i, t.key || '-' || i, 1, now() + interval '1 day', {", ".join(f"t.{one}" for one in _COPIED)}
    from everpoll.tasks t cross join generate_series(1, $1::bigint) i where t.id = $2"""  # noqa: S608 - ours


def add_schedules(app: Everpoll) -> None:
    """Register schedules, which the app stores when it starts."""

    @app.job()
    def report() -> None: ...

    for number in range(SCHEDULES):
        app.schedule(f"{number} 3 1 1 *", name=f"report-{number}")(report)


async def fill_runs(
    app: Everpoll, database: Database, count: int, first_id: int, ended_ids: Sequence[int], days: float
) -> str:
    """Begin runs, look at them once, and copy them; return the name of the live one.

    The ended ones have their own ids, and are spread over the days before now.
    """

    @app.watch(name=WATCH, every="1h", budget=Budget("2d", looks=120))
    async def export(op: dict[str, Any], w: Any) -> Wait | Done | Fail:
        w.memory["rows"] = 17
        w.progress("40 %")
        match op["region"]:
            case "done":
                return Done({"rows": 17})
            case "failed":
                return Fail("the warehouse refused the query")
        return Wait(status="running")

    regions = {"run-0": "eu", "done-0": "done", "failed-0": "failed"}
    live, done, failed = [await export.begin(_op(region), name) for name, region in regions.items()]
    working = asyncio.get_running_loop().create_task(app.run(grace="1s"))
    while not ((await live.info()).looks and (await done.info()).ended_at and (await failed.info()).ended_at):  # noqa: ASYNC110 - a run tells no one
        await asyncio.sleep(LOOKED_S)
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)
    await database.execute(SQLITE, POSTGRES, count, live.task_id, first_id)
    ended = [await database.row("history", run.task_id) for run in (done, failed)]
    await database.insert("history", list(ended[0]), _copies(database, ended, ended_ids, days))
    return f"{WATCH}:run-0"


def _copies(database: Database, ended: Sequence[dict[str, Any]], ids: Sequence[int], days: float) -> Iterator[Row]:
    """Yield rows of history like these two, one in ten like the second."""
    now = time.time()
    for number, at in spread(len(ids), now - days * 86_400 + RAN_S, now - RAN_S):
        row = ended[number % FAILED_EVERY == 0]
        times = {"created_at": database.at(at), "due_at": database.at(at), "ended_at": database.at(at + RAN_S)}
        yield tuple({**row, "id": ids[number], "key": f"ended-{number}", **times}.values())


def _op(region: str) -> dict[str, Any]:
    return {"query": "select 1 from orders", "region": region}
