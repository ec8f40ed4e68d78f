"""Limits: what they cost a fleet that uses them, and those that do not.

Four processes drain 20,000 jobs of 100 keys, five of each key at a time, beside the same jobs without limits; then
80,000 jobs without limits, alone and while 100,000 of another name wait behind their limit. (Beside those, the workers
begin 0.15 s later, once: a third of the time of 20,000 jobs.) Peers have limits of their own kind: pgqueuer's are of
entrypoints, so each key is one; procrastinate's are locks, one job of each key at a time.
"""

from statistics import median
from typing import Any

from bench.arm import Answer, Arm
from bench.drain import measured
from bench.report import Ratio, Report, compared
from bench.rounds import Samples, interleaved
from bench.server import postgres

JOBS, QUICK_JOBS, WAITING, QUICK_WAITING = 20_000, 8_000, 100_000, 20_000
MORE = 4
"""How many times as many jobs the arms with jobs that wait drain, and the one to compare them with."""
PGQUEUER_JOBS, PROCRASTINATE_JOBS = 2_000, 500
ROUNDS, QUICK_ROUNDS = 5, 2
KEYS, PROCESSES, SLOTS, LIMIT = 100, 4, 50, 5
PLAIN, LIMITED, LONGER = "everpoll, no limits", "everpoll, 5 of each key", "everpoll, no limits, four times as many"
BESIDE = "everpoll, no limits, four times as many beside those that wait"
LOCKED, PGQUEUER, PROCRASTINATE = "everpoll, 1 of each key", "pgqueuer, 5 of each key", "procrastinate, 1 of each key"

NOTES = [
    (
        f"{PROCESSES} processes of {SLOTS} slots, {KEYS} keys, no-op jobs with 100 bytes of arguments; Postgres with "
        "synchronous_commit=on and fsync=on; the clock runs until nothing is left, looked at every 10 ms."
    ),
    "How many of a key were at once is read from the history after the run: from its lease to its settlement.",
    f"pgqueuer: {PGQUEUER_JOBS:,} jobs, procrastinate: {PROCRASTINATE_JOBS:,}; a rate is a rate.",
]


def run(quick: bool) -> Report:
    """Run all arms, in turns."""
    jobs, waiting, rounds = (QUICK_JOBS, QUICK_WAITING, QUICK_ROUNDS) if quick else (JOBS, WAITING, ROUNDS)
    with postgres(max_connections="200") as server:
        version = server.version()
        samples = interleaved("limits", _arms(jobs, waiting), rounds, lambda arm: measured(server, arm))
    report = Report(
        "limits",
        f"Limits of {KEYS} keys, {jobs:,} jobs (Postgres {version})",
        ("", "jobs/s", "Python µs/job", "Postgres µs/job", "most at once"),
    )
    for name, answers in samples.answers.items():
        figures = ("rate", "python_us", "server_us", "most_at_once")
        report.rows.append((name, *(_figure(answers, one) for one in figures)))
    report.ratios = _ratios(samples)
    report.notes += [*samples.failures, *NOTES, f"{samples.noisy}."]
    report.samples = {"postgres": samples.answers}
    return report


def _arms(jobs: int, waiting: int) -> list[Arm]:
    same = {"bench": "fleet", "keys": KEYS, "processes": PROCESSES, "slots": SLOTS}

    def everpoll(name: str, **options: Any) -> Arm:
        return Arm(name, "everpoll", "limits", {**same, "jobs": jobs} | options)

    return [
        everpoll(PLAIN),
        everpoll(LIMITED, limit=LIMIT),
        everpoll(LONGER, jobs=MORE * jobs),
        everpoll(BESIDE, jobs=MORE * jobs, waiting=waiting),
        everpoll(LOCKED, limit=1),
        Arm(PGQUEUER, "pgqueuer", "pgqueuer", {**same, "jobs": PGQUEUER_JOBS, "limit": LIMIT}),
        Arm(PROCRASTINATE, "procrastinate", "procrastinate", {**same, "jobs": PROCRASTINATE_JOBS}),
    ]


def _figure(answers: list[Answer], figure: str) -> str:
    found = [one[figure] for one in answers if figure in one]
    return f"{median(found):,.0f}" if found else ""


def _ratios(samples: Samples) -> list[Ratio]:
    most = max(samples.of(LIMITED, "most_at_once"), default=None)
    return [
        compared("5 of each key / no limits", samples.of(LIMITED), samples.of(PLAIN), at_least=0.5),
        compared("no limits, beside those that wait / alone", samples.of(BESIDE), samples.of(LONGER), at_least=0.95),
        Ratio("most of one key at once, of 5", most, at_most=LIMIT),
        compared("5 of each key: everpoll / pgqueuer", samples.of(LIMITED), samples.of(PGQUEUER)),
        compared("1 of each key: everpoll / procrastinate", samples.of(LOCKED), samples.of(PROCRASTINATE)),
    ]
