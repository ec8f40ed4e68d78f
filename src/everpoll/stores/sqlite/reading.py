"""Reads for listings and detail pages: tasks, workers, queues. Runs in the reader, so no writer waits for it.

Promises: one snapshot for each answer. Counts stop at COUNT_LIMIT, and the names of queues are found by seeks in the
indexes, so that neither takes longer when more tasks wait.
"""

# ruff: noqa: S608 - only the column lists and conditions of this module are put into SQL

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from everpoll.drivers.sqlite.connection import Connection
from everpoll.stores import limits
from everpoll.stores.contract import COUNT_LIMIT, Limit, LiveTask, QueueInfo, TaskInfo, WorkerInfo, encode
from everpoll.stores.flows import BLOCKED_LINE
from everpoll.stores.operations import Pause

WORKERS_SHOWN_US = 86_400 * 1_000_000

LABEL = "(select w.label from everpoll_workers w where w.incarnation = t.owner)"
LIVE = f"""t.id, t.kind, t.name, t.queue, t.key, iif(t.is_leased, 'running', 'queued') as state, -t.rank, t.attempt,
    t.rescues, t.created_at, t.due_at, t.started_at, null,
    iif(t.is_leased, t.started_at + cast(t.timeout_s * 1000000 as integer), null),
    {LABEL}, iif(t.is_leased, t.owner, null), t.cancel_requested, t.args, t.memory, t.progress, null, t.trail,
    t.limit_key, t.limit_running, t.limit_starts, t.limit_per_s, t.then_id, t.takes, t.blockers, t.version"""
_ENDED = """t.id, t.kind, t.name, t.queue, t.key, t.state, -t.rank, t.attempt,
    t.rescues, t.created_at, t.due_at, t.started_at, t.ended_at, null,
    {label}, iif(t.was_leased, t.owner, null), t.cancel_requested, {payloads},
    t.limit_key, t.limit_running, t.limit_starts, t.limit_per_s, t.then_id, t.takes, 0, t.version"""
ENDED = _ENDED.format(label=LABEL, payloads="t.args, t.memory, t.progress, t.result, t.trail")
END = _ENDED.format(label=LABEL, payloads="'null', null, null, t.result, case when t.state <> 'done' then t.trail end")
"""The columns that a caller waiting for a task gets."""
PAYLOADS = slice(17, 22)
"""The indexes of the payloads among these columns."""
BY_ID = f"""select {LIVE} from json_each(:ids) j cross join everpoll_tasks t where t.id = j.value
    union all select {ENDED} from json_each(:ids) j cross join everpoll_history t where t.id = j.value"""
# As a blob, because the length of a text is in characters.
_SIZE = """coalesce(length(cast(t.args as blob)), 0) + coalesce(length(cast(t.memory as blob)), 0)
    + coalesce(length(cast(t.progress as blob)), 0) + coalesce(length(cast(t.trail as blob)), 0)"""
SIZES = f"""select t.id, {_SIZE} from json_each(:ids) j cross join everpoll_tasks t where t.id = j.value
    union all select t.id, {_SIZE} + coalesce(length(cast(t.result as blob)), 0)
      from json_each(:ids) j cross join everpoll_history t where t.id = j.value"""
ENDS = f"select {END} from json_each(:ids) j cross join everpoll_history t where t.id = j.value"
ENDED_IDS = "select t.id from json_each(:ids) j cross join everpoll_history t where t.id = j.value"
FOUND = f"""select * from (select {LIVE} from everpoll_tasks t where t.key = :key and t.kind = :kind)
    union all select * from (select {ENDED} from everpoll_history t
        where t.indexed = 1 and t.kind = :kind and t.key = :key order by t.ended_at desc, t.id desc limit 1)"""
RESULTS = """select t.result from everpoll_history t where t.indexed = 1 and t.kind = :kind and t.name = :name
    and t.result is not null and t.result <> 'null' order by t.ended_at desc, t.id desc limit :limit"""
LIVE_OF_KIND = """select t.id, t.key, t.cancel_requested, t.args, t.memory
    from everpoll_tasks t indexed by everpoll_tasks_indexed
    where t.indexed = 1 and t.kind = :kind and t.id < :after order by t.id desc limit :limit"""
LOSSES = "select at, note from everpoll_losses where task_id = ? order by id"

WORKERS = """select w.incarnation, w.label, w.host, w.pid, w.queues, w.slots, w.version, w.started_at, w.beat_at,
        max(0, :now - w.beat_at) / 1000000.0,
        w.stopped_at is null and w.beat_at >= :now - w.lease_s * 1000000,
        w.stopped_at, coalesce(held.running, 0), w.names
    from everpoll_workers w left join
        (select owner, count(*) as running from everpoll_tasks indexed by everpoll_tasks_leased
         where is_leased = 1 group by owner) held
        on held.owner = w.incarnation
    where w.stopped_at is null or w.stopped_at > :oldest order by w.started_at, w.incarnation"""

FIRST_WAITING = """select due_at from everpoll_tasks indexed by everpoll_tasks_waiting
    where line = 1 and queue = ? and due_at <= ? order by due_at limit 1"""
FIRST_READY = """select rank, due_at from everpoll_tasks indexed by everpoll_tasks_ready
    where line = 0 and is_leased = 0 and queue = ? and rank > ? order by rank, due_at limit 1"""
LAST_ID = 2**63 - 1
LOWEST_RANK = -(2**31) - 1
RANKS_LIMIT = 100
"""How many priorities of one queue are searched for its oldest task."""
READY = "line = 0 and is_leased = 0"
WAITING = "line = 1"
LIMITED = "line = 3 and is_leased = 0"
BLOCKED = f"line = {BLOCKED_LINE}"
LEASED = "is_leased = 1"


def info(con: Connection, task_ids: Sequence[int]) -> dict[int, TaskInfo]:
    """Return the tasks that exist."""
    found = {row[0]: shown(row) for row in con.execute(BY_ID, {"ids": encode(task_ids)})}
    return {task_id: found[task_id] for task_id in task_ids if task_id in found}


def sizes(con: Connection, task_ids: Sequence[int]) -> dict[int, int]:
    """Return the bytes of payload of the tasks that exist."""
    return dict(con.execute(SIZES, {"ids": encode(task_ids)}).fetchall())


def ended(con: Connection, task_ids: Sequence[int]) -> dict[int, TaskInfo | None]:
    """Return the tasks that have ended; see the contract."""
    rows, is_cut = limits.fitting_items(con.execute(ENDS, {"ids": encode(task_ids)}), payload_bytes)
    found: dict[int, TaskInfo | None] = {row[0]: shown(row) for row in rows}
    if is_cut:
        rest = encode([task_id for task_id in task_ids if task_id not in found])
        found.update(dict.fromkeys(task_id for (task_id,) in con.execute(ENDED_IDS, {"ids": rest})))
    return {task_id: found[task_id] for task_id in task_ids if task_id in found}


def payload_bytes(row: tuple[Any, ...]) -> int:
    """Return the size of the payloads, from the columns of LIVE, ENDED or END."""
    return sum(map(limits.size_of, row[PAYLOADS]))


def losses(con: Connection, task_id: int) -> list[dict[str, Any]]:
    """Return the records of dropped results of a task."""
    return [{"at": at / 1e6, **msgspec.json.decode(note)} for at, note in con.execute(LOSSES, (task_id,))]


def find(con: Connection, kind: str, key: str) -> TaskInfo | None:
    """Return the live task with that key, else the newest ended one."""
    rows = con.execute(FOUND, {"kind": kind, "key": key})
    return min(map(shown, rows), key=lambda info: info.ended_at is not None, default=None)


def live(con: Connection, kind: str, limit: int, after: int | None) -> list[LiveTask]:
    """Return the live indexed tasks of a kind, newest first."""
    bound = {"kind": kind, "limit": limit, "after": LAST_ID if after is None else after}
    rows = con.execute(LIVE_OF_KIND, bound)
    return [LiveTask(task_id, key, bool(cancel), args, memory) for task_id, key, cancel, args, memory in rows]


def last_results(con: Connection, kind: str, name: str, limit: int) -> list[Any]:
    """Return the results of the tasks of that name that ended last."""
    bound = {"kind": kind, "name": name, "limit": limit}
    return [msgspec.json.decode(result) for (result,) in con.execute(RESULTS, bound)]


def workers(con: Connection, now: int) -> list[WorkerInfo]:
    """Return the workers that are alive, and those that ended lately."""
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
            names=None if names is None else msgspec.json.decode(names, type=tuple[str, ...]),
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
            names,
        ) in con.execute(WORKERS, bound)
    ]


def queues(con: Connection, now: int, paused: Mapping[str, Pause]) -> list[QueueInfo]:
    """Return the counts of each queue."""
    return [_queue(con, name, now, paused.get(name)) for name in sorted({*queue_names(con), *paused})]


def queue_names(con: Connection) -> list[str]:
    """Return every queue that has live tasks."""
    return sorted({name for where in (READY, WAITING, LIMITED, BLOCKED, LEASED) for name in _queue_names(con, where)})


def _queue(con: Connection, name: str, now: int, pause: Pause | None) -> QueueInfo:
    late = _count(con, f"{WAITING} and due_at <= :now", name, now)
    return QueueInfo(
        queue=name,
        ready=min(COUNT_LIMIT, late + _count(con, READY, name, now)),
        waiting=_count(con, f"{WAITING} and due_at > :now", name, now),
        running=_count(con, LEASED, name, now),
        oldest_due_at=instant_or_none(_oldest_due(con, name, now)),
        paused=pause,
        limited=_count(con, LIMITED, name, now),
        blocked=_count(con, BLOCKED, name, now),
    )


def _oldest_due(con: Connection, queue: str, now: int) -> int | None:
    """Return the earliest due time of the due tasks, over all priorities."""
    dues = [row[0] for row in con.execute(FIRST_WAITING, (queue, now))]
    row = con.execute(FIRST_READY, (queue, LOWEST_RANK)).fetchone()
    while row is not None and len(dues) < RANKS_LIMIT:
        rank, due_at = row
        dues.append(due_at)
        row = con.execute(FIRST_READY, (queue, rank)).fetchone()
    return min(dues, default=None)


def _count(con: Connection, where: str, queue: str, now: int) -> int:
    statement = f"""select count(*) from
        (select 1 from everpoll_tasks where {where} and queue = :queue limit {COUNT_LIMIT})"""
    return int(con.execute(statement, {"queue": queue, "now": now}).fetchone()[0])


def _queue_names(con: Connection, where: str) -> Iterator[str]:
    """Yield every queue that has such tasks: one seek for each."""
    row = con.execute(f"select queue from everpoll_tasks where {where} order by queue limit 1").fetchone()
    following = f"select queue from everpoll_tasks where {where} and queue > ? order by queue limit 1"
    while row is not None:
        yield row[0]
        row = con.execute(following, row).fetchone()


def shown(row: tuple[Any, ...]) -> TaskInfo:
    """Return a task, from the columns of LIVE or ENDED."""
    trail = _decoded(row[21])
    # By index: a page has up to a thousand rows, and unpacking each into names takes a fifth longer.
    return TaskInfo(
        id=row[0],
        kind=row[1],
        name=row[2],
        queue=row[3],
        key=row[4],
        state=row[5],
        priority=row[6],
        attempt=row[7],
        rescues=row[8],
        created_at=instant(row[9]),
        due_at=instant(row[10]),
        started_at=instant_or_none(row[11]),
        ended_at=instant_or_none(row[12]),
        deadline_at=instant_or_none(row[13]),
        worker=row[14],
        incarnation=row[15],
        cancel_requested=bool(row[16]),
        args=_decoded(row[17]),
        memory=_decoded(row[18]),
        progress=_decoded(row[19]),
        result=_decoded(row[20]),
        limit=None if row[22] is None else Limit(row[22], row[23], row[24], row[25] or 0.0),
        then_id=row[26],
        takes=row[27],
        blockers=row[28],
        version=row[29],
        trail=tuple(trail) if trail else (),
    )


def instant(us: int) -> datetime:
    """Return an instant of a column as a datetime."""
    return datetime.fromtimestamp(us / 1e6, UTC)


def instant_or_none(us: int | None) -> datetime | None:
    """Return the same for a column that may be empty."""
    return None if us is None else instant(us)


def _decoded(text: str | None) -> Any:
    return None if text is None else msgspec.json.decode(text)
