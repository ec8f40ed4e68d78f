"""Fills a store with live runs of a watch: one is really begun and looked at, the others are copies of its row."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import asyncpg

from everpoll import Budget, Everpoll
from everpoll.watches import Wait

WATCH = "export"
LOOKED_S = 0.05
_COPIED = ("created_at", "rank", "version", "kind", "queue", "name", "args", "memory", "cancels_itself", "indexed")
SQLITE = f"""with recursive n(i) as (select 1 union all select i + 1 from n where i < :runs)
    insert into everpoll_tasks (id, key, line, due_at, {", ".join(_COPIED)})
    select :first + n.i, t.key || '-' || n.i, 1, t.created_at + 86400000000, {", ".join(f"t.{one}" for one in _COPIED)}
    from n cross join everpoll_tasks t where t.id = :id"""  # noqa: S608 - ours
POSTGRES = f"""insert into everpoll.tasks (id, key, line, due_at, {", ".join(_COPIED)})
    select $3 + i, t.key || '-' || i, 1, now() + interval '1 day', {", ".join(f"t.{one}" for one in _COPIED)}
    from everpoll.tasks t cross join generate_series(1, $1::bigint) i where t.id = $2"""  # noqa: S608 - ours


async def fill_runs(app: Everpoll, count: int, first_id: int, path: Path | None) -> str:
    """Begin a run, look at it once, and copy it; return the name of the first. `path` is that of an SQLite file."""

    @app.watch(name=WATCH, every="1h", budget=Budget("2d", looks=120))
    async def export(_op: dict[str, Any], w: Any) -> Wait:
        w.memory["rows"] = 17
        w.progress("40 %")
        return Wait(status="running")

    run = await export.begin({"query": "select 1 from orders", "region": "eu"}, "run-0")
    working = asyncio.get_running_loop().create_task(app.run(grace="1s"))
    while (await run.info()).looks == 0:  # noqa: ASYNC110 - a run tells no one
        await asyncio.sleep(LOOKED_S)
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)
    if path is not None:
        with closing(sqlite3.connect(path, timeout=30)) as con, con:
            con.execute(SQLITE, {"runs": count, "id": run.task_id, "first": first_id})
    else:
        connection = await asyncpg.connect(app.url)
        try:
            await connection.execute(POSTGRES, count, run.task_id, first_id)
        finally:
            await connection.close()
    return f"{WATCH}:run-0"
