"""What people see: tasks, workers, queues. Read by the lane for reading, so no writer ever waits for it.

Promises: one snapshot per answer. Counts stop at COUNT_LIMIT, and the names of the queues are found by jumping through
the indexes, so that neither costs more when more waits.
"""

# ruff: noqa: S608 - only the column lists and conditions of this module are put into SQL

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from everpoll.drivers.sqlite.connection import Connection
from everpoll.stores.contract import (
    COUNT_LIMIT,
    SEARCH_LIMIT,
    QueueInfo,
    TaskFilter,
    TaskInfo,
    TaskPage,
    WorkerInfo,
    encode,
)

WORKERS_SHOWN_US = 86_400 * 1_000_000

LABEL = "(select w.label from everpoll_workers w where w.incarnation = t.owner)"
LIVE = f"""t.id, t.kind, t.name, t.queue, t.key, iif(t.is_leased, 'running', 'queued') as state, -t.rank, t.attempt,
    t.rescues, t.created_at, t.due_at, t.started_at, null,
    iif(t.is_leased, t.started_at + cast(t.timeout_s * 1000000 as integer), null),
    {LABEL}, iif(t.is_leased, t.owner, null), t.cancel_requested, t.args, t.memory, t.progress, null, t.trail"""
ENDED = f"""t.id, t.kind, t.name, t.queue, t.key, t.state, -t.rank, t.attempt,
    t.rescues, t.created_at, t.due_at, t.started_at, t.ended_at, null,
    {LABEL}, iif(t.was_leased, t.owner, null), t.cancel_requested, t.args, t.memory, t.progress, t.result, t.trail"""
ENDED_BY_ID = f"select {ENDED} from json_each(:ids) j cross join everpoll_history t where t.id = j.value"
BY_ID = f"""select {LIVE} from json_each(:ids) j cross join everpoll_tasks t where t.id = j.value
    union all {ENDED_BY_ID}"""
FOUND = f"""select * from (select {LIVE} from everpoll_tasks t where t.key = :key and t.kind = :kind)
    union all select * from (select {ENDED} from everpoll_history t
        where t.indexed = 1 and t.kind = :kind and t.key = :key order by t.ended_at desc, t.id desc limit 1)"""
RESULTS = """select t.result from everpoll_history t where t.indexed = 1 and t.kind = :kind and t.name = :name
    and t.result is not null and t.result <> 'null' order by t.ended_at desc, t.id desc limit :limit"""
LOSSES = "select at, note from everpoll_losses where task_id = ? order by id"

WORKERS = """select w.incarnation, w.label, w.host, w.pid, w.queues, w.slots, w.version, w.started_at, w.beat_at,
        max(0, :now - w.beat_at) / 1000000.0,
        w.stopped_at is null and w.beat_at >= :now - w.lease_s * 1000000,
        w.stopped_at, coalesce(held.running, 0)
    from everpoll_workers w left join
        (select owner, count(*) as running from everpoll_tasks indexed by everpoll_tasks_leased
         where is_leased = 1 group by owner) held
        on held.owner = w.incarnation
    where w.stopped_at is null or w.stopped_at > :oldest order by w.started_at, w.incarnation"""

READY = "line = 0 and is_leased = 0"
WAITING = "line = 1"
LEASED = "is_leased = 1"


def info(con: Connection, task_ids: Sequence[int]) -> dict[int, TaskInfo]:
    """Those that exist."""
    return _by_id(con, BY_ID, task_ids)


def ended(con: Connection, task_ids: Sequence[int]) -> dict[int, TaskInfo]:
    """Those that have ended."""
    return _by_id(con, ENDED_BY_ID, task_ids)


def losses(con: Connection, task_id: int) -> list[dict[str, Any]]:
    """What was recorded about dropped results of a task."""
    return [{"at": at / 1e6, **msgspec.json.decode(note)} for at, note in con.execute(LOSSES, (task_id,))]


def tasks(con: Connection, wanted: TaskFilter, limit: int, after: int | None) -> TaskPage:
    """A page, newest first. No index has names and queues: a bounded number of tasks of each table is looked at."""
    wishes = [name for name in ("queue", "name", "kind") if getattr(wanted, name) is not None]
    same = "".join(f" and t.{name} = :{name}" for name in wishes)
    bound = {"after": after, "limit": limit + 1, "searched": SEARCH_LIMIT, **msgspec.structs.asdict(wanted)}
    newest = [(columns, _newest(wanted, after, *where)) for columns, *where in _places(wanted)]
    selects = (
        f"select * from (select {columns} from ({some}) t where true{same} order by t.id desc limit :limit)"
        for columns, some in newest
    )
    rows = con.execute(f"{' union all '.join(selects)} order by 1 desc limit :limit", bound).fetchall()
    found = [_shown(row) for row in rows]
    if len(found) > limit:
        return TaskPage(tuple(found[:limit]), found[limit - 1].id)
    ends = " union all ".join(
        f"select * from (select id, created_at from ({some}) order by id desc limit 1 offset :searched - 1)"
        for _, some in newest
    )
    end = con.execute(f"{ends} order by 1 desc limit 1", bound).fetchone() if wishes else None
    if end is None:
        return TaskPage(tuple(found))
    # Behind the end of one table's search the other may have found something: that belongs to the next page.
    return TaskPage(tuple(one for one in found if one.id >= end[0]), end[0], instant(end[1]))


def _places(wanted: TaskFilter) -> list[tuple[str, str, str]]:
    """Columns, table and condition of each table that may have such tasks.

    The conditions stand in the text, not among the bound values: only so does SQLite use the partial indexes.
    """
    match wanted.state:
        case None:
            return [(LIVE, "everpoll_tasks", "true"), (ENDED, "everpoll_history", "true")]
        case "queued":
            return [(LIVE, "everpoll_tasks", "t.is_leased = 0")]
        case "running":
            return [(LIVE, "everpoll_tasks", "t.is_leased = 1")]
        case "done":
            return [(ENDED, "everpoll_history", "t.state = 'done'")]
        case _:
            return [(ENDED, "everpoll_history", "t.state = :state and t.state <> 'done'")]


def _newest(wanted: TaskFilter, after: int | None, table: str, condition: str) -> str:
    """The newest rows of a table, as far as an index finds them."""
    where = [condition]
    if wanted.indexed:
        where.append("t.indexed = 1" if wanted.kind is None else "t.indexed = 1 and t.kind = :kind")
    if after is not None:
        where.append("t.id < :after")
    return f"select t.* from {table} t where {' and '.join(where)} order by t.id desc limit :searched"


def find(con: Connection, kind: str, key: str) -> TaskInfo | None:
    """The live task with that key, else the newest ended one."""
    rows = con.execute(FOUND, {"kind": kind, "key": key})
    return min(map(_shown, rows), key=lambda info: info.ended_at is not None, default=None)


def last_results(con: Connection, kind: str, name: str, limit: int) -> list[Any]:
    """What the tasks of that name brought that ended last."""
    bound = {"kind": kind, "name": name, "limit": limit}
    return [msgspec.json.decode(result) for (result,) in con.execute(RESULTS, bound)]


def workers(con: Connection, now: int) -> list[WorkerInfo]:
    """Those alive, and those that ended lately."""
    bound = {"now": now, "oldest": now - WORKERS_SHOWN_US}
    return [
        WorkerInfo(
            incarnation=incarnation,
            label=label,
            host=host,
            pid=pid,
            queues=msgspec.json.decode(queues, type=tuple[str, ...]),
            slots=slots,
            version=version,
            started_at=instant(started_at),
            beat_at=instant(beat_at),
            beat_age_s=beat_age_s,
            is_alive=bool(is_alive),
            stopped_at=instant_or_none(stopped_at),
            running=running,
        )
        for (
            incarnation,
            label,
            host,
            pid,
            queues,
            slots,
            version,
            started_at,
            beat_at,
            beat_age_s,
            is_alive,
            stopped_at,
            running,
        ) in con.execute(WORKERS, bound)
    ]


def queues(con: Connection, now: int) -> list[QueueInfo]:
    """What waits where."""
    names = sorted({name for where in (READY, WAITING, LEASED) for name in _queue_names(con, where)})
    return [_queue(con, name, now) for name in names]


def _queue(con: Connection, name: str, now: int) -> QueueInfo:
    late = _count(con, f"{WAITING} and due_at <= :now", name, now)
    return QueueInfo(
        queue=name,
        ready=min(COUNT_LIMIT, late + _count(con, READY, name, now)),
        waiting=_count(con, f"{WAITING} and due_at > :now", name, now),
        running=_count(con, LEASED, name, now),
    )


def _count(con: Connection, where: str, queue: str, now: int) -> int:
    statement = f"""select count(*) from
        (select 1 from everpoll_tasks where {where} and queue = :queue limit {COUNT_LIMIT})"""
    return int(con.execute(statement, {"queue": queue, "now": now}).fetchone()[0])


def _queue_names(con: Connection, where: str) -> Iterator[str]:
    """Every queue that has such tasks: one seek for each."""
    row = con.execute(f"select queue from everpoll_tasks where {where} order by queue limit 1").fetchone()
    following = f"select queue from everpoll_tasks where {where} and queue > ? order by queue limit 1"
    while row is not None:
        yield row[0]
        row = con.execute(following, row).fetchone()


def _by_id(con: Connection, statement: str, task_ids: Sequence[int]) -> dict[int, TaskInfo]:
    found = {row[0]: _shown(row) for row in con.execute(statement, {"ids": encode(task_ids)})}
    return {task_id: found[task_id] for task_id in task_ids if task_id in found}


def _shown(row: tuple[Any, ...]) -> TaskInfo:
    task_id, kind, name, queue, key, state, priority, attempt, rescues, *rest = row
    created_at, due_at, started_at, ended_at, deadline_at, worker, incarnation, cancel_requested, *texts = rest
    args, memory, progress, result, trail = (_decoded(text) for text in texts)
    return TaskInfo(
        id=task_id,
        kind=kind,
        name=name,
        queue=queue,
        key=key,
        state=state,
        priority=priority,
        attempt=attempt,
        rescues=rescues,
        created_at=instant(created_at),
        due_at=instant(due_at),
        started_at=instant_or_none(started_at),
        ended_at=instant_or_none(ended_at),
        deadline_at=instant_or_none(deadline_at),
        worker=worker,
        incarnation=incarnation,
        cancel_requested=bool(cancel_requested),
        args=args,
        memory=memory,
        progress=progress,
        result=result,
        trail=tuple(trail or ()),
    )


def instant(us: int) -> datetime:
    """A column as people read it."""
    return datetime.fromtimestamp(us / 1e6, UTC)


def instant_or_none(us: int | None) -> datetime | None:
    """The same for a column that may be empty."""
    return None if us is None else instant(us)


def _decoded(text: str | None) -> Any:
    return None if text is None else msgspec.json.decode(text)
