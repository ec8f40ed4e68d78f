"""The columns that listings select, and how their rows become `TaskInfo` and `WorkerInfo`."""

from typing import Any

import msgspec

from everpoll.stores.contract import Limit, TaskInfo, WorkerInfo

# Both lists have the same columns in the same order: a task is in exactly one of the tables.
LIVE = """t.id, t.kind, t.name, t.queue, t.key, case when t.is_leased then 'running' else 'queued' end as state, t.rank,
    t.attempt, t.rescues, t.created_at, t.due_at, t.started_at, null::timestamptz as ended_at,
    case when t.is_leased then t.started_at + t.timeout_s * interval '1 second' end as deadline_at,
    case when t.is_leased then (select w.label from everpoll.workers w where w.incarnation = t.owner) else t.worker end,
    t.owner, t.cancel_requested, t.args, t.memory, t.progress, null::text as result, t.trail,
    t.limit_key, t.limit_running, t.limit_starts, t.limit_per_s, t.then_id, t.takes, t.blockers, t.version"""
_ENDED = """h.id, h.kind, h.name, h.queue, h.key, h.state, h.rank,
    h.attempt, h.rescues, h.created_at, h.due_at, h.started_at, h.ended_at,
    null::timestamptz as deadline_at,
    h.worker,
    h.owner, h.cancel_requested, {payloads},
    h.limit_key, h.limit_running, h.limit_starts, h.limit_per_s, h.then_id, h.takes, 0 as blockers, h.version"""
ENDED = _ENDED.format(payloads="h.args, h.memory, h.progress, h.result, h.trail")
END = _ENDED.format(
    payloads="""'null' as args, null::text as memory, null::text as progress,
    case when h.fits then h.result end as result,
    case when h.fits and h.state <> 'done' then h.trail end as trail"""
)
"""The columns that a caller waiting for a task gets. They can be selected from a subquery, too."""
WORKER = """w.incarnation, w.label, w.host, w.pid, w.queues, w.slots, w.version, w.started_at, w.beat_at,
    extract(epoch from clock_timestamp() - w.beat_at)::float8 as beat_age_s,
    w.stopped_at is null and w.beat_at >= clock_timestamp() - w.lease_s * interval '1 second' as is_alive,
    w.stopped_at, w.names"""

_decode = msgspec.json.decode


def task_info(row: Any) -> TaskInfo:
    """Make a task from the columns of LIVE or ENDED."""
    return TaskInfo(
        id=row[0],
        kind=row[1],
        name=row[2],
        queue=row[3],
        key=row[4],
        state=row[5],
        priority=-row[6],
        attempt=row[7],
        rescues=row[8],
        created_at=row[9],
        due_at=row[10],
        started_at=row[11],
        ended_at=row[12],
        deadline_at=row[13],
        worker=row[14],
        incarnation=row[15],
        cancel_requested=row[16],
        args=_decoded(row[17]),
        memory=_decoded(row[18]),
        progress=_decoded(row[19]),
        result=_decoded(row[20]),
        trail=tuple(_decode(entry) for entry in row[21] or ()),
        limit=None if row[22] is None else Limit(row[22], row[23], row[24], row[25] or 0.0),
        then_id=row[26],
        takes=row[27],
        blockers=row[28],
        version=row[29],
    )


def worker_info(row: Any, running: int, has_more: bool) -> WorkerInfo:
    """Make a worker from the columns of WORKER."""
    return WorkerInfo(
        incarnation=row[0],
        label=row[1],
        host=row[2],
        pid=row[3],
        queues=tuple(row[4]),
        slots=row[5],
        version=row[6],
        started_at=row[7],
        beat_at=row[8],
        beat_age_s=row[9],
        is_alive=row[10],
        stopped_at=row[11],
        running=running,
        names=None if row[12] is None else tuple(row[12]),
        has_more_running=has_more,
    )


def _decoded(text: str | None) -> Any:
    return None if text is None else _decode(text)
