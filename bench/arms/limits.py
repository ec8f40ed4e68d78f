"""everpoll with limits: a fleet of processes that drains jobs of many keys, or jobs beside others that wait."""

import asyncio
from itertools import groupby
from typing import Any

import asyncpg

from bench.arms import gate
from bench.arms.fleet import dismissed, followed, led
from everpoll import Everpoll

FILL = 5_000
LEFT = "select exists (select from everpoll.tasks where name = 'noop')"
ENDED = "select count(*) from everpoll.history where name = 'noop'"
RUNS = """select limit_key, extract(epoch from started_at)::float8, extract(epoch from ended_at)::float8
    from everpoll.history where name = 'noop' and limit_key is not null order by limit_key"""


def make(order: gate.Order) -> tuple[Everpoll, Any]:
    """An app with the no-op job; `limit`: so many of each key at a time."""
    app = Everpoll(order["url"], slots=order.get("slots", 50))

    async def noop(_key: str, _text: str, _number: int, _tags: list[str]) -> None: ...

    limits = {} if order.get("limit") is None else {"concurrency": order["limit"], "per": "_key"}
    return app, app.jobs.add(noop, name="noop", **limits)


async def fleet(order: gate.Order) -> None:
    """Fill, then have so many processes drain it together; what was at once is read from the history."""
    app, job = make(order)
    if order.get("waiting"):
        await fill_behind_limit(app, order["waiting"])
    keys = [f"key-{number}" for number in range(order["keys"])]
    calls = [(keys[number % len(keys)], *gate.ARGS) for number in range(order["jobs"])]
    for start in range(0, len(calls), FILL):
        await job.enqueue_many(calls[start : start + FILL])
    await app.close()
    connection = await asyncpg.connect(order["url"])
    found = await led("bench.arms.limits", order, lambda: connection.fetchval(LEFT))
    ran = await connection.fetchval(ENDED)
    assert ran == order["jobs"], ran
    most = _most_at_once([tuple(row) for row in await connection.fetch(RUNS)])
    await connection.close()
    await gate.report(**found, most_at_once=most)
    await dismissed(order)


async def member(order: gate.Order) -> None:
    """One process of the fleet."""
    app, _ = make(order)
    await app.store()
    await followed(lambda: app)


async def fill_behind_limit(app: Everpoll, count: int) -> None:
    """Jobs of another name behind a limit: one of them runs for as long as the benchmark does."""

    async def stuck() -> None:
        await asyncio.Event().wait()

    job = app.jobs.add(stuck, name="stuck", concurrency=1)
    for start in range(0, count, FILL):
        await job.enqueue_many([()] * min(FILL, count - start))
    # Held by a worker that only registers: no other worker declares it dead within the minutes that this takes.
    store = await app.store()
    await store.sign_on(_holder(), 3_600.0)
    assert len((await store.lease(_holder().incarnation, {"default": 500}, 1)).leases) == 1


def _holder() -> Any:
    from everpoll.stores.contract import WorkerCard  # noqa: PLC0415 - only here

    return WorkerCard(incarnation=77, label="holder", host="h", pid=1, queues=("default",), slots=1, version="0")


def _most_at_once(runs: list[tuple[str, float, float]]) -> int:
    """Of one key, how many were running at any instant."""
    most = 0
    for _, of_key in groupby(runs, key=lambda run: run[0]):
        steps = sorted(step for _, began, ended in of_key for step in ((began, 1), (ended, -1)))
        running = 0
        for _, change in steps:
            running += change
            most = max(most, running)
    return most


if __name__ == "__main__":
    gate.main({one.__name__: one for one in (fleet, member)})
