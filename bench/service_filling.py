"""Fills a store with services: their tasks, with the memory of looks, what they report, and a past of one day."""

import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import asyncpg

from bench.health_filling import Fill, fill_postgres, fill_sqlite
from bench.incident_filling import open_streaks
from everpoll import Everpoll
from everpoll.monitors.control import CALM, Control, write
from everpoll.monitors.definition import Definition
from everpoll.monitors.report import Status
from everpoll.policy.rollup import HealthWord
from everpoll.stores.contract import Store
from everpoll.stores.health import BATCH_LIMIT, NewDependency, NewLook

EVERY_S = 30.0
LOOKS = 60
"""Looks of each service that were really recorded: half an hour …"""
OPEN_S = 120.0
"""… of which the last are not rolled up yet: the upkeep does that every minute."""
REPORTED = 3
"""Dependencies that each service reports; a tenth as many databases as services stand behind them."""
AHEAD_S = 3_600.0
SICK_EVERY = 20
"""Of so many services one is down, and one of its dependencies: both have open incidents."""


async def fill_services(app: Everpoll, count: int, path: Path | None) -> tuple[list[str], list[tuple[str, str]]]:
    """Register services and write what their looks would have left; `path` is that of an SQLite file.

    Return their names, and the open incidents with their services.
    """
    store, now = await app.store(), app.services.wall()
    past = Fill(count, 1, now)
    await app.services.publish([_definition(app, past.names, number) for number in range(count)])
    sick = {name: number % SICK_EVERY == 0 for number, name in enumerate(past.names)}
    controls = {name: _control(name, now, is_sick) for name, is_sick in sick.items()}
    memories = [(write(control), name) for name, control in controls.items()]
    if path is not None:
        with closing(sqlite3.connect(path, timeout=30)) as con, con:
            con.executemany("update everpoll_tasks set memory = ? where kind = 'check' and key = ?", memories)
        fill_sqlite(path, past)
    else:
        connection = await asyncpg.connect(app.url)
        try:
            sql = "update everpoll.tasks set memory = $1 where kind = 'check' and key = $2"
            await connection.executemany(sql, memories)
        finally:
            await connection.close()
        await fill_postgres(app.url, past)
    await _record(store, sick, now)
    after: int | None = 0
    while after is not None:
        after = await store.health.roll_up(now - OPEN_S, after)
    return past.names, [
        (streak.incident, name)
        for name, control in controls.items()
        for streak in (control.streak, *control.dependencies.values())
        if streak.incident is not None
    ]


def _definition(app: Everpoll, names: list[str], number: int) -> Definition:
    target = f"https://host-{number % 200}.internal/health/{number}"
    below = tuple(names[max(0, number - 7) : number : 3])
    return app.services.define(names[number], target, {"every": EVERY_S, "depends_on": below})


def _control(name: str, now: float, is_sick: bool) -> Control:
    born = int(now - 86_400)
    streak, dependencies = open_streaks(name, born, now, "database-0001") if is_sick else (CALM, {})
    return Control(
        born=born,
        streak=streak,
        dependencies=dependencies,
        incidents=2 if is_sick else 0,
        due_at=now + EVERY_S,
        waits="backoff" if is_sick else "interval",
        origin_at=now,
        # Ahead of the clock: no worker looks meanwhile, and a stale service shows less.
        looked_at=now + AHEAD_S,
        judged_at=now + AHEAD_S,
        answered_at=now + AHEAD_S,
        status=Status.DOWN if is_sick else Status.UP,
        changed_at=now - 3_600,
        error="connection refused by the host, port 443, after 3 tries" if is_sick else None,
        http_status=None if is_sick else 200,
        latency_ms=None if is_sick else 31.4,
        every_s=EVERY_S,
    )


async def _record(store: Store, sick: dict[str, bool], now: float) -> None:
    batch: list[NewLook] = []
    for look in _looks(sick, now):
        batch.append(look)
        if len(batch) == BATCH_LIMIT:
            await store.health.record(batch)
            batch = []
    if batch:
        await store.health.record(batch)


def _looks(sick: dict[str, bool], now: float) -> Iterator[NewLook]:
    rng = random.Random(6)
    for place in range(LOOKS):
        at = now - (LOOKS - place) * EVERY_S
        for number, (name, is_sick) in enumerate(sick.items()):
            status: HealthWord = "down" if is_sick else "up"
            yield NewLook(
                service=name,
                at=at,
                status=status,
                span_s=EVERY_S,
                latency_ms=None if is_sick else rng.lognormvariate(3.4, 0.4),
                error="connection refused by the host" if is_sick else None,
                http_status=None if is_sick else 200,
                dependencies=_reported(number, len(sick), status, at) if place == 0 else (),
            )


def _reported(number: int, count: int, status: HealthWord, at: float) -> tuple[NewDependency, ...]:
    behind = {(number * 7 + step) % max(1, count // 10) for step in range(REPORTED)}
    return tuple(
        NewDependency(name=f"database-{one:04}", status=status, changed_at=at, seen_at=at) for one in sorted(behind)
    )
