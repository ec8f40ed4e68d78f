"""What people see: tasks, workers, queues.

Promises: one snapshot per answer, since each is one statement. Nothing counts everything: names of queues are found by
jumping through the indexes, and counts look at the head of each line only.
"""

# ruff: noqa: S608 - only the column lists and conditions of this package are put into SQL

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from everpoll.drivers.postgres.lane import Lane
from everpoll.stores.contract import (
    COUNT_LIMIT,
    END_STATES,
    SEARCH_LIMIT,
    QueueInfo,
    TaskFilter,
    TaskInfo,
    TaskPage,
    WorkerInfo,
)
from everpoll.stores.postgres.functions import versioned
from everpoll.stores.postgres.rows import ENDED, LIVE, WORKER, task_info, worker_info

ENDED_BY_ID = f"select {ENDED} from everpoll.history h where h.id = any($1::bigint[])"
BY_ID = f"select {LIVE} from everpoll.tasks t where t.id = any($1::bigint[]) union all {ENDED_BY_ID}"
FOUND = versioned(f"""select {LIVE} from everpoll.tasks t where t.key = $2 and t.kind = $1
    union all select {ENDED} from everpoll.history h where h.id = (select everpoll.last_ended($1, $2))""")
RESULTS = versioned("select everpoll.last_results($1, $2, $3)")
LOSSES = "select extract(epoch from at)::float8, note from everpoll.losses where task_id = $1 order by id"
WORKERS = f"""select {WORKER} from everpoll.workers w
    where w.stopped_at is null or w.stopped_at > now() - interval '1 day' order by w.started_at, w.incarnation"""
RUNNING = versioned("select queue, owner, tasks from everpoll.running($1)")
# One statement, so one snapshot: a task that falls due between two would be in neither, and a drain would leave it.
QUEUES = versioned("""select queue, 'running' as what, tasks from everpoll.running($2)
    union all select queue, 'ready', tasks from everpoll.ready($1)
    union all select queue, case when is_late then 'ready' else 'waiting' end, tasks from everpoll.waiting($1)""")
RUNNING_LIMIT = 100_000
"""Running tasks that are counted at most, over all queues."""


async def by_id(lane: Lane, sql: str, task_ids: Sequence[int]) -> dict[int, TaskInfo]:
    """Those that are there, in the order in which they were asked for."""
    found = {row[0]: row for row in await lane.rows(sql, list(task_ids))}
    return {task_id: task_info(found[task_id]) for task_id in task_ids if task_id in found}


async def losses(lane: Lane, task_id: int) -> list[dict[str, Any]]:
    """What was noted, oldest first."""
    return [{"at": at, **msgspec.json.decode(note)} for at, note in await lane.rows(LOSSES, task_id)]


async def tasks(lane: Lane, wanted: TaskFilter, limit: int, after: int | None) -> TaskPage:
    """One page. Each table gives its newest; what is beyond the page tells that there is more.

    No index has names and queues: of each table a bounded number of tasks is looked at, and the page says how far back.
    """
    values: list[Any] = [SEARCH_LIMIT, limit + 1]
    pages = []
    for letter, some in _newest(wanted, after, values):
        matching = " and ".join(_conditions(_wishes(wanted), letter, values)) or "true"
        columns = LIVE if letter == "t" else ENDED
        pages.append(f"(select {columns} from ({some}) {letter} where {matching} order by {letter}.id desc limit $2)")
    rows = await lane.rows(f"select * from ({' union all '.join(pages)}) page order by id desc limit $2", *values)
    found = [task_info(row) for row in rows]
    if len(found) > limit:
        return TaskPage(tuple(found[:limit]), found[limit - 1].id)
    end = await _search_end(lane, wanted, after) if _wishes(wanted) else None
    if end is None:
        return TaskPage(tuple(found))
    # Behind the end of one table's search the other may have found something: that belongs to the next page.
    return TaskPage(tuple(one for one in found if one.id >= end["id"]), end["id"], end["created_at"])


async def _search_end(lane: Lane, wanted: TaskFilter, after: int | None) -> Any:
    """The last task that was looked at, where there are more behind it."""
    values: list[Any] = [SEARCH_LIMIT]
    ends = [
        f"(select id, created_at from ({some}) {letter} order by id desc offset $1 - 1 limit 1)"
        for letter, some in _newest(wanted, after, values)
    ]
    return await lane.row(f"select * from ({' union all '.join(ends)}) ends order by id desc limit 1", *values)


def _newest(wanted: TaskFilter, after: int | None, values: list[Any]) -> Iterator[tuple[str, str]]:
    """For each table that may have such tasks: its letter, and the newest rows, as far as an index finds them."""
    for table, letter in (("tasks", "t"), ("history", "h")):
        if (state := _state(wanted, table)) is not None:
            where = [state, *_conditions({"id <": after}, letter, values)]
            if wanted.indexed:
                where += [f"{letter}.indexed", *_conditions({"kind =": wanted.kind}, letter, values)]
            newest = f"from everpoll.{table} {letter} where {' and '.join(where)} order by {letter}.id desc limit $1"
            yield letter, f"select {letter}.* {newest}"


def _state(wanted: TaskFilter, table: str) -> str | None:
    """The condition on the state, as a constant so that the index of ill-ended tasks can be used; None: not there."""
    if wanted.state is None:
        return "true"
    if (wanted.state in END_STATES) != (table == "history"):
        return None
    if table == "history":
        return f"h.state = '{wanted.state}'"
    return "t.is_leased" if wanted.state == "running" else "not t.is_leased"


def _wishes(wanted: TaskFilter) -> dict[str, Any]:
    """What no index has."""
    wishes = {"queue =": wanted.queue, "name =": wanted.name, "kind =": None if wanted.indexed else wanted.kind}
    return {comparison: value for comparison, value in wishes.items() if value is not None}


def _conditions(wishes: dict[str, Any], letter: str, values: list[Any]) -> list[str]:
    conditions = []
    for comparison, value in wishes.items():
        if value is not None:
            values.append(value)
            conditions.append(f"{letter}.{comparison} ${len(values)}")
    return conditions


async def find(lane: Lane, kind: str, key: str) -> TaskInfo | None:
    """The live task with that key, else the indexed one that ended last."""
    infos = map(task_info, await lane.rows(FOUND, kind, key))
    return min(infos, key=lambda info: info.ended_at is not None, default=None)


async def last_results(lane: Lane, kind: str, name: str, limit: int) -> list[Any]:
    """The results of the indexed tasks of that name that ended last."""
    return [msgspec.json.decode(row[0]) for row in await lane.rows(RESULTS, kind, name, limit)]


async def workers(lane: Lane) -> list[WorkerInfo]:
    """Those alive, and those that ended lately, each with what it runs."""
    rows = await lane.rows(WORKERS)
    running: Counter[int] = Counter()
    for _, owner, count in await lane.rows(RUNNING, RUNNING_LIMIT):
        running[owner] += count
    return [worker_info(row, running[row[0]]) for row in rows]


async def queues(lane: Lane) -> list[QueueInfo]:
    """What waits where."""
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for queue, what, count in await lane.rows(QUEUES, COUNT_LIMIT, RUNNING_LIMIT):
        counts[queue][what] += count
    return [
        QueueInfo(
            queue=queue,
            ready=min(counted["ready"], COUNT_LIMIT),
            waiting=min(counted["waiting"], COUNT_LIMIT),
            running=min(counted["running"], COUNT_LIMIT),
        )
        for queue, counted in sorted(counts.items())
    ]
