"""Backlog: does what is not to be done now slow down what is?

Beside many: 5,000 due jobs among 500,000 future ones of higher priority and 500,000 ended ones, against the same on a
clean database. Beside a held transaction: 200,000 jobs pass while a transaction elsewhere keeps its snapshot open for a
minute, so that Postgres can forget none of them; the last 10,000 against the first.
"""

import tempfile
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

from bench.arm import Answer, Arm, Process
from bench.progress import Progress
from bench.report import Ratio, Report, compared
from bench.server import Server, postgres

JOBS, MANY, QUICK_MANY = 5_000, 500_000, 50_000
ROUNDS, QUICK_ROUNDS = 7, 3
CHUNK, CHUNKS, QUICK_CHUNKS, EVERY_S, WARM_UP = 10_000, 20, 5, 3.0, 3
SLOTS = 1_000

NOTES = [
    (
        "Each round: 5,000 jobs are enqueued in one transaction while the worker is idle; from that commit to the last "
        "settlement. Clean and full take turns, each a worker of its own that stays up; 1,000 slots."
    ),
    "The future and the ended jobs were made by everpoll itself, and the tables vacuumed once after that.",
    (
        "The held transaction is REPEATABLE READ and has written; 3 chunks pass before it opens, so that the first one "
        "measured is warm."
    ),
]


def run(quick: bool) -> Report:
    """Both questions."""
    many, rounds = (QUICK_MANY, QUICK_ROUNDS) if quick else (MANY, ROUNDS)
    report = Report(
        "backlog", f"{JOBS:,} due jobs beside {many:,} future and {many:,} ended ones", ("", "jobs/s", "rounds")
    )
    progress = Progress("backlog")
    with ExitStack() as until:
        server = until.enter_context(postgres())
        folder = Path(until.enter_context(tempfile.TemporaryDirectory(prefix="everpoll-bench-")))
        for store in ("Postgres", "SQLite"):
            rates = _beside_many(store, server, folder, progress, {"many": many, "rounds": rounds})
            for kind, taken in rates.items():
                label = f"{store}, {kind}"
                report.rows.append((label, f"{median(taken):,.0f}", f"{min(taken):,.0f} … {max(taken):,.0f}"))
                report.samples[label] = taken
            report.ratios.append(
                compared(f"backlog, {store}: full / clean", rates["full"], rates["clean"], at_least=0.9)
            )
        held = _held_minute(server, progress, QUICK_CHUNKS if quick else CHUNKS)
    report.rows += [(f"held transaction, chunk {n}", f"{rate:,.0f}", "") for n, rate in enumerate(held["rates"], 1)]
    report.samples["held"] = held
    report.ratios += _held_ratios(held["rates"])
    report.notes = [*NOTES, f"The transaction was open for {held['held_s']:.0f} s."]
    return report


def _beside_many(
    store: str, server: Server, folder: Path, progress: Progress, sizes: dict[str, int]
) -> dict[str, list[float]]:
    rates: dict[str, list[float]] = {"clean": [], "full": []}
    with ExitStack() as until:
        running = {}
        for kind in rates:
            count = sizes["many"] if kind == "full" else JOBS
            future = sizes["many"] if kind == "full" else 0
            progress.begin(f"{store}, {kind}: making {count:,} ended and {future:,} future jobs")
            url = until.enter_context(server.database()) if store == "Postgres" else f"sqlite:///{folder}/{kind}.db"
            running[kind] = until.enter_context(
                _worker(url, jobs=JOBS, ended=count, future=future, rounds=sizes["rounds"])
            )
            running[kind].ready()
            if store == "Postgres":
                server.order("vacuum analyze", url)
            running[kind].go()
            progress.end()
        for number in range(sizes["rounds"]):
            progress.begin(f"{store}, round {number + 1}/{sizes['rounds']}, {JOBS:,} due jobs")
            for kind, process in running.items():
                rates[kind].append(process.answer()["rate"])
                process.go()
            progress.end(", ".join(f"{kind} {taken[-1]:,.0f}/s" for kind, taken in rates.items()))
    return rates


def _worker(url: str, **order: Any) -> Process:
    return Process(Arm("everpoll", "everpoll", "everpoll"), bench="backlog", url=url, slots=SLOTS, **order)


def _held_minute(server: Server, progress: Progress, chunks: int) -> Answer:
    progress.begin(f"a transaction held open for {chunks * EVERY_S:.0f} s while {chunks * CHUNK:,} jobs pass")
    order = {"chunk": CHUNK, "chunks": chunks, "every_s": EVERY_S, "warm_up": WARM_UP, "slots": SLOTS}
    with (
        server.database() as url,
        Process(Arm("everpoll", "everpoll", "everpoll"), bench="held_minute", url=url, **order) as process,
    ):
        answer = process.answer()
    progress.end(f"first {answer['rates'][0]:,.0f}/s, last {answer['rates'][-1]:,.0f}/s")
    return answer


def _held_ratios(rates: list[float]) -> list[Ratio]:
    third = max(1, len(rates) // 4)
    return [
        Ratio("held transaction: last 10,000 / first 10,000", rates[-1] / rates[0], at_least=0.5),
        Ratio(
            "held transaction: median of the last quarter / of the first",
            median(rates[-third:]) / median(rates[:third]),
        ),
    ]
