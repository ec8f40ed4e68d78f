"""Lists: how long a person waits for a page of tasks beside a million ended and a hundred thousand live ones.

A tenth of the ended tasks failed, with one of 20 classes of errors; 50 names, 5 queues, 30 days. Beside them, 10,000
live and as many ended runs, 2,000 services with a day of looks, 3,000 past incidents and open ones of each failed
service, 100,000 events, and a fleet of 8 workers with its figures of 90 days: every list, detail and series call over
HTTP.
"""

import asyncio
import random
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import asyncpg

from bench.database import Database
from bench.event_filling import fill_events
from bench.figure_filling import fill_figures, fill_fleet
from bench.incident_filling import fill_incidents, past_incidents
from bench.progress import Progress
from bench.report import Ratio, Report
from bench.run_filling import add_schedules, fill_runs
from bench.served_lists import Answers, calls, measured
from bench.server import postgres
from bench.service_filling import fill_services
from everpoll import Everpoll
from everpoll.stores.contract import TaskFilter

DAYS = 30
LIMIT_MS = 50.0
APART = 4
"""Between the ids of two jobs there is room for ended runs and past incidents of the same time."""


@dataclass(frozen=True)
class Size:
    """How much there is of everything, and how often each page is read."""

    ended: int = 1_000_000
    live: int = 100_000
    runs: int = 10_000
    """Live ones, and as many ended ones."""
    services: int = 2_000
    incidents: int = 3_000
    """Past ones."""
    events: int = 100_000
    workers: int = 8
    reads: int = 40


QUICK = Size(ended=100_000, live=10_000, runs=1_000, services=200, incidents=300, events=10_000, workers=2, reads=10)

SQLITE_ENDED = """with recursive n(i) as (select 1 union all select i + 1 from n where i < :ended)
    insert into everpoll_history (id, ended_at, state, due_at, created_at, owner, started_at, sequence, rank, attempt,
        rescues, version, was_leased, cancel_requested, cancels_itself, indexed, kind, queue, name, args, trail, result,
        error_type)
    select i * :apart, :start + i * :step + 1000000, iif(i % 10 = 0, 'failed', 'done'), :start + i * :step,
        :start + i * :step, 1, :start + i * :step, 1, 0, 1, 0, 1, 1, 0, 0, 0, 'job', 'queue' || (i % 5),
        'job' || (i % 50),
        '{"args":["https://example.com/' || i || '"],"kwargs":{"user":' || (i % 1000) || '}}',
        iif(i % 10 = 0, '[{"at":1.0,"what":"failed","error":"x","type":"Error' || (i / 10 % 20) || '"}]', null),
        '{"ok":true}', iif(i % 10 = 0, 'Error' || (i / 10 % 20), null) from n"""
SQLITE_LIVE = """with recursive n(i) as (select 1 union all select i + 1 from n where i < :live)
    insert into everpoll_tasks (id, due_at, created_at, rank, version, line, kind, queue, name, args, error_type)
    select (:ended + i) * :apart, :now + 86400000000, :now - (:live - i) * 1000, 0, 1, 1, 'job', 'queue' || (i % 5),
        'job' || (i % 50), '{"args":["https://example.com/' || i || '"],"kwargs":{"user":' || (i % 1000) || '}}',
        iif(i % 100 = 0, 'Error' || (i / 100 % 20), null) from n"""
POSTGRES_ENDED = """insert into everpoll.history (id, ended_at, due_at, created_at, owner, started_at, sequence, rank,
        attempt, rescues, version, cancel_requested, cancels_itself, indexed, state, kind, queue, name, args, trail,
        result, error_type)
    select i * $3::bigint, at + interval '1 second', at, at, 1, at, 1, 0, 1, 0, 1, false, false, false,
        case when i % 10 = 0 then 'failed' else 'done' end, 'job', 'queue' || (i % 5), 'job' || (i % 50),
        '{"args":["https://example.com/' || i || '"],"kwargs":{"user":' || (i % 1000) || '}}',
        case when i % 10 = 0
             then array['{"at":1.0,"by":"w","what":"failed","error":"x","type":"Error' || (i / 10 % 20) || '"}'] end,
        '{"ok":true}', case when i % 10 = 0 then 'Error' || (i / 10 % 20) end
    from generate_series(1, $1::bigint) i
    cross join lateral (select now() - ($1 - i) * ($2::float8 / $1) * interval '1 second' as at) moment"""
POSTGRES_LIVE = """insert into everpoll.tasks (id, due_at, created_at, line, kind, queue, name, args, error_type)
    select ($1::bigint + i) * $3::bigint, now() + interval '1 day', now() - ($2 - i) * interval '1 millisecond', 1,
        'job', 'queue' || (i % 5), 'job' || (i % 50),
        '{"args":["https://example.com/' || i || '"],"kwargs":{"user":' || (i % 1000) || '}}',
        case when i % 100 = 0 then 'Error' || (i / 100 % 20) end from generate_series(1, $2::bigint) i"""
PARTITION = """create table everpoll.history_{day:%Y%m%d} partition of everpoll.history
    for values from ('{day:%Y-%m-%d} 00:00+00') to ('{next:%Y-%m-%d} 00:00+00')"""


def filters(rng: random.Random) -> dict[str, TaskFilter]:
    """What people ask for, rare and frequent."""
    until = datetime.now(UTC) - timedelta(days=rng.uniform(1, DAYS - 2))
    since = until - timedelta(hours=1)
    error = f"Error{rng.randrange(20)}"
    return {
        "everything": TaskFilter(),
        "state": TaskFilter(state="failed"),
        "queued": TaskFilter(state="queued"),
        "running, none": TaskFilter(state="running"),
        "name": TaskFilter(name=f"job{rng.randrange(50)}"),
        "name and queue, none": TaskFilter(name="job1", queue="nowhere"),
        "error": TaskFilter(error=error),
        "error, none": TaskFilter(error="NoSuchError"),
        "error, state and name": TaskFilter(error=error, state="failed", name="job10"),
        "retrying": TaskFilter(is_retrying=True),
        "text, none": TaskFilter(q="no such text"),
        "member": TaskFilter(q=f"user:{rng.randrange(1000)}"),
        "an hour": TaskFilter(since=since, until=until),
        "an hour, name and text": TaskFilter(since=since, until=until, name="job7", q="user:7"),
        "since": TaskFilter(since=until, name="nothing"),
    }


def run(quick: bool) -> Report:
    """Both stores."""
    size = QUICK if quick else Size()
    title = f"Pages beside {size.ended:,} ended and {size.live:,} live jobs, {size.runs:,} runs"
    report = Report("lists", f"{title} and {size.services:,} services", ("", "SQLite", "Postgres"))
    found: dict[str, dict[str, Answers]] = {}
    with ExitStack() as until:
        path = Path(until.enter_context(tempfile.TemporaryDirectory(prefix="everpoll-bench-"))) / "tasks.db"
        found["SQLite"] = _found(Database(f"sqlite:///{path}", path), size)
        with until.enter_context(postgres()).database() as url:
            found["Postgres"] = _found(Database(url, None), size)
    for name in found["SQLite"]:
        report.rows.append((name, *(_shown(answers[name]) for answers in found.values())))
        for store, answers in found.items():
            p95_ms = _p95(answers[name].times_ms)
            report.ratios.append(Ratio(f"{store}: {name}, p95 ms", p95_ms, at_most=LIMIT_MS))
    report.notes += [
        "Median and p95 of one page, one client; pages of the store have 50 tasks, each with other values.",
        "CPU: the median of what the process of the server computed for a call, which a busy machine changes little.",
    ]
    return report


def _shown(answers: Answers) -> str:
    shown = f"{statistics.median(answers.times_ms):.1f} / {_p95(answers.times_ms):.1f} ms"
    return f"{shown}, CPU {statistics.median(answers.cpu_ms):.1f}" if answers.cpu_ms else shown


def _p95(values: list[float]) -> float:
    return statistics.quantiles(values, n=20)[-1]


def _found(database: Database, size: Size) -> dict[str, Answers]:
    """Fill one store, and measure it: by itself, and behind a server."""
    steps = _Steps("Postgres" if database.path is None else "SQLite")
    times, paths = asyncio.run(_of_store(database, size, steps))
    with steps.step(f"{len(paths)} calls over HTTP"):
        return times | {f"GET {path}": found for path, found in measured(database.url, paths, size.reads).items()}


class _Steps:
    """Tells what is under way, and how long it took."""

    def __init__(self, store: str) -> None:
        self._progress = Progress("lists")
        self._store = store

    @contextmanager
    def step(self, what: str) -> Iterator[None]:
        """One step."""
        began = time.monotonic()
        self._progress.begin(f"{self._store}: {what}")
        yield
        self._progress.end(f"{time.monotonic() - began:.1f} s")


async def _of_store(database: Database, size: Size, steps: _Steps) -> tuple[dict[str, Answers], list[str]]:
    app = Everpoll(database.url)
    try:
        names, run_name = await _filled(app, database, size, steps)
        store = await app.store()
        rng = random.Random(1)
        times: dict[str, Answers] = {}
        with steps.step("pages of tasks"):
            for _ in range(size.reads):
                for name, wanted in filters(rng).items():
                    began = time.perf_counter()
                    await store.tasks(wanted)
                    times.setdefault(name, Answers()).times_ms.append((time.perf_counter() - began) * 1_000)
        return times, calls(names[len(names) // 2], run_name, (size.ended - 10) * APART)
    finally:
        await app.close()


async def _filled(app: Everpoll, database: Database, size: Size, steps: _Steps) -> tuple[list[str], str]:
    """Fill the database of an app; return the names of its services, and that of a run."""
    await app.store()
    first = 2 * (size.ended + size.live) * APART
    with steps.step(f"{size.ended:,} ended and {size.live:,} live jobs"):
        if database.path is None:
            await _fill_postgres(database.url, size.ended, size.live)
        else:
            await asyncio.to_thread(fill_sqlite, database.path, size.ended, size.live, APART)
    with steps.step(f"{size.runs:,} live and {size.runs:,} ended runs"):
        add_schedules(app)
        run_name = await fill_runs(app, database, size.runs, first, _between(size, size.runs, 1), DAYS)
    with steps.step(f"{size.services:,} services"):
        names, opened = await fill_services(app, size.services, database.path)
    with steps.step(f"{len(opened):,} open and {size.incidents:,} past incidents"):
        past = past_incidents(database, _between(size, size.incidents, 2), names, DAYS)
        await fill_incidents(database, opened, past, 2 * first)
    with steps.step(f"{size.events:,} events"):
        await fill_events(database, size.events, names, size.runs)
    with steps.step(f"the figures of {size.workers} workers"):
        await fill_fleet(database, size.workers)
        await fill_figures(database, size.workers)
    with steps.step("statistics"):
        await database.settle_down()
    return names, run_name


def _between(size: Size, count: int, place: int) -> list[int]:
    """Return ids between those of the ended jobs, as far apart."""
    return [(number * size.ended // count + 1) * APART + place for number in range(count)]


def fill_sqlite(path: Path, ended: int, live: int, apart: int = 1) -> None:
    """Fill a database that has no tasks yet; the ids of its jobs are so far apart."""
    now = round(time.time() * 1e6)
    span_us = DAYS * 86_400 * 1_000_000
    bound: dict[str, Any] = {"ended": ended, "live": live, "now": now, "apart": apart}
    bound |= {"start": now - span_us, "step": span_us // ended}
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(SQLITE_ENDED, bound)
        connection.execute(SQLITE_LIVE, bound)


async def _fill_postgres(url: str, ended: int, live: int) -> None:
    connection = await asyncpg.connect(url)
    try:
        today = datetime.now(UTC)
        for ago in range(1, DAYS + 1):
            day = today - timedelta(days=ago)
            await connection.execute(PARTITION.format(day=day, next=day + timedelta(days=1)))
        await connection.execute(POSTGRES_ENDED, ended, DAYS * 86_400.0, APART)
        await connection.execute(POSTGRES_LIVE, ended, live, APART)
        await connection.execute(
            "select setval(pg_get_serial_sequence('everpoll.tasks', 'id'), $1)", (ended + live) * APART
        )
        await connection.execute("vacuum analyze everpoll.history")
        await connection.execute("vacuum analyze everpoll.tasks")
    finally:
        await connection.close()
