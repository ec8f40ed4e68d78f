"""Enqueues and completes tasks in a transaction of the caller: one statement each, which every driver can run."""

from collections.abc import Sequence
from typing import Any

import msgspec

from everpoll.drivers.callers import OtherDatabase, PostgresWork
from everpoll.drivers.postgres.lane import Lane
from everpoll.stores.contract import Ended, Enqueued, Lease, NewTask, encode
from everpoll.stores.limits import checked_bytes
from everpoll.stores.postgres.functions import versioned

PLACE = versioned("select everpoll.place()")
ENQUEUE = versioned("everpoll.enqueue_inside(").removesuffix("(")
COMPLETE = versioned("everpoll.complete_inside(").removesuffix("(")
IS_COMPLETE = """select exists (select from everpoll.history
    where id = $1 and sequence = $2 and owner = $3 and state = 'done')"""


async def place(lane: Lane) -> str:
    """Return what identifies this database."""
    return str(await lane.value(PLACE))


def enqueue(at: str, tasks: Sequence[NewTask]) -> PostgresWork[list[Enqueued]]:
    """Enqueue these tasks."""
    checked_bytes(tasks)
    return PostgresWork(ENQUEUE, (at, encode([_row(task) for task in tasks])), lambda answer: _enqueued(at, answer))


def complete(at: str, incarnation: int, ended: Ended) -> PostgresWork[None]:
    """End a task."""
    what = {"me": incarnation, "id": ended.id, "sequence": ended.sequence, "result": ended.result}
    return PostgresWork(COMPLETE, (at, encode(what)), lambda answer: _completed(at, answer))


async def is_complete(lane: Lane, incarnation: int, lease: Lease) -> bool:
    """Return whether the task has ended as done under this lease."""
    return bool(await lane.value(IS_COMPLETE, lease.id, lease.sequence, incarnation))


def _row(task: NewTask) -> dict[str, Any]:
    limit, unique = task.limit, task.unique
    return {
        "queue": task.queue,
        "name": task.name,
        "rank": -task.priority,
        "args": task.args,
        "delay_s": max(0.0, task.delay_s),
        "timeout_s": task.timeout_s,
        "kind": task.kind,
        "version": task.version,
        "memory": task.memory,
        "key": task.key,
        "indexed": task.indexed,
        "limit_key": None if limit is None else limit.key,
        "limit_running": None if limit is None else limit.running,
        "limit_starts": None if limit is None else limit.starts,
        "limit_per_s": None if limit is None else limit.per_s,
        "replaces": unique is not None and unique.on_conflict == "replace",
        "window_s": None if unique is None else unique.for_s,
        "rejects": unique is not None and unique.together,
    }


def _enqueued(at: str, answer: str) -> list[Enqueued]:
    said = _said(at, answer)
    return [Enqueued(*one) for one in zip(said["ids"], said["are_new"], strict=True)]


def _completed(at: str, answer: str) -> None:
    _said(at, answer)


def _said(at: str, answer: str) -> dict[str, Any]:
    said: dict[str, Any] = msgspec.json.decode(answer)
    if "place" in said:
        here, there = (text.partition(" ")[2] for text in (at, said["place"]))
        raise OtherDatabase(
            f"connection=: it leads to another database, {there!r}, than that of this app, {here!r}; if both have one "
            "name, they are on different servers"
        )
    return said
