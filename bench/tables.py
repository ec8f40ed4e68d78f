"""Adopted tables: how fast one worker process runs the rows of the user's own table, beside jobs in everpoll's own and
beside the loop that people write by hand.

The table is the one of the document: a uuid as its key, `select * … limit 1`, an update guarded by the status, and one
more when it is done. All have everpoll's index.
"""

from statistics import median
from typing import Any

from bench.arm import Answer, Arm, Process
from bench.quiet import process_cpu_s
from bench.report import Report, compared
from bench.rounds import interleaved
from bench.server import Server, postgres

JOBS = 20_000
ROUNDS, QUICK_ROUNDS = 5, 2
# A rate is a rate: three statements and two commits a row.
LOOP_JOBS = 1_000

NATIVE, ADOPTED, BY_HAND = "native jobs, 1,000 slots", "adopted table, 1,000 slots", "select-then-update loop"
NOTES = [
    (
        "One worker process; Postgres with synchronous_commit=on and fsync=on; no-op async handler; interleaved "
        "rounds, medians; a fresh database each time, vacuumed and analyzed after it was filled."
    ),
    f"The loop has {LOOP_JOBS:,} rows, one connection, one row at a time, as the document writes it.",
    "`full` maps finished_at, heartbeat, retries and error; the others finished_at alone.",
]


def run(quick: bool) -> Report:
    """Measure all systems on the same server."""
    with postgres() as server:
        version = server.version()
        arms = _arms(quick)
        samples = interleaved("tables", arms, QUICK_ROUNDS if quick else ROUNDS, lambda arm: _measured(server, arm))
    report = Report(
        "tables",
        f"Drain of {JOBS:,} rows of an adopted table (Postgres {version})",
        ("", "rows/s", "Python µs/row", "Postgres µs/row"),
    )
    for name in samples.answers:
        figures = [samples.of(name, figure) for figure in ("rate", "python_us", "server_us")]
        shown = [f"{median(one):,.{digits}f}" if one else "-" for one, digits in zip(figures, (0, 1, 1), strict=True)]
        report.rows.append((name, *shown))
    adopted = samples.of(ADOPTED)
    report.ratios = [
        compared("drain of an adopted table / native jobs", adopted, samples.of(NATIVE), at_least=0.5),
        compared("drain of an adopted table / select-then-update loop", adopted, samples.of(BY_HAND), at_least=3),
    ]
    report.notes += [*samples.failures, *NOTES, f"{samples.noisy}."]
    report.samples = {"postgres": samples.answers}
    return report


def _arms(quick: bool) -> list[Arm]:
    def adopted(name: str, **options: Any) -> Arm:
        order = {"bench": "drain", "jobs": JOBS, "slots": 1_000, "mapping": "lean", **options}
        return Arm(name, "everpoll", "table", order)

    arms = [
        Arm(NATIVE, "everpoll", "everpoll", {"bench": "drain", "jobs": JOBS, "slots": 1_000}),
        adopted(ADOPTED),
        Arm(BY_HAND, "everpoll", "table", {"bench": "loop", "jobs": LOOP_JOBS, "mapping": "lean"}),
    ]
    if quick:
        return arms
    return [
        *arms,
        adopted("adopted table, full, 1,000 slots", mapping="full"),
        adopted("adopted table, 50 slots", slots=50),
        *(adopted(f'adopted table, guard="{guard}"', guard=guard) for guard in ("status", "version", "timestamp")),
    ]


def _measured(server: Server, arm: Arm) -> Answer:
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
