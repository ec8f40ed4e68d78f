"""Flows in Postgres: enqueues the tasks of a flow together, and finds the tasks that a task waits for.

Promises: all or none, in one transaction, in statements of at most CHUNK rows and STATEMENT_BYTES. The ids are given
first, in the order of the call, so that tasks of one statement can lead to those of another.
"""

# ruff: noqa: S608 - only the column lists of this package are put into SQL

from collections.abc import Sequence
from typing import Any

from everpoll.drivers.postgres.lane import Connection, Lane
from everpoll.stores.contract import Enqueued, TaskInfo, TaskState
from everpoll.stores.flows import BLOCKED_LINE, FlowTask, blockers_of, check_flow
from everpoll.stores.limits import checked_bytes, in_portions, task_bytes
from everpoll.stores.postgres import reading
from everpoll.stores.postgres.enqueueing import CHUNK, limit_columns
from everpoll.stores.postgres.functions import versioned

# A key that an open transaction has is waited for, but not for long: a lane has few connections.
IDS = """select array(select nextval('everpoll.tasks_id_seq') from generate_series(1, $1::int)),
    set_config('lock_timeout', '300ms', true)"""
# Keys in their own order, so that two flows with the same keys cannot deadlock.
INSERT = f"""with put as (
    insert into everpoll.tasks (id, created_at, due_at, line, queue, name, rank, args, timeout_s, kind, version, memory,
        key, indexed, then_id, takes, blockers, limit_key, limit_running, limit_starts, limit_per_s)
    select u.id, statement_timestamp(), statement_timestamp() + u.delay_s * interval '1 second',
           case when u.blockers > 0 then {BLOCKED_LINE} when u.delay_s > 0 then 1 when u.limit_key is null then 0
                else 3 end,
           u.queue, u.name, u.rank, u.args, u.timeout_s, u.kind, u.version, u.memory, u.key, u.indexed, u.then_id,
           u.takes, u.blockers, u.limit_key, u.limit_running, u.limit_starts, u.limit_per_s
      from unnest($1::bigint[], $2::float8[], $3::text[], $4::text[], $5::int[], $6::text[], $7::float8[], $8::text[],
               $9::int[], $10::text[], $11::text[], $12::boolean[], $13::bigint[], $14::text[], $15::int[],
               $16::text[], $17::int[], $18::int[], $19::float8[])
           u(id, delay_s, queue, name, rank, args, timeout_s, kind, version, memory, key, indexed, then_id, takes,
             blockers, limit_key, limit_running, limit_starts, limit_per_s)
     order by u.key collate "C", u.kind collate "C", u.id
    on conflict (key, kind) where key is not null do nothing returning id)
    select count(*) from put"""
HOLDERS = "select t.kind, t.key, t.id from everpoll.tasks t where t.key = any($1::text[])"
MEMBER_IDS = versioned("select everpoll.member_ids($1, $2, $3)")
COUNTS = versioned("select state, tasks from everpoll.member_counts($1)")


async def enqueue(lane: Lane, flow: Sequence[FlowTask]) -> list[Enqueued]:
    """Enqueue all tasks of the flow, or none of them if a key is taken."""
    check_flow(flow)
    checked_bytes([one.task for one in flow])
    while True:
        answers = await lane.call(lambda connection: _put(connection, flow))
        if any(one.id for one in answers):
            return answers
        # The task that had the key has ended between the two statements.


async def _put(connection: Connection, flow: Sequence[FlowTask]) -> list[Enqueued]:
    try:
        async with connection.transaction():
            ids = await connection.fetchval(IDS, len(flow))
            blockers = blockers_of(flow)
            rows = [_row(ids, place, one, blockers[place]) for place, one in enumerate(flow)]
            for portion in in_portions(rows, [task_bytes(one.task) for one in flow], CHUNK):
                if await connection.fetchval(INSERT, *zip(*portion, strict=True)) < len(portion):
                    raise _KeysTaken
    except _KeysTaken:
        return await _taken(connection, flow)
    return [Enqueued(task_id) for task_id in ids]


class _KeysTaken(Exception):
    """Raised to roll back the inserted tasks: a key is taken."""


def _row(ids: Sequence[int], place: int, one: FlowTask, blockers: int) -> tuple[Any, ...]:
    task = one.task
    return (
        ids[place],
        max(0.0, task.delay_s),
        task.queue,
        task.name,
        -task.priority,
        task.args,
        task.timeout_s,
        task.kind,
        task.version,
        task.memory,
        task.key,
        task.indexed,
        None if one.then is None else ids[one.then],
        one.takes,
        blockers,
        *limit_columns(task),
    )


async def _taken(connection: Connection, flow: Sequence[FlowTask]) -> list[Enqueued]:
    keys = [one.task.key for one in flow if one.task.key is not None]
    holders = {(kind, key): task_id for kind, key, task_id in await connection.fetch(HOLDERS, keys)}
    return [Enqueued(holders.get((one.task.kind, one.task.key), 0), is_new=False) for one in flow]


async def members(lane: Lane, task_id: int, after: int, limit: int) -> list[TaskInfo]:
    """Return the tasks that this one waits for, by id, all in one snapshot."""
    found = await reading.info(lane, await lane.value(MEMBER_IDS, task_id, after, limit))
    return list(found.values())


async def member_counts(lane: Lane, task_id: int) -> dict[TaskState, int]:
    """Return how many of the tasks that this one waits for are in each state."""
    return dict(await lane.rows(COUNTS, task_id))
