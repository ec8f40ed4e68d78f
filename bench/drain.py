"""Drain: how fast one worker process runs jobs that are all there already.

The clock runs from when the first job is in hand to when the last one is settled in the database. Every competitor
fills its own fresh database through its own way in; it is vacuumed and analyzed before the start.
"""

import tempfile
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

from bench.arm import Answer, Arm, Process
from bench.quiet import process_cpu_s
from bench.report import Report, compared
from bench.rounds import Samples, interleaved
from bench.server import Server, postgres

JOBS, QUICK_JOBS = 60_000, 20_000
ROUNDS, QUICK_ROUNDS = 5, 2
# A rate is a rate: these two take one statement or more a job, and 60,000 of them would take minutes a round.
PROCRASTINATE_JOBS, HUEY_JOBS = 1_000, 4_000

NOTES = [
    (
        "One worker process; Postgres with synchronous_commit=on and fsync=on; no-op async job, 100 bytes of "
        "arguments; a fresh database each time, vacuumed and analyzed after it was filled; rounds interleaved, "
        "medians."
    ),
    (
        "Targets are judged on plain asyncio, which is what everpoll installs; rows under uvloop are for comparison. "
        "The clock starts for every arm when its first jobs are in hand."
    ),
    "Beside HTTP: an HTTP server with metrics is in the same process, started before the clock; no client asks it.",
    "everpoll keeps history (each job is moved to it); the bare references delete and keep nothing.",
    (
        "`plain`: a table with the same columns as one would write it down; `own`: everpoll's own table, indexes "
        "and fill factor. Both lease 500 and delete 500 on one connection."
    ),
    (
        "pgqueuer: batch 1,000 on one connection, under uvloop, logging and statistics at their defaults. "
        f"procrastinate: concurrency 50, pool of 4 to 20, {PROCRASTINATE_JOBS:,} jobs. huey: one thread (its "
        f"best), plain function, {HUEY_JOBS:,} jobs, cache 16 MB; fsync=True is synchronous=FULL, fsync=False is "
        "synchronous=OFF: it may lose and corrupt what it acknowledged."
    ),
    "SQLite: WAL, synchronous=FULL unless said otherwise; same pragmas for the bare reference.",
]


def run(quick: bool) -> Report:
    """Both databases, every arm."""
    jobs, rounds = (QUICK_JOBS, QUICK_ROUNDS) if quick else (JOBS, ROUNDS)
    with ExitStack() as until:
        server = until.enter_context(postgres())
        folder = Path(until.enter_context(tempfile.TemporaryDirectory(prefix="everpoll-bench-")))
        version = server.version()
        on_postgres = interleaved("drain on Postgres", _on_postgres(jobs), rounds, lambda arm: measured(server, arm))
        on_sqlite = interleaved("drain on SQLite", _on_sqlite(jobs), rounds, lambda arm: measured_file(folder, arm))
    report = Report(
        "drain", f"Drain of {jobs:,} jobs (Postgres {version})", ("", "jobs/s", "Python µs/job", "Postgres µs/job")
    )
    for samples in (on_postgres, on_sqlite):
        for name in samples.answers:
            report.rows.append((name, *(_figure(samples, name, one) for one in ("rate", "python_us", "server_us"))))
        report.notes += samples.failures
    report.ratios = _ratios(on_postgres, on_sqlite)
    report.notes += [*NOTES, f"Postgres: {on_postgres.noisy}; SQLite: {on_sqlite.noisy}."]
    report.samples = {"postgres": on_postgres.answers, "sqlite": on_sqlite.answers}
    return report


def _on_postgres(jobs: int) -> list[Arm]:
    def bare(name: str, **options: Any) -> Arm:
        return Arm(name, "everpoll", "bare_postgres", {"bench": "drain", "jobs": jobs, **options})

    def everpoll(name: str, **options: Any) -> Arm:
        return Arm(name, "everpoll", "everpoll", {"bench": "drain", "jobs": jobs, **options})

    batch = {"bench": "drain", "jobs": jobs, "batch": 1_000, "loop": "uvloop"}
    slow = {"bench": "drain", "jobs": PROCRASTINATE_JOBS, "concurrency": 50}
    return [
        bare("bare, plain table", table="plain"),
        everpoll("everpoll, 1,000 slots", slots=1_000),
        Arm("pgqueuer", "pgqueuer", "pgqueuer", batch),
        bare("bare, plain table, uvloop", table="plain", loop="uvloop"),
        everpoll("everpoll, 1,000 slots, uvloop", slots=1_000, loop="uvloop"),
        bare("bare, own table", table="own"),
        everpoll("everpoll, 50 slots (default)"),
        everpoll("everpoll, 1,000 slots, beside HTTP", slots=1_000, serves=True),
        bare("bare, own table, uvloop", table="own", loop="uvloop"),
        Arm("procrastinate", "procrastinate", "procrastinate", slow),
    ]


def _on_sqlite(jobs: int) -> list[Arm]:
    def bare(name: str, table: str, synchronous: str) -> Arm:
        options = {"bench": "drain", "jobs": jobs, "table": table, "synchronous": synchronous}
        return Arm(name, "everpoll", "bare_sqlite", options)

    def everpoll(name: str, **options: Any) -> Arm:
        return Arm(name, "everpoll", "everpoll", {"bench": "drain", "jobs": jobs, **options})

    def huey(name: str, *, fsync: bool) -> Arm:
        return Arm(name, "huey", "huey", {"bench": "drain", "jobs": HUEY_JOBS, "fsync": fsync})

    return [
        bare("SQLite: bare, plain table", "plain", "full"),
        everpoll("SQLite: everpoll, 1,000 slots", slots=1_000),
        bare("SQLite: bare, own table", "own", "full"),
        huey("SQLite: huey, fsync=True", fsync=True),
        everpoll("SQLite: everpoll, 50 slots (default)"),
        everpoll("SQLite: everpoll, 1,000 slots, beside HTTP", slots=1_000, serves=True),
        bare("SQLite: bare, plain table, NORMAL", "plain", "normal"),
        everpoll("SQLite: everpoll, 1,000 slots, NORMAL", slots=1_000, query="?synchronous=normal"),
        huey("SQLite: huey, fsync=False", fsync=False),
    ]


def _ratios(pg: Samples, lite: Samples) -> list[Any]:
    ours, ours_uv = pg.of("everpoll, 1,000 slots"), pg.of("everpoll, 1,000 slots, uvloop")
    ours_lite, default_lite = lite.of("SQLite: everpoll, 1,000 slots"), lite.of("SQLite: everpoll, 50 slots (default)")
    return [
        compared("drain, Postgres: everpoll / pgqueuer", ours, pg.of("pgqueuer"), at_least=2.5),
        compared("drain, Postgres: everpoll / bare, plain table", ours, pg.of("bare, plain table"), at_least=0.75),
        compared("both under uvloop: everpoll / bare, plain table", ours_uv, pg.of("bare, plain table, uvloop")),
        compared("beside an idle HTTP server / without", pg.of("everpoll, 1,000 slots, beside HTTP"), ours),
        compared("everpoll / bare, own table", ours, pg.of("bare, own table")),
        compared("both under uvloop: everpoll / bare, own table", ours_uv, pg.of("bare, own table, uvloop")),
        compared("everpoll, 50 slots / pgqueuer", pg.of("everpoll, 50 slots (default)"), pg.of("pgqueuer")),
        compared("everpoll / procrastinate", ours, pg.of("procrastinate")),
        compared(
            "drain, SQLite: everpoll / huey, both FULL", ours_lite, lite.of("SQLite: huey, fsync=True"), at_least=10
        ),
        compared(
            "drain, SQLite: everpoll / bare, plain table", ours_lite, lite.of("SQLite: bare, plain table"), at_least=0.6
        ),
        compared(
            "SQLite: beside an idle HTTP server / without",
            lite.of("SQLite: everpoll, 1,000 slots, beside HTTP"),
            ours_lite,
        ),
        compared("everpoll / bare, own table", ours_lite, lite.of("SQLite: bare, own table")),
        compared(
            "both NORMAL: everpoll / bare, plain table",
            lite.of("SQLite: everpoll, 1,000 slots, NORMAL"),
            lite.of("SQLite: bare, plain table, NORMAL"),
        ),
        compared("everpoll FULL / huey, fsync=False", ours_lite, lite.of("SQLite: huey, fsync=False")),
        compared("50 slots: everpoll / huey, both FULL", default_lite, lite.of("SQLite: huey, fsync=True")),
        compared("50 slots: everpoll / bare, plain table", default_lite, lite.of("SQLite: bare, plain table")),
    ]


def measured(server: Server, arm: Arm) -> Answer:
    """One drain of a fresh database."""
    with server.database() as url, Process(arm, url=url) as process:
        process.ready()
        server.order("vacuum analyze", url)
        process.our_cpu_s = lambda: process_cpu_s(process.pid) + server.cpu_s()
        cpu_s = server.cpu_s()
        process.send_off()
        answer = {**process.answer(), "foreign": process.foreign_share()}
        answer["server_us"] = (server.cpu_s() - cpu_s) / arm.options["jobs"] * 1e6
        answer["quiet"] = process.quiet_starts
    return answer


def measured_file(folder: Path, arm: Arm) -> Answer:
    """The same with a fresh file."""
    path = folder / "bench.db"
    with Process(arm, url=f"sqlite:///{path}{arm.options.get('query', '')}", path=str(path)) as process:
        answer = {**process.answer(), "foreign": process.foreign_share(), "quiet": process.quiet_starts}
    for file in folder.glob("bench.db*"):
        file.unlink()
    return answer


def _figure(samples: Samples, arm: str, figure: str) -> str:
    taken = samples.of(arm, figure)
    if not taken:
        return "-"
    return f"{median(taken):,.0f}" if figure == "rate" else f"{median(taken):.1f}"
