"""Lists: how long a person waits for a page of tasks beside a million ended and a hundred thousand live ones.

A tenth of the ended tasks failed, with one of 20 classes of errors; 50 names, 5 queues, 30 days. Beside them, 10,000
live runs and 2,000 services with a day of looks: every list, detail and series call over HTTP.
"""

import asyncio
import random
import sqlite3
import statistics
import tempfile
import time
from contextlib import ExitStack, closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import asyncpg

from bench.progress import Progress
from bench.report import Ratio, Report
from bench.run_filling import fill_runs
from bench.served_lists import Answers, calls, measured
from bench.server import postgres
from bench.service_filling import fill_services
from everpoll import Everpoll
from everpoll.stores.contract import TaskFilter

ENDED, QUICK_ENDED = 1_000_000, 100_000
LIVE, QUICK_LIVE = 100_000, 10_000
RUNS, QUICK_RUNS = 10_000, 1_000
SERVICES, QUICK_SERVICES = 2_000, 200
READS, QUICK_READS = 40, 10
DAYS = 30
LIMIT_MS = 50.0

SQLITE_ENDED = """with recursive n(i) as (select 1 union all select i + 1 from n where i < :ended)
    insert into everpoll_history (id, ended_at, state, due_at, created_at, owner, started_at, sequence, rank, attempt,
        rescues, version, was_leased, cancel_requested, cancels_itself, indexed, kind, queue, name, args, trail, result,
        error_type)
    select i, :start + i * :step + 1000000, iif(i % 10 = 0, 'failed', 'done'), :start + i * :step, :start + i * :step,
        1, :start + i * :step, 1, 0, 1, 0, 1, 1, 0, 0, 0, 'job', 'queue' || (i % 5), 'job' || (i % 50),
        '{"args":["https://example.com/' || i || '"],"kwargs":{"user":' || (i % 1000) || '}}',
        iif(i % 10 = 0, '[{"at":1.0,"what":"failed","error":"x","type":"Error' || (i / 10 % 20) || '"}]', null),
        '{"ok":true}', iif(i % 10 = 0, 'Error' || (i / 10 % 20), null) from n"""
SQLITE_LIVE = """with recursive n(i) as (select 1 union all select i + 1 from n where i < :live)
    insert into everpoll_tasks (id, due_at, created_at, rank, version, line, kind, queue, name, args, error_type)
    select :ended + i, :now + 86400000000, :now - (:live - i) * 1000, 0, 1, 1, 'job', 'queue' || (i % 5),
        'job' || (i % 50), '{"args":["https://example.com/' || i || '"],"kwargs":{"user":' || (i % 1000) || '}}',
        iif(i % 100 = 0, 'Error' || (i / 100 % 20), null) from n"""
POSTGRES_ENDED = """insert into everpoll.history (id, ended_at, due_at, created_at, owner, started_at, sequence, rank,
        attempt, rescues, version, cancel_requested, cancels_itself, indexed, state, kind, queue, name, args, trail,
        result, error_type)
    select i, at + interval '1 second', at, at, 1, at, 1, 0, 1, 0, 1, false, false, false,
        case when i % 10 = 0 then 'failed' else 'done' end, 'job', 'queue' || (i % 5), 'job' || (i % 50),
        '{"args":["https://example.com/' || i || '"],"kwargs":{"user":' || (i % 1000) || '}}',
        case when i % 10 = 0
             then array['{"at":1.0,"by":"w","what":"failed","error":"x","type":"Error' || (i / 10 % 20) || '"}'] end,
        '{"ok":true}', case when i % 10 = 0 then 'Error' || (i / 10 % 20) end
    from generate_series(1, $1::bigint) i
    cross join lateral (select now() - ($1 - i) * ($2::float8 / $1) * interval '1 second' as at) moment"""
POSTGRES_LIVE = """insert into everpoll.tasks (id, due_at, created_at, line, kind, queue, name, args, error_type)
    select $1::bigint + i, now() + interval '1 day', now() - ($2 - i) * interval '1 millisecond', 1, 'job',
        'queue' || (i % 5), 'job' || (i % 50),
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
    ended, live = (QUICK_ENDED, QUICK_LIVE) if quick else (ENDED, LIVE)
    runs, services = (QUICK_RUNS, QUICK_SERVICES) if quick else (RUNS, SERVICES)
    title = f"Pages beside {ended:,} ended and {live:,} live jobs, {runs:,} runs and {services:,} services"
    report = Report("lists", title, ("", "SQLite", "Postgres"))
    progress = Progress("lists")
    found: dict[str, dict[str, Answers]] = {}
    with ExitStack() as until:
        path = Path(until.enter_context(tempfile.TemporaryDirectory(prefix="everpoll-bench-"))) / "tasks.db"
        progress.begin("SQLite")
        found["SQLite"] = _found(f"sqlite:///{path}", path, quick)
        progress.end()
        progress.begin("Postgres")
        with until.enter_context(postgres()).database() as url:
            found["Postgres"] = _found(url, None, quick)
        progress.end()
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


def _found(url: str, path: Path | None, quick: bool) -> dict[str, Answers]:
    """Fill one store, and measure it: by itself, and behind a server. `path` is that of an SQLite file."""
    reads = QUICK_READS if quick else READS
    times, paths = asyncio.run(_of_store(url, path, quick, reads))
    return times | {f"GET {path}": found for path, found in measured(url, paths, reads).items()}


async def _of_store(url: str, path: Path | None, quick: bool, reads: int) -> tuple[dict[str, Answers], list[str]]:
    ended, live = (QUICK_ENDED, QUICK_LIVE) if quick else (ENDED, LIVE)
    runs, services = (QUICK_RUNS, QUICK_SERVICES) if quick else (RUNS, SERVICES)
    app = Everpoll(url)
    store = await app.store()
    try:
        if path is None:
            await _fill_postgres(url, ended, live)
        else:
            await asyncio.to_thread(fill_sqlite, path, ended, live)
        run_name = await fill_runs(app, runs, 2 * (ended + live), path)
        store = await app.store()
        names = await fill_services(app, services, path)
        rng = random.Random(1)
        times: dict[str, Answers] = {}
        for _ in range(reads):
            for name, wanted in filters(rng).items():
                began = time.perf_counter()
                await store.tasks(wanted)
                times.setdefault(name, Answers()).times_ms.append((time.perf_counter() - began) * 1_000)
        return times, calls(names[len(names) // 2], run_name, ended - 10)
    finally:
        await app.close()


def fill_sqlite(path: Path, ended: int, live: int) -> None:
    """Fill a database that has no tasks yet."""
    now = round(time.time() * 1e6)
    span_us = DAYS * 86_400 * 1_000_000
    bound: dict[str, Any] = {"ended": ended, "live": live, "now": now, "start": now - span_us, "step": span_us // ended}
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
        await connection.execute(POSTGRES_ENDED, ended, DAYS * 86_400.0)
        await connection.execute(POSTGRES_LIVE, ended, live)
        await connection.execute("select setval(pg_get_serial_sequence('everpoll.tasks', 'id'), $1)", ended + live)
        await connection.execute("vacuum analyze everpoll.history")
        await connection.execute("vacuum analyze everpoll.tasks")
    finally:
        await connection.close()
