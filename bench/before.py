"""Now against before: everpoll as it is here beside everpoll of another commit, interleaved, figure by figure.

make bench ARGS="before --against 1a2b3c4"       src/ of that commit; default: HEAD
make bench ARGS="before --only drain,latency"    these parts only
make bench ARGS="before --only served"           a drain beside an idle HTTP server, against one without

The benchmark's own files are those of this folder for both. A ratio above 1 means that everpoll is better now.
"""

import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from bench import drain, enqueue, latency
from bench.arm import ROOT, Answer, Arm, Process
from bench.quiet import process_cpu_s, wait_until_quiet
from bench.report import Ratio, Report, compared
from bench.rounds import interleaved
from bench.server import Server, postgres, resident_mb

ROUNDS, QUICK_ROUNDS = 7, 3
MARGIN = 0.97
"""Nothing may become slower by more than 3 %."""
WATCHES: dict[str, Any] = {"bench": "watches", "runs": 5_000, "every_s": 4.0, "lasts_s": 10.0, "warm_s": 5.0}
BACKLOG: dict[str, Any] = {
    "bench": "backlog",
    "jobs": 5_000,
    "slots": 1_000,
    "ended": 100_000,
    "future": 100_000,
    "rounds": 3,
}
SERVES: dict[str, Any] = {"serves": True}
IDLE_S, SETTLED_S = 20.0, 4.0
PARTS = ("drain", "served", "latency", "enqueue", "backlog", "idle", "watches")


@dataclass(frozen=True, slots=True)
class Part:
    """Arms that are measured in turn; each figure of theirs is compared."""

    arm: Arm
    measure: Callable[[Arm], Answer]
    figures: dict[str, bool]
    """By name; True: more is better."""
    only_now: dict[str, Any] = field(default_factory=dict)
    """Options of the arm that the older commit need not know."""


def run(quick: bool, *, against: str = "HEAD", only: str = "") -> Report:
    """Each part on Postgres and on SQLite."""
    found = subprocess.run(
        ["git", "rev-parse", "--short", against], cwd=ROOT, check=True, capture_output=True, text=True
    )
    commit = found.stdout.strip()
    wanted = [name for name in only.split(",") if name] or list(PARTS)
    report = Report("before", f"everpoll now / everpoll of {commit}", ("", "now", "before"))
    with ExitStack() as until:
        server = until.enter_context(postgres())
        folder = Path(until.enter_context(tempfile.TemporaryDirectory(prefix="everpoll-bench-")))
        for part in _parts(server, folder):
            if part.arm.name.split(",", maxsplit=1)[0] in wanted:
                _compare(part, commit, QUICK_ROUNDS if quick else ROUNDS, report)
    return report


def _compare(part: Part, commit: str, rounds: int, report: Report) -> None:
    before = replace(part.arm, name=f"{part.arm.name}, before", commit=commit)
    now = replace(part.arm, options=part.arm.options | part.only_now)
    samples = interleaved(now.name, [now, before], rounds, part.measure, next(iter(part.figures)))
    for figure, is_more_better in part.figures.items():
        ours, theirs = samples.of(now.name, figure), samples.of(before.name, figure)
        label = now.name if len(part.figures) == 1 else f"{now.name}: {figure}"
        if ours and theirs:
            report.rows.append((label, f"{median(ours):,.1f}", f"{median(theirs):,.1f}"))
        pair = (ours, theirs) if is_more_better else (theirs, ours)
        report.ratios.append(_paired(compared(label, *pair, at_least=MARGIN), *pair))
    report.notes += [*samples.failures, f"{now.name}: {samples.noisy}."]
    report.samples[now.name] = samples.answers


def _paired(ratio: Ratio, better: list[float], worse: list[float]) -> Ratio:
    """The median of the ratios of each round: what disturbs a round disturbs both of its halves."""
    if ratio.value is None:
        return ratio
    return replace(ratio, value=median(a / b for a, b in zip(better, worse, strict=False)))


def _parts(server: Server, folder: Path) -> list[Part]:
    def arm(name: str, **options: Any) -> Arm:
        return Arm(name, "everpoll", "everpoll", options)

    on_file = partial(drain.measured_file, folder)
    enqueued = {"bench": "enqueue", **enqueue.QUICK_COUNTS}
    waited = {"jobs": latency.QUICK_JOBS}
    rates = dict.fromkeys(enqueue.FIGURES, True)
    watched = Arm("watches, Postgres", "everpoll", "watches", WATCHES)
    return [
        *(
            Part(
                arm(f"drain, Postgres, {slots} slots", bench="drain", jobs=jobs, slots=slots),
                partial(drain.measured, server),
                {"rate": True},
            )
            for slots, jobs in ((50, 60_000), (1_000, 100_000))
        ),
        *(
            Part(arm(f"drain, SQLite, {slots} slots", bench="drain", jobs=30_000, slots=slots), on_file, {"rate": True})
            for slots in (50, 1_000)
        ),
        # An idle HTTP server beside the drain now, none before.
        *(
            Part(
                arm(f"served, {name}, 1,000 slots", bench="drain", jobs=jobs, slots=1_000), way, {"rate": True}, SERVES
            )
            for name, jobs, way in (
                ("Postgres", 100_000, partial(drain.measured, server)),
                ("SQLite", 30_000, on_file),
            )
        ),
        Part(arm("latency, Postgres", **waited), partial(latency.on_postgres, server), {"p50_ms": False}),
        Part(arm("latency, SQLite", alone=True, **waited), partial(latency.on_sqlite, folder), {"p50_ms": False}),
        Part(arm("enqueue, Postgres", **enqueued), partial(enqueue.measured, server), rates),
        Part(arm("enqueue, SQLite", **enqueued), on_file, rates),
        Part(arm("backlog, Postgres", **BACKLOG), partial(_backlog, server), {"rate": True}),
        Part(arm("idle, Postgres", bench="idle"), partial(_idle, server), {"cpu_ms": False, "mb": False}),
        Part(watched, partial(_watches, server), {"cpu_us": False}),
        Part(replace(watched, name="watches, SQLite"), partial(_watches_in_file, folder), {"cpu_us": False}),
    ]


def _backlog(server: Server, arm: Arm) -> Answer:
    with server.database() as url, Process(arm, url=url) as process:
        process.ready()
        server.order("vacuum analyze", url)
        process.go()
        rates = []
        for _ in range(BACKLOG["rounds"]):
            rates.append(process.answer()["rate"])
            process.go()
    return {"rate": median(rates), "quiet": process.quiet_starts}


def _idle(server: Server, arm: Arm) -> Answer:
    """The worker and its database."""
    with server.database() as url, Process(arm, url=url) as process:
        process.ready()
        time.sleep(SETTLED_S)
        is_quiet = wait_until_quiet()
        before = process_cpu_s(process.pid) + server.cpu_s()
        time.sleep(IDLE_S)
        cpu_s = process_cpu_s(process.pid) + server.cpu_s() - before
        answer = {"cpu_ms": cpu_s * 1e3, "mb": resident_mb(process.pid), "quiet": [is_quiet]}
        process.go()
        process.answer()
    return answer


def _watches(server: Server, arm: Arm) -> Answer:
    with server.database() as url, Process(arm, url=url) as process:
        return _looks(process, server.cpu_s)


def _watches_in_file(folder: Path, arm: Arm) -> Answer:
    try:
        with Process(arm, url=f"sqlite:///{folder / 'bench.db'}") as process:
            return _looks(process, lambda: 0.0)
    finally:
        for file in folder.glob("bench.db*"):
            file.unlink()


def _looks(process: Process, server_cpu_s: Callable[[], float]) -> Answer:
    """CPU time of a look, with the server's: the rate is given by when looks are due."""
    process.ready()
    before = server_cpu_s()
    process.send_off()
    answer = process.answer()
    looks = answer["rate"] * (WATCHES["lasts_s"] + WATCHES["warm_s"])
    answer["cpu_us"] = answer["python_us"] + (server_cpu_s() - before) / looks * 1e6
    return {**answer, "quiet": process.quiet_starts}
