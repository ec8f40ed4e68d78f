"""Reads for listings and detail pages: tasks, workers, queues.

Promises: one snapshot per answer, since each is one statement. No statement reads all tasks: it finds the names of
queues by jumping through the indexes, and counts only the head of each line.
"""

# ruff: noqa: S608 - only the column lists and conditions of this package are put into SQL

from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from everpoll.drivers.postgres.lane import Lane
from everpoll.stores import limits
from everpoll.stores.contract import COUNT_LIMIT, LimitInfo, LiveTask, QueueInfo, TaskInfo, WorkerInfo
from everpoll.stores.operations import Pause
from everpoll.stores.postgres.functions import versioned
from everpoll.stores.postgres.rows import END, ENDED, LIVE, WORKER, task_info, worker_info

BY_ID = f"""select {LIVE} from everpoll.tasks t where t.id = any($1::bigint[])
    union all select {ENDED} from everpoll.history h where h.id = any($1::bigint[])"""
# Postgres knows sizes without reading large values.
_SIZE = """coalesce(octet_length(s.args), 0) + coalesce(octet_length(s.memory), 0)
    + coalesce(octet_length(s.progress), 0) + coalesce(pg_column_size(s.trail), 0)"""
SIZES = f"""select s.id, {_SIZE} from everpoll.tasks s where s.id = any($1::bigint[])
    union all select s.id, {_SIZE} + coalesce(octet_length(s.result), 0) from everpoll.history s
     where s.id = any($1::bigint[])"""
ENDS = f"""select {END}, h.fits from (
    select s.*, row_number() over sizes = 1
            or sum(coalesce(octet_length(s.result), 0) + coalesce(pg_column_size(s.trail), 0)) over sizes <= $2 as fits
      from everpoll.history s where s.id = any($1::bigint[])
    window sizes as (order by s.id rows unbounded preceding)) h"""
FOUND = versioned(f"""select {LIVE} from everpoll.tasks t where t.key = $2 and t.kind = $1
    union all select {ENDED} from everpoll.history h where h.id = (select everpoll.last_ended($1, $2))""")
LIVE_OF_KIND = versioned("select * from everpoll.live_of_kind($1, $2, $3)")
RESULTS = versioned("select everpoll.last_results($1, $2, $3)")
LOSSES = "select extract(epoch from at)::float8, note from everpoll.losses where task_id = $1 order by id"
WORKERS = f"""select {WORKER} from everpoll.workers w
    where w.stopped_at is null or w.stopped_at > now() - interval '1 day' order by w.started_at, w.incarnation"""
RUNNING = versioned("select queue, owner, tasks from everpoll.running($1)")
# One statement, so one snapshot: a task that falls due between two would be in neither, and a drain would leave it.
QUEUES = versioned("""select queue, 'running' as what, tasks, null::timestamptz as at, null as reason, null as by
      from everpoll.running($2)
    union all select queue, 'ready', tasks, null, null, null from everpoll.ready($1)
    union all select queue, 'limited', tasks, null, null, null from everpoll.limited($1)
    union all select queue, 'blocked', tasks, null, null, null from everpoll.blocked($1)
    union all select queue, case when is_late then 'ready' else 'waiting' end, tasks, null, null, null
      from everpoll.waiting($1)
    union all select queue, 'oldest', 0, due_at, null, null from everpoll.oldest_due()
    union all select queue, 'paused', 0, at, reason, paused_by from everpoll.pauses""")
AT_KEY = versioned("select * from everpoll.at_key($1, $2)")
STARTS = "select at, starts from everpoll.starts where limit_key = $1 order by began_at"
LAST_ID = 2**63 - 1
RUNNING_LIMIT = 100_000
"""The most running tasks that are counted, over all queues."""


async def info(lane: Lane, task_ids: Sequence[int]) -> dict[int, TaskInfo]:
    """Return those of the tasks that exist, in the order of the ids."""
    found = {row[0]: row for row in await lane.rows(BY_ID, list(task_ids))}
    return {task_id: task_info(found[task_id]) for task_id in task_ids if task_id in found}


async def sizes(lane: Lane, task_ids: Sequence[int]) -> dict[int, int]:
    """Return the bytes of payload of the tasks that exist."""
    return dict(await lane.rows(SIZES, list(task_ids)))


async def ended(lane: Lane, task_ids: Sequence[int]) -> dict[int, TaskInfo | None]:
    """Return those of the tasks that have ended, in the order of the ids; see the contract."""
    rows = await lane.rows(ENDS, list(task_ids), limits.READ_BYTES)
    found = {row["id"]: task_info(row) if row["fits"] else None for row in rows}
    return {task_id: found[task_id] for task_id in task_ids if task_id in found}


async def losses(lane: Lane, task_id: int) -> list[dict[str, Any]]:
    """Return the notes about lost results of a task, oldest first."""
    return [{"at": at, **msgspec.json.decode(note)} for at, note in await lane.rows(LOSSES, task_id)]


async def find(lane: Lane, kind: str, key: str) -> TaskInfo | None:
    """Return the live task with that key, else the indexed one that ended last."""
    infos = map(task_info, await lane.rows(FOUND, kind, key))
    return min(infos, key=lambda info: info.ended_at is not None, default=None)


async def live(lane: Lane, kind: str, limit: int, after: int | None) -> list[LiveTask]:
    """Return the live indexed tasks of a kind, newest first."""
    rows = await lane.rows(LIVE_OF_KIND, kind, limit, LAST_ID if after is None else after)
    return [LiveTask(*row) for row in rows]


async def last_results(lane: Lane, kind: str, name: str, limit: int) -> list[Any]:
    """Return the results of the indexed tasks of that name that ended last."""
    return [msgspec.json.decode(row[0]) for row in await lane.rows(RESULTS, kind, name, limit)]


async def workers(lane: Lane) -> list[WorkerInfo]:
    """Return the workers that are alive, and those that ended lately, each with what it runs."""
    rows = await lane.rows(WORKERS)
    running: Counter[int] = Counter()
    has_more = False
    for queue, owner, count in await lane.rows(RUNNING, RUNNING_LIMIT):
        running[owner] += count
        has_more = has_more or queue is None
    return [worker_info(row, running[row[0]], has_more) for row in rows]


async def queues(lane: Lane) -> list[QueueInfo]:
    """Return how many tasks wait and run in each queue."""
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    oldest: dict[str, datetime] = {}
    pauses: dict[str, Pause] = {}
    has_more_running = False
    for queue, what, count, at, reason, by in await lane.rows(QUEUES, COUNT_LIMIT, RUNNING_LIMIT):
        if queue is None:
            has_more_running = True
            continue
        counts[queue][what] += count
        if what == "oldest":
            oldest[queue] = at
        elif what == "paused":
            pauses[queue] = Pause(reason=reason, by=by, at=at)
    return [
        QueueInfo(
            queue=queue,
            ready=min(counted["ready"], COUNT_LIMIT),
            waiting=min(counted["waiting"], COUNT_LIMIT),
            running=min(counted["running"], COUNT_LIMIT),
            oldest_due_at=oldest.get(queue),
            paused=pauses.get(queue),
            limited=min(counted["limited"], COUNT_LIMIT),
            blocked=min(counted["blocked"], COUNT_LIMIT),
            has_more_running=has_more_running,
        )
        for queue, counted in sorted(counts.items())
    ]


async def at_key(lane: Lane, key: str) -> LimitInfo:
    """Return how many tasks run and wait at one key of a limit."""
    row = await lane.row(AT_KEY, key, COUNT_LIMIT)
    starts = await lane.rows(STARTS, key)
    return LimitInfo(
        key=key,
        waiting=row["waiting"],
        running=row["running"],
        oldest_started_at=row["oldest_started_at"],
        starts=tuple((at, count) for at, count in starts),
    )
