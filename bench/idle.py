"""Idle: what a worker that has nothing to do costs in a minute, all systems side by side.

Statements are counted in the log of the server, by database; BEGIN and COMMIT count. CPU time and resident memory are
those of the worker's process.
"""

import re
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from bench.arm import Arm, ArmFailed, Process
from bench.progress import Progress
from bench.quiet import process_cpu_s
from bench.report import Ratio, Report
from bench.server import LOGGED, Server, postgres, resident_mb

WATCHED_S, QUICK_WATCHED_S = 60.0, 20.0
SETTLED_S = 12.0
OURS, FILE = "everpoll", "SQLite: everpoll"

NOTES = [
    (
        "Workers with push and nothing to do, at their defaults, watched at the same time from 12 s after their start: "
        "what a driver asks once for each connection has been asked by then."
    ),
    "Statements of SQLite are not counted: its PRAGMA data_version is not a statement that other connections notice.",
]


def run(quick: bool) -> Report:
    """Measure all systems at once: idle workers do not disturb each other."""
    watched_s = QUICK_WATCHED_S if quick else WATCHED_S
    report = Report("idle", "An idle worker, a minute", ("", "statements", "CPU seconds", "resident MB", "push"))
    progress = Progress("idle")
    figures: dict[str, dict[str, float]] = {}
    with ExitStack() as until:
        server = until.enter_context(postgres(**LOGGED))
        running = _started(until, server, report)
        progress.begin(f"watching {len(running)} idle workers for {watched_s:.0f} s")
        time.sleep(SETTLED_S)
        before = {name: (_statements(server, url), process_cpu_s(one.pid)) for name, (one, url) in running.items()}
        time.sleep(watched_s)
        for name, (one, url) in running.items():
            statements, cpu_s = _statements(server, url) - before[name][0], process_cpu_s(one.pid) - before[name][1]
            minute = 60 / watched_s
            figures[name] = {"statements": statements * minute, "cpu_s": cpu_s * minute, "mb": resident_mb(one.pid)}
        progress.end()
        for name, (one, _) in running.items():
            one.go()
            push = "yes" if one.answer()["push"] else "no"
            report.rows.append((name, *(f"{figure:.2f}" for figure in figures[name].values()), push))
    ours, file = figures.get(OURS, {}), figures.get(FILE, {})
    report.ratios = [
        Ratio("idle, Postgres: statements a minute", ours.get("statements"), at_most=12),
        Ratio("idle, Postgres: CPU seconds a minute", ours.get("cpu_s"), at_most=0.3),
        Ratio("idle, Postgres: resident MB", ours.get("mb"), at_most=60),
        Ratio("idle, SQLite: CPU seconds a minute", file.get("cpu_s"), at_most=0.3),
        Ratio("idle, SQLite: resident MB", file.get("mb"), at_most=60),
    ]
    report.notes += NOTES
    report.samples = dict(figures)
    return report


def _started(until: ExitStack, server: Server, report: Report) -> dict[str, tuple[Process, str]]:
    folder = until.enter_context(tempfile.TemporaryDirectory(prefix="everpoll-bench-"))
    arms = [Arm(name, name, name, {"bench": "idle"}) for name in (OURS, "pgqueuer", "procrastinate")]
    running = {}
    for arm in [*arms, Arm(FILE, "everpoll", "everpoll", {"bench": "idle"})]:
        url = f"sqlite:///{Path(folder) / 'idle.db'}" if arm.name == FILE else until.enter_context(server.database())
        process = until.enter_context(Process(arm, url=url))
        try:
            process.ready()
        except ArmFailed as error:
            report.notes.append(f"failed and left out: {error.brief}")
            continue
        running[arm.name] = (process, url)
    return running


def _statements(server: Server, url: str) -> int:
    database = re.escape(url.rsplit("/", 1)[-1])
    return len(re.findall(rf"^\[{database}\] LOG:  (?:statement|execute|fastpath)", server.log(), re.MULTILINE))
