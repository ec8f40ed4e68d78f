"""Watches: many live runs in one process with 50 slots, each looked at again and again.

Every run is due about every 32 s, so that 100,000 of them make 3,125 looks a second. Lateness is the time from when a
look was due, by the database's clock, to when it is made.
"""

import tempfile
from pathlib import Path

from bench.arm import Arm, Process
from bench.progress import Progress
from bench.report import Ratio, Report
from bench.server import postgres, resident_mb

RUNS, QUICK_RUNS = 100_000, 20_000
FILE_RUNS, QUICK_FILE_RUNS = 10_000, 5_000
EVERY_S = 32.0
LASTS_S, QUICK_LASTS_S = 60.0, 15.0
WARM_S = 40.0


def run(quick: bool) -> Report:
    """Postgres, then SQLite."""
    report = Report(
        "watches",
        "Live watches, one process, 50 slots",
        ("", "runs", "looks/s", "late p50 ms", "late p99 ms", "Python µs/look", "resident MB"),
    )
    lasts_s = QUICK_LASTS_S if quick else LASTS_S
    progress = Progress("watches")
    with postgres() as server, server.database() as url:
        runs = QUICK_RUNS if quick else RUNS
        progress.begin(f"Postgres: {runs:,} live watches for {lasts_s:.0f} s")
        order = {"bench": "watches", "runs": runs, "every_s": EVERY_S, "lasts_s": lasts_s, "warm_s": WARM_S}
        on_postgres = _measured(Arm("Postgres", "everpoll", "watches", order), report, url=url)
        progress.end()
    with tempfile.TemporaryDirectory(prefix="everpoll-bench-") as folder:
        runs = QUICK_FILE_RUNS if quick else FILE_RUNS
        progress.begin(f"SQLite: {runs:,} live watches for {lasts_s:.0f} s")
        order = order | {"runs": runs}
        on_file = _measured(
            Arm("SQLite", "everpoll", "watches", order), report, url=f"sqlite:///{Path(folder) / 'bench.db'}"
        )
        progress.end()
    wanted = (QUICK_RUNS if quick else RUNS) / EVERY_S
    report.ratios = [
        Ratio("watches, Postgres: looks/s of what is due", on_postgres["rate"] / wanted, at_least=0.97),
        Ratio("watches, Postgres: p99 lateness in ms", on_postgres["p99_ms"], at_most=1000),
        Ratio("watches, Postgres: resident MB", on_postgres["mb"], at_most=250),
        Ratio("watches, SQLite: p99 lateness in ms", on_file["p99_ms"], at_most=1000),
    ]
    report.notes.append(
        f"Every run is due about every {EVERY_S:g} s; lateness by the database's clock; the look itself does nothing."
    )
    return report


def _measured(arm: Arm, report: Report, url: str) -> dict[str, float]:
    with Process(arm, url=url) as process:
        process.ready()
        process.send_off()
        answer = process.answer()
        answer["mb"] = resident_mb(process.pid)
    figures = (f"{answer['rate']:,.0f}", f"{answer['p50_ms']:.0f}", f"{answer['p99_ms']:.0f}")
    report.rows.append(
        (arm.name, f"{arm.options['runs']:,}", *figures, f"{answer['python_us']:.0f}", f"{answer['mb']:.0f}")
    )
    return answer
