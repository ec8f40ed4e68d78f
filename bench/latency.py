"""Pick-up latency on an idle queue: from just before a job is enqueued to when its handler begins.

One job each 200 to 250 ms, which is longer than any system takes to become idle again. Worker and sender are two
processes, except where one process is both. Times are of the system-wide monotonic clock. For jobs that are enqueued in
a transaction of the caller's own, the time counts from just before its commit.
"""

import tempfile
from contextlib import ExitStack
from pathlib import Path
from statistics import median, quantiles

from bench.arm import Answer, Arm, ArmFailed, Process
from bench.report import Ratio, Report
from bench.rounds import interleaved
from bench.server import Server, postgres

JOBS, QUICK_JOBS = 80, 30
ROUNDS, QUICK_ROUNDS = 3, 1
EVERY_S = 0.2
SHARED, ALONE = "SQLite: everpoll, two processes", "SQLite: everpoll, one process"

OWN = {driver: f"Postgres: everpoll, connection= of {driver}" for driver in ("asyncpg", "psycopg")}
OWN_FILE = "SQLite: everpoll, two processes, connection= of sqlite3"

NOTES = [
    (
        "From just before the enqueueing call to the first line of the handler: the commit of the enqueue is part of "
        "it. With `connection=`, from just before the caller's commit, of a transaction with a row of the caller's own."
    ),
    (
        "All systems with push (LISTEN/NOTIFY) and at their defaults; pgqueuer batch 10, procrastinate concurrency 50; "
        "plain asyncio for all. p99 is taken over all rounds together."
    ),
]


def run(quick: bool) -> Report:
    """Measure all systems on Postgres, and everpoll on SQLite."""
    jobs, rounds = (QUICK_JOBS, QUICK_ROUNDS) if quick else (JOBS, ROUNDS)
    with ExitStack() as until:
        server = until.enter_context(postgres())
        folder = Path(until.enter_context(tempfile.TemporaryDirectory(prefix="everpoll-bench-")))
        peers = [Arm(name, name, name, {"jobs": jobs}) for name in ("everpoll", "pgqueuer", "procrastinate")]
        peers += [_own(name, driver, jobs) for driver, name in OWN.items()]
        files = [
            Arm(SHARED, "everpoll", "everpoll", {"jobs": jobs}),
            Arm(ALONE, "everpoll", "everpoll", {"jobs": jobs, "alone": True}),
            _own(OWN_FILE, "sqlite3", jobs),
        ]
        samples = interleaved(
            "latency",
            [*peers, *files],
            rounds,
            lambda arm: on_postgres(server, arm) if arm in peers else on_sqlite(folder, arm),
            shown="p50_ms",
        )
    all_ms = {
        name: sorted(one for answer in taken for one in answer["taken_ms"]) for name, taken in samples.answers.items()
    }
    report = Report(
        "latency",
        f"Pick-up latency, idle, one job each {EVERY_S * 1e3:g} to {EVERY_S * 1.25e3:g} ms",
        ("", "p50 ms", "p90 ms", "p99 ms", "most ms", "jobs"),
    )
    for name, taken in all_ms.items():
        if taken:
            figures = (median(taken), _percentile(taken, 90), _percentile(taken, 99), taken[-1])
            report.rows.append((name, *(f"{one:.2f}" for one in figures), str(len(taken))))
    report.ratios = _ratios(all_ms)
    report.notes = [*samples.failures, *NOTES, f"{samples.noisy}."]
    report.samples = {"taken_ms": all_ms}
    return report


def _own(name: str, driver: str, jobs: int) -> Arm:
    return Arm(name, "everpoll", "own_transaction", {"jobs": jobs, "driver": driver})


def _ratios(all_ms: dict[str, list[float]]) -> list[Ratio]:
    ratios = []
    for label, percent in (("p50", 50), ("p99", 99)):
        peers = [_percentile(all_ms[name], percent) for name in ("pgqueuer", "procrastinate") if all_ms.get(name)]
        ours = all_ms.get("everpoll")
        value = _percentile(ours, percent) / min(peers) if ours and peers else None
        ratios.append(Ratio(f"latency, Postgres: {label}, everpoll / best peer", value, at_most=1.0))
    for name, label, most in ((SHARED, "two processes", 60), (ALONE, "one process", 5)):
        value = median(all_ms[name]) if all_ms.get(name) else None
        ratios.append(Ratio(f"latency, SQLite, {label}: p50 in ms", value, at_most=most))
    pairs = [("Postgres", driver, name, "everpoll") for driver, name in OWN.items()]
    for database, driver, with_connection, without in [*pairs, ("SQLite", "sqlite3", OWN_FILE, SHARED)]:
        inside, outside = all_ms.get(with_connection), all_ms.get(without)
        value = median(inside) / median(outside) if inside and outside else None
        ratios.append(Ratio(f"latency, {database}: p50, connection= of {driver} / without", value, at_most=1.1))
    return ratios


def on_postgres(server: Server, arm: Arm) -> Answer:
    """A worker and a sender, on a fresh database."""
    with server.database() as url:
        return _two_processes(arm, url)


def on_sqlite(folder: Path, arm: Arm) -> Answer:
    """The same with a fresh file; one process where the arm is alone."""
    url = f"sqlite:///{folder / 'bench.db'}"
    try:
        return _one_process(arm, url) if arm.options.get("alone") else _two_processes(arm, url)
    finally:
        for file in folder.glob("bench.db*"):
            file.unlink()


def _two_processes(arm: Arm, url: str) -> Answer:
    with Process(arm, bench="latency_worker", url=url, every_s=EVERY_S) as worker:
        worker.ready()
        with Process(arm, bench="latency_sender", url=url, every_s=EVERY_S) as sender:
            sender.ready()
            worker.go()
            worker.ready()
            sender.send_off()
            sent = sender.answer()
        return _answered(arm, worker, sender.quiet_starts, sent)


def _one_process(arm: Arm, url: str) -> Answer:
    with Process(arm, bench="latency_worker", url=url, every_s=EVERY_S) as worker:
        worker.ready()
        worker.send_off()
        worker.ready()
        return _answered(arm, worker, worker.quiet_starts)


def _answered(arm: Arm, worker: Process, quiet: list[bool], sent: Answer | None = None) -> Answer:
    worker.go()
    answer = worker.answer()
    if sent is not None and "sent_at" in sent:
        pairs = zip(sent["sent_at"], answer.pop("begun_at"), strict=False)
        answer["taken_ms"] = [(begun_at - sent_at) * 1e3 for sent_at, begun_at in pairs]
    if len(answer["taken_ms"]) != arm.options["jobs"]:
        raise ArmFailed(f"{arm.name} ran {len(answer['taken_ms'])} of {arm.options['jobs']} jobs")
    return {**answer, "p50_ms": median(answer["taken_ms"]), "quiet": quiet}


def _percentile(taken: list[float], percent: int) -> float:
    return quantiles(taken, n=100, method="inclusive")[percent - 1]
