"""What people see: tasks, workers, queues.

Promises: one snapshot per answer, since each is one statement. Nothing counts everything: names of queues are found by
jumping through the indexes, and counts look at the head of each line only.
"""

# ruff: noqa: S608 - only the column lists and conditions of this package are put into SQL

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from everpoll.drivers.postgres.lane import Lane
from everpoll.stores.contract import COUNT_LIMIT, END_STATES, QueueInfo, TaskFilter, TaskInfo, TaskPage, WorkerInfo
from everpoll.stores.postgres.rows import ENDED, LIVE, WORKER, task_info, worker_info

ENDED_BY_ID = f"select {ENDED} from everpoll.history h where h.id = any($1::bigint[])"
BY_ID = f"select {LIVE} from everpoll.tasks t where t.id = any($1::bigint[]) union all {ENDED_BY_ID}"
FOUND = f"""select {LIVE} from everpoll.tasks t where t.key = $1 and t.kind = $2
    union all (select {ENDED} from everpoll.history h where h.key = $1 and h.kind = $2
               order by h.ended_at desc, h.id desc limit 1)"""
# Watches have indexes of their own. The live one is looked for whatever its kind: there is one with that key at most.
FOUND_WATCH = f"""select {LIVE} from everpoll.tasks t where t.key = $1
    union all select {ENDED} from everpoll.history h where h.id = (select everpoll.ended_watch($1))"""
RESULTS = """select h.result from everpoll.history h where h.name = $1 and h.kind = $3
    and h.result is not null and h.result <> 'null' order by h.ended_at desc, h.id desc limit $2"""
WATCH_RESULTS = "select everpoll.watch_results($1, $2)"
LOSSES = "select extract(epoch from at)::float8, note from everpoll.losses where task_id = $1 order by id"
WORKERS = f"""select {WORKER} from everpoll.workers w
    where w.stopped_at is null or w.stopped_at > now() - interval '1 day' order by w.started_at, w.owner"""
# Once more than the limit: what runs stands before what is ready, and both are counted.
HEADS = "select queue, owner, tasks from everpoll.heads($1)"
# One statement, so one snapshot: a task that falls due between two would be in neither, and who drains would leave it.
QUEUES = """select queue, owner is not null as is_running, true as is_due, tasks from everpoll.heads($1)
    union all select queue, false, is_late, tasks from everpoll.waits($2)"""
HEAD_LIMIT = 2 * COUNT_LIMIT


async def by_id(lane: Lane, sql: str, task_ids: Sequence[int]) -> dict[int, TaskInfo]:
    """Those that are there, in the order in which they were asked for."""
    found = {row[0]: row for row in await lane.rows(sql, list(task_ids))}
    return {task_id: task_info(found[task_id]) for task_id in task_ids if task_id in found}


async def losses(lane: Lane, task_id: int) -> list[dict[str, Any]]:
    """What was noted, oldest first."""
    return [{"at": at, **msgspec.json.decode(note)} for at, note in await lane.rows(LOSSES, task_id)]


async def tasks(lane: Lane, wanted: TaskFilter, limit: int, after: int | None) -> TaskPage:
    """One page. Each table gives its newest; what is beyond the page tells that there is more."""
    values: list[Any] = [limit + 1]
    sources = []
    for table, letter, columns in (("tasks", "t", LIVE), ("history", "h", ENDED)):
        if (state := _state(wanted, table)) is not None:
            conditions = [state, *_conditions(wanted, after, letter, values)]
            sources.append(
                f"(select {columns} from everpoll.{table} {letter} where {' and '.join(conditions)}"
                f" order by {letter}.id desc limit $1)"
            )
    rows = await lane.rows(f"select * from ({' union all '.join(sources)}) page order by id desc limit $1", *values)
    page = tuple(task_info(row) for row in rows[:limit])
    return TaskPage(page, page[-1].id if len(rows) > limit else None)


def _state(wanted: TaskFilter, table: str) -> str | None:
    """The condition on the state, as a constant so that the index of ill-ended tasks can be used; None: not there."""
    if wanted.state is None:
        return "true"
    if (wanted.state in END_STATES) != (table == "history"):
        return None
    if table == "history":
        return f"h.state = '{wanted.state}'"
    return "t.is_leased" if wanted.state == "running" else "not t.is_leased"


def _conditions(wanted: TaskFilter, after: int | None, letter: str, values: list[Any]) -> list[str]:
    wishes = {"id <": after, "queue =": wanted.queue, "name =": wanted.name, "kind =": wanted.kind}
    conditions = []
    if wanted.kind == "watch":  # a constant, so that the index of watches can be used
        del wishes["kind ="]
        conditions.append(f"{letter}.kind = 'watch'")
    for comparison, value in wishes.items():
        if value is not None:
            values.append(value)
            conditions.append(f"{letter}.{comparison} ${len(values)}")
    return conditions


async def find(lane: Lane, kind: str, key: str) -> TaskInfo | None:
    """The live task with that key, else the newest ended one."""
    rows = await (lane.rows(FOUND_WATCH, key) if kind == "watch" else lane.rows(FOUND, key, kind))
    infos = [info for info in map(task_info, rows) if info.kind == kind]
    return min(infos, key=lambda info: info.ended_at is not None, default=None)


async def last_results(lane: Lane, kind: str, name: str, limit: int) -> list[Any]:
    """What the tasks of that name brought that ended last."""
    rows = await (lane.rows(WATCH_RESULTS, name, limit) if kind == "watch" else lane.rows(RESULTS, name, limit, kind))
    return [msgspec.json.decode(row[0]) for row in rows]


async def workers(lane: Lane) -> list[WorkerInfo]:
    """Those alive, and those that ended lately, each with what it runs."""
    rows = await lane.rows(WORKERS)
    running: Counter[int] = Counter()
    for _, owner, count in await lane.rows(HEADS, HEAD_LIMIT):
        running[owner] += count
    return [worker_info(row, running[row[0]]) for row in rows]


async def queues(lane: Lane) -> list[QueueInfo]:
    """What waits where."""
    ready: Counter[str] = Counter()
    waiting: Counter[str] = Counter()
    running: Counter[str] = Counter()
    for queue, is_running, is_due, count in await lane.rows(QUEUES, HEAD_LIMIT, COUNT_LIMIT):
        (running if is_running else ready if is_due else waiting)[queue] += count
    return [
        QueueInfo(
            queue=queue,
            ready=min(ready[queue], COUNT_LIMIT),
            waiting=min(waiting[queue], COUNT_LIMIT),
            running=min(running[queue], COUNT_LIMIT),
        )
        for queue in sorted({*ready, *waiting, *running})
    ]
