"""Enqueue: one by one against bare single-row inserts, many callers at once, and in bulk."""

import tempfile
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

from bench.arm import Answer, Arm, Process
from bench.drain import measured_file
from bench.report import Ratio, Report, compared
from bench.rounds import Samples, interleaved
from bench.server import Server, postgres

SIZES = [1_000, 5_000]
COUNTS: dict[str, Any] = {"one": 1_000, "callers": 50, "callers_jobs": 20_000, "many": 20_000, "sizes": SIZES}
QUICK_COUNTS: dict[str, Any] = {**COUNTS, "one": 400, "callers_jobs": 5_000, "many": 10_000}
ROUNDS, QUICK_ROUNDS = 5, 2
FIGURES = ("one", "callers", *(f"many_{size}" for size in SIZES))

NOTES = [
    (
        "One by one: the next call when the one before is committed. Bare: one `insert … returning id` each, on a "
        "plain table with the same columns, and on everpoll's own. No worker is running; every system notifies as "
        "they do by default."
    ),
    "In bulk: calls of 1,000 and of 5,000; the ratio compares the better of each. Plain asyncio for all.",
]


def run(quick: bool) -> Report:
    """Measure all systems on Postgres, and everpoll and bare on SQLite."""
    counts, rounds = (QUICK_COUNTS, QUICK_ROUNDS) if quick else (COUNTS, ROUNDS)
    options = {"bench": "enqueue", **counts}
    with ExitStack() as until:
        server = until.enter_context(postgres())
        folder = Path(until.enter_context(tempfile.TemporaryDirectory(prefix="everpoll-bench-")))
        pg = interleaved("enqueue on Postgres", _on_postgres(options), rounds, lambda arm: measured(server, arm), "one")
        lite = interleaved(
            "enqueue on SQLite", _on_sqlite(options), rounds, lambda arm: measured_file(folder, arm), "one"
        )
    report = Report("enqueue", "Enqueue, jobs/s", ("", "one by one", "50 callers", "calls of 1,000", "calls of 5,000"))
    for samples in (pg, lite):
        report.rows += [(name, *(_figure(samples.of(name, one)) for one in FIGURES)) for name in samples.answers]
        report.notes += samples.failures
    report.ratios = [*_ratios(pg, ""), *_ratios(lite, "SQLite: ")]
    bulk = [max(pairs) for pairs in zip(*(pg.of("pgqueuer", f"many_{size}") for size in SIZES), strict=True)]
    ours = [max(pairs) for pairs in zip(*(pg.of("everpoll", f"many_{size}") for size in SIZES), strict=True)]
    report.ratios.insert(2, compared("enqueue_many / pgqueuer's bulk", ours, bulk, at_least=2))
    report.notes += [*NOTES, f"Postgres: {pg.noisy}; SQLite: {lite.noisy}."]
    report.samples = {"postgres": pg.answers, "sqlite": lite.answers}
    return report


def _on_postgres(options: dict[str, Any]) -> list[Arm]:
    return [
        Arm("bare, plain table", "everpoll", "bare_postgres", {**options, "table": "plain"}),
        Arm("everpoll", "everpoll", "everpoll", options),
        Arm("pgqueuer", "pgqueuer", "pgqueuer", options),
        Arm("bare, own table", "everpoll", "bare_postgres", {**options, "table": "own"}),
        Arm("procrastinate", "procrastinate", "procrastinate", {**options, "one": options["one"] // 4, "sizes": []}),
    ]


def _on_sqlite(options: dict[str, Any]) -> list[Arm]:
    bare = {**options, "synchronous": "full"}
    return [
        Arm("SQLite: bare, plain table", "everpoll", "bare_sqlite", {**bare, "table": "plain"}),
        Arm("SQLite: everpoll", "everpoll", "everpoll", options),
        Arm("SQLite: bare, own table", "everpoll", "bare_sqlite", {**bare, "table": "own"}),
    ]


def _ratios(samples: Samples, store: str) -> list[Ratio]:
    ours, bare = f"{store}everpoll", samples.of(f"{store}bare, plain table", "one")
    prefix = f"enqueue, {store}" if store else "enqueue, Postgres: "
    return [
        compared(f"{prefix}one by one / bare inserts", samples.of(ours, "one"), bare, at_least=0.8),
        compared(f"{prefix}50 callers / bare inserts", samples.of(ours, "callers"), bare, at_least=3),
        compared(
            f"{prefix}one by one / bare inserts, own table",
            samples.of(ours, "one"),
            samples.of(f"{store}bare, own table", "one"),
        ),
    ]


def measured(server: Server, arm: Arm) -> Answer:
    """All ways of enqueueing, into a fresh database."""
    with server.database() as url, Process(arm, url=url) as process:
        answer = process.answer()
        answer["quiet"] = process.quiet_starts
    return answer


def _figure(taken: list[float]) -> str:
    return f"{median(taken):,.0f}" if taken else "-"
