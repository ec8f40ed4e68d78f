"""Enqueueing: one row by one INSERT, many without keys by one statement of arrays, keys by a function.

Promises: all or none, ids in the order of the call. One statement carries at most CHUNK rows and STATEMENT_BYTES of
payloads; a call that needs several has them in one transaction. A lone plain task costs what a bare INSERT costs;
arrays are as fast as COPY (measured: 3.3 and 3.2 times a peer's bulk insert) and give the ids back.
"""

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

import msgspec

from everpoll.drivers.postgres.lane import Connection, Lane
from everpoll.stores import limits
from everpoll.stores.contract import Enqueued, NewTask
from everpoll.stores.limits import checked_bytes, in_portions, task_bytes
from everpoll.stores.postgres.functions import versioned

CHUNK = 5_000
"""Rows per statement."""

# The notification is part of the inserted row: a SELECT in a CTE that the statement does not read would never run.
_ONE = """insert into everpoll.tasks (queue, name, rank, args, timeout_s, kind) values ($1, $2, $3, $4, $5, $6)
    returning id"""
_LATER = """insert into everpoll.tasks (queue, name, rank, args, timeout_s, kind, version, memory, line, due_at)
    values ($1, $2, $3, $4, $5, $6, $7, $8, case when $9::float8 <= 0 then 0 else 1 end,
            clock_timestamp() + $9::float8 * interval '1 second')
    returning id"""
ONE = (_ONE, _ONE + ", pg_notify('everpoll', '')")
LATER = (_LATER, _LATER + ", pg_notify('everpoll', '')")
ALIKE = """with put as (
    insert into everpoll.tasks (queue, name, rank, args, timeout_s, kind, version, line, due_at)
    select $1, $2, $3, u.args, $4, $5, $6, case when $7::float8 <= 0 then 0 else 1 end,
           clock_timestamp() + $7::float8 * interval '1 second'
      from unnest($8::text[]) u(args) returning id)
    select array_agg(id), case when $9 then pg_notify('everpoll', '') end from put"""
MANY = """with put as (
    insert into everpoll.tasks (queue, name, rank, args, timeout_s, kind, version, memory, line, due_at)
    select u.queue, u.name, u.rank, u.args, u.timeout_s, u.kind, u.version, u.memory,
           case when u.delay_s <= 0 then 0 else 1 end,
           clock_timestamp() + u.delay_s * interval '1 second'
      from unnest($1::text[], $2::text[], $3::int[], $4::text[], $5::float8[], $6::text[], $7::int[], $8::text[],
                  $9::float8[]) u(queue, name, rank, args, timeout_s, kind, version, memory, delay_s) returning id)
    select array_agg(id), case when $10 then pg_notify('everpoll', '') end from put"""
LIMITED = """with put as (
    insert into everpoll.tasks (queue, name, rank, args, timeout_s, kind, version, memory, line, due_at,
        limit_key, limit_running, limit_starts, limit_per_s)
    select u.queue, u.name, u.rank, u.args, u.timeout_s, u.kind, u.version, u.memory,
           case when u.delay_s > 0 then 1 when u.limit_key is null then 0 else 3 end,
           clock_timestamp() + u.delay_s * interval '1 second',
           u.limit_key, u.limit_running, u.limit_starts, u.limit_per_s
      from unnest($1::text[], $2::text[], $3::int[], $4::text[], $5::float8[], $6::text[], $7::int[], $8::text[],
                  $9::float8[], $11::text[], $12::int[], $13::int[], $14::float8[])
           u(queue, name, rank, args, timeout_s, kind, version, memory, delay_s, limit_key, limit_running, limit_starts,
             limit_per_s) returning id)
    select array_agg(id), case when $10 then pg_notify('everpoll', '') end from put"""


def _patience(sql: str) -> tuple[str, str]:
    """Two calls of a function that takes keys: one waits for a key that an open transaction has, one does not.

    A lane has few connections, and a transaction elsewhere may have a key for long: `held_keys` of the engine asks
    again.
    """
    waits = "from (select set_config('lock_timeout', '300ms', true) as said) moment cross join lateral everpoll."
    first = "(case when moment.said <> '' then $1::text[] end,"
    return versioned(sql), versioned(sql.replace("from everpoll.", waits).replace("($1,", first))


KEYED = _patience("""select e.ids, e.are_new, case when $11 then pg_notify('everpoll', '') end
    from everpoll.enqueue_keyed($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) e""")
SPECIAL = _patience("""select e.ids, e.are_new, case when $11 then pg_notify('everpoll', '') end
    from everpoll.enqueue_special($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $12, $13, $14, $15, $16, $17, $18,
        $19, $20, $21, $22, $23) e""")
TOGETHER = _patience("""select e.ids, e.are_new, case when $11 then pg_notify('everpoll', '') end
    from everpoll.enqueue_together($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $12, $13, $14, $15, $16, $17, $18,
        $19, $20, $21, $22, $23, $24) e""")

_shape = attrgetter(
    *("queue", "name", "priority", "timeout_s", "kind", "version", "delay_s"),
    *("memory", "key", "once", "cancels_itself", "indexed", "events", "limit"),
)
PLAIN = (None, None, False, False, False, (), None)


async def enqueue(lane: Lane, tasks: Sequence[NewTask], notify: bool) -> list[Enqueued]:
    """Enqueue the tasks; the last statement carries the notification."""
    size = checked_bytes(tasks)
    if len(tasks) == 1 and _shape(tasks[0])[-6:] == PLAIN[-6:]:
        return [Enqueued((await _one(lane, tasks[0], notify))[0])]
    if len(tasks) <= CHUNK and size <= limits.STATEMENT_BYTES:
        return await lane.call(lambda connection: _many(connection, tasks, notify))

    async def in_chunks(connection: Connection) -> list[Enqueued]:
        async with connection.transaction():
            return await _in_chunks(connection, tasks, notify)

    return await lane.call(in_chunks)


async def enqueue_inside(connection: Connection, tasks: Sequence[NewTask]) -> list[Enqueued]:
    """Enqueue the tasks in the open transaction of the connection; the caller notifies after its commit."""
    checked_bytes(tasks)
    return await _in_chunks(connection, tasks, notify=False)


async def _in_chunks(connection: Connection, tasks: Sequence[NewTask], notify: bool) -> list[Enqueued]:
    chunks = list(in_portions(tasks, [task_bytes(task) for task in tasks], CHUNK))
    answers: list[Enqueued] = []
    for chunk in chunks:
        answers += await _many(connection, chunk, notify and chunk is chunks[-1])
    return answers


async def _one(lane: Lane, task: NewTask, notify: bool) -> Any:
    if task.delay_s <= 0 and task.memory is None and task.version == 1:
        return await lane.row(ONE[notify], task.queue, task.name, -task.priority, task.args, task.timeout_s, task.kind)
    return await lane.row(
        LATER[notify],
        task.queue,
        task.name,
        -task.priority,
        task.args,
        task.timeout_s,
        task.kind,
        task.version,
        task.memory,
        max(0.0, task.delay_s),
    )


async def _many(connection: Connection, tasks: Sequence[NewTask], notify: bool) -> list[Enqueued]:
    shape = _shape(tasks[0])
    if shape[-7:] == PLAIN and all(map(shape.__eq__, map(_shape, tasks))):
        queue, name, priority, timeout_s, kind, version, delay_s, *_ = shape
        args = [task.args for task in tasks]
        row = await connection.fetchrow(
            ALIKE, queue, name, -priority, timeout_s, kind, version, max(0.0, delay_s), args, notify
        )
        return list(map(Enqueued, row[0]))
    queues, names, ranks, argss, delays_s, timeouts_s, kinds, versions, memories, keys = zip(
        *(
            (
                task.queue,
                task.name,
                -task.priority,
                task.args,
                max(0.0, task.delay_s),
                task.timeout_s,
                task.kind,
                task.version,
                task.memory,
                task.key,
            )
            for task in tasks
        ),
        strict=True,
    )
    is_limited = any(task.limit is not None for task in tasks)
    has_keys = any(key is not None for key in keys)
    is_brief = any(task.waits_briefly for task in tasks)
    is_special = any(task.once or task.events or task.cancels_itself or task.indexed or task.unique for task in tasks)
    if is_special or (is_limited and has_keys):
        common = (queues, names, ranks, argss, delays_s, timeouts_s, kinds, versions, memories, keys)
        special = [*common, notify, *_specials(tasks), *_uniques(tasks), *_events(tasks)]
        rejects = [task.unique is not None and task.unique.together for task in tasks]
        if any(rejects):
            row = await connection.fetchrow(TOGETHER[is_brief], *special, rejects)
        else:
            row = await connection.fetchrow(SPECIAL[is_brief], *special)
        return [Enqueued(*answer) for answer in zip(row[0], row[1], strict=True)]
    if has_keys:
        row = await connection.fetchrow(
            KEYED[is_brief], queues, names, ranks, argss, delays_s, timeouts_s, kinds, versions, memories, keys, notify
        )
        return [Enqueued(*answer) for answer in zip(row[0], row[1], strict=True)]
    columns = (queues, names, ranks, argss, timeouts_s, kinds, versions, memories, delays_s)
    if is_limited:
        row = await connection.fetchrow(LIMITED, *columns, notify, *_limits(tasks))
    else:
        row = await connection.fetchrow(MANY, *columns, notify)
    return [Enqueued(task_id) for task_id in row[0]]


def _specials(tasks: Sequence[NewTask]) -> list[list[Any]]:
    """Return the columns that are set for few tasks."""
    return [
        [task.once for task in tasks],
        [task.cancels_itself for task in tasks],
        [task.indexed for task in tasks],
        *_limits(tasks),
    ]


def _uniques(tasks: Sequence[NewTask]) -> list[list[Any] | None]:
    """Return which tasks replace another, and for how long an ended task holds its key; null if no task says so."""
    uniques = [task.unique for task in tasks]
    replaces = [one is not None and one.on_conflict == "replace" for one in uniques]
    windows_s = [None if one is None else one.for_s for one in uniques]
    return [replaces if any(replaces) else None, windows_s if any(windows_s) else None]


def _limits(tasks: Sequence[NewTask]) -> list[list[Any]]:
    """Return the columns of all limits: the keys, how many tasks may run, how many may start, in how many seconds."""
    return [list(column) for column in zip(*map(limit_columns, tasks), strict=True)]


def limit_columns(task: NewTask) -> tuple[Any, ...]:
    """Return the columns of the limit of one task."""
    return (None,) * 4 if task.limit is None else msgspec.structs.astuple(task.limit)


def _events(tasks: Sequence[NewTask]) -> list[list[Any] | None]:
    """Return the events, and for each the index of its task in the call."""
    events = [(place, event.seq, event.body) for place, task in enumerate(tasks, 1) for event in task.events]
    return [list(column) for column in zip(*events, strict=True)] if events else [None, None, None]
