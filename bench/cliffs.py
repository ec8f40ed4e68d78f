"""Cliffs: what once made the store on Postgres many times slower, each beside its own control in the same run.

make bench ARGS=cliffs                       some fifteen minutes
make bench ARGS="cliffs --quick"             smaller sizes: a look, not a verdict
make bench ARGS="cliffs --long"              full sizes, and snapshots that are held for ten minutes
make bench ARGS="cliffs --only watches,list" these scenarios only
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from bench import cliffs_waiters, drain
from bench.arm import Answer, Arm, ArmFailed, Process
from bench.progress import Progress
from bench.report import Ratio, Report, compared
from bench.rounds import interleaved
from bench.server import Server, postgres

SLOTS = 50
"""The default of an app."""
URGENT = 0.01
WORKERS, JOBS_A_SECOND = 8, 50.0
QUEUES, LOOK = 1_000, 50
PICKUP_RATE = 800.0
SLACK_S = 180.0
"""How much longer than its timed pieces a process may take, for filling its database."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much of each; the defaults are those of an ordinary run."""

    runs: int = 100_000
    runs_every_s: float = 60.0
    runs_from_s: float = 15.0
    control_s: float = 15.0
    windows: int = 6
    window_s: float = 10.0
    rows: int = 300_000
    rows_s: float = 15.0
    running: tuple[int, ...] = (30_000,)
    aged_s: float = 25.0
    fleet_s: float = 20.0
    queue_tasks: int = 50_000
    due: int = 200_000
    pickup_s: float = 60.0
    ended: int = 1_000_000
    jobs: int = 60_000
    rounds: int = 3
    is_quick: bool = False


ORDINARY = Sizes()
QUICK = Sizes(
    runs=20_000,
    runs_every_s=12.0,
    runs_from_s=5.0,
    control_s=8.0,
    windows=4,
    window_s=6.0,
    rows=100_000,
    rows_s=8.0,
    running=(10_000,),
    aged_s=12.0,
    fleet_s=10.0,
    queue_tasks=20_000,
    due=50_000,
    pickup_s=24.0,
    ended=200_000,
    jobs=20_000,
    rounds=2,
    is_quick=True,
)
LONG = Sizes(
    windows=20,
    window_s=30.0,
    rows=1_000_000,
    rows_s=30.0,
    running=(30_000, 100_000),
    pickup_s=600.0,
    ended=5_000_000,
    rounds=5,
)


@dataclass(slots=True)
class Bench:
    """What the scenarios share, and what they found."""

    server: Server
    sizes: Sizes
    progress: Progress
    report: Report
    failures: list[str] = field(default_factory=list)

    def found(self, what: str, figures: tuple[str, str], *ratios: Ratio, **samples: Any) -> None:
        """Keep one scenario's figures."""
        self.report.rows.append((what, *figures))
        self.report.ratios += ratios
        self.report.samples[what] = samples
        self.progress.end(" / ".join(figures))

    def one(self, scenario: str, most_s: float = 0.0, /, **order: Any) -> Answer:
        """One process on a fresh database; it is vacuumed when the process is ready."""
        arm = Arm(scenario, "everpoll", "cliffs", {"bench": scenario, **order})
        with self.server.database() as url, Process(arm, url=url) as process:
            process.limit_s = most_s + SLACK_S
            while (line := process.line()).get("is_ready"):
                self.server.order("vacuum analyze", url)
                process.send_off()
            return line


def run(quick: bool, *, long: bool = False, only: str = "") -> Report:
    """Every scenario, or those named; one that fails costs the others nothing."""
    wanted = [name for name in only.split(",") if name] or list(SCENARIOS)
    sizes = QUICK if quick else LONG if long else ORDINARY
    report = Report("cliffs", "Cliffs, Postgres", ("", "control", "beside it"))
    with postgres(max_connections="200") as server:
        bench = Bench(server, sizes, Progress("cliffs"), report)
        for name in wanted:
            try:
                SCENARIOS[name](bench)
            except ArmFailed as error:
                bench.progress.end("FAILED")
                report.notes.append(f"{name}: failed and left out: {error.brief}")
    report.notes += NOTES
    return report


def _watches(bench: Bench) -> None:
    sizes = bench.sizes
    held_s = sizes.windows * sizes.window_s
    bench.progress.begin(f"{sizes.runs:,} watches, each looked at every {sizes.runs_every_s:g} s; held {held_s:g} s")
    order = {"runs": sizes.runs, "every_s": sizes.runs_every_s, "from_s": sizes.runs_from_s}
    # Those that fell due while the database was filled are made up for before the control is taken.
    times = {"warm_s": sizes.runs_from_s + 15.0, "control_s": sizes.control_s}
    windows = {"windows": sizes.windows, "window_s": sizes.window_s}
    answer = bench.one("held_watches", held_s + times["warm_s"] + times["control_s"], **order, **times, **windows)
    control, last = answer["control"], answer["rates"][-1]
    bench.found(
        f"looks/s of {sizes.runs:,} watches, after a snapshot was held for {held_s:g} s",
        (f"{control:,.0f}", f"{last:,.0f}"),
        Ratio("snapshot held, watches: looks/s / before it", last / control, at_least=0.9),
        **answer,
    )


def _ranks(bench: Bench) -> None:
    sizes, rates = bench.sizes, {}
    bench.progress.begin(f"snapshot held, {sizes.rows:,} ready jobs of 1 and of 1,000 priorities")
    for ranks in (1, 1_000):
        order = {"ranks": ranks, "rows": sizes.rows, "warm_s": sizes.rows_s / 3, "lasts_s": sizes.rows_s}
        rates[ranks] = bench.one("held_ranks", sizes.rows_s * 2, **order)["rate"]
    bench.found(
        f"snapshot held: jobs/s from {sizes.rows:,} ready ones, of 1 and of 1,000 priorities",
        (f"{rates[1]:,.0f}", f"{rates[1_000]:,.0f}"),
        Ratio("snapshot held, 1,000 priorities / 1 priority", rates[1_000] / rates[1], at_least=0.5),
    )


def _running(bench: Bench) -> None:
    sizes = bench.sizes
    bench.progress.begin(f"{WORKERS} workers, {JOBS_A_SECOND:g} jobs/s, nothing else running")
    control = _fleet_beside(bench, 0)
    bench.progress.end(f"{control['server_ms']:.2f} ms of the server a job")
    for running in sizes.running:
        bench.progress.begin(f"the same beside {running:,} running tasks")
        beside = _fleet_beside(bench, running)
        bench.found(
            f"server ms a job, {WORKERS} workers, {JOBS_A_SECOND:g} jobs/s beside {running:,} running tasks",
            (f"{control['server_ms']:.2f}", f"{beside['server_ms']:.2f}"),
            Ratio(f"{running:,} running: server time a job", _over(beside, control, "server_ms"), at_most=2),
            Ratio(f"{running:,} running: p99 of the pick-up", _over(beside, control, "p99_ms")),
            control=control,
            beside=beside,
        )


def _fleet_beside(bench: Bench, running: int) -> Answer:
    sizes = bench.sizes
    holder = Arm("holder", "everpoll", "cliffs", {"bench": "holder", "running": running, "aged_s": sizes.aged_s})
    order = {"bench": "fleet", "workers": WORKERS, "rate": JOBS_A_SECOND, "warm_s": 3.0, "lasts_s": sizes.fleet_s}
    with bench.server.database() as url, Process(holder, url=url) as holding:
        held = holding.answer()
        assert held["running"] == running, held
        with Process(Arm("fleet", "everpoll", "cliffs", order), url=url) as fleet:
            fleet.ready()
            cpu_s = bench.server.cpu_s()
            fleet.send_off()
            answer = fleet.answer()
            answer["server_ms"] = (bench.server.cpu_s() - cpu_s) / answer["jobs"] * 1e3
    return answer


def _queues(bench: Bench) -> None:
    bench.progress.begin(f"looks over 1 and over {QUEUES:,} queues")
    tasks = bench.sizes.queue_tasks
    one, many = (bench.one("many_queues", queues=queues, tasks=tasks, most=LOOK) for queues in (1, QUEUES))
    bench.found(
        f"a look over 1 and over {QUEUES:,} queues: empty ms, rows locked and WAL bytes for {LOOK} tasks",
        (
            f"{one['empty_ms']:.1f} ms, {one['locked']:,}, {one['wal']:,}",
            f"{many['empty_ms']:.1f} ms, {many['locked']:,}, {many['wal']:,}",
        ),
        Ratio(f"{QUEUES:,} queues: an empty look in ms", many["empty_ms"], at_most=5),
        Ratio(f"{QUEUES:,} queues: rows locked for each task leased", many["locked"] / LOOK, at_most=4),
        Ratio(f"{QUEUES:,} queues: WAL bytes of a full look / one queue", many["wal"] / max(1, one["wal"])),
        one=one,
        many=many,
    )


def _due(bench: Bench) -> None:
    tasks = bench.sizes.due
    bench.progress.begin(f"{tasks:,} tasks due at one instant, {URGENT:.0%} urgent")
    alone = bench.one("due_together", 60.0, tasks=int(tasks * URGENT), urgent=1.0, fill_s=6.0)
    beside = bench.one("due_together", 240.0, tasks=tasks, urgent=URGENT, fill_s=8.0 + tasks / 6_000)
    bench.found(
        f"{int(tasks * URGENT):,} urgent tasks alone, and among {tasks:,} due at one instant: the last one late, in ms",
        (f"{alone['last_ms']:,.0f}", f"{beside['last_ms']:,.0f}"),
        Ratio("due together: the last urgent one late / alone", beside["last_ms"] / alone["last_ms"], at_most=2),
        Ratio("due together: other tasks that ran before the last urgent one", beside["others_before"], at_most=100),
        alone=alone,
        beside=beside,
    )


def _waiters(bench: Bench) -> None:
    # It has a server of its own and its callers in this process: what is measured is how late they get the result.
    bench.report.ratios += cliffs_waiters.ratios(bench.sizes.is_quick)


def _pickup(bench: Bench) -> None:
    held_s = bench.sizes.pickup_s
    bench.progress.begin(f"{PICKUP_RATE:g} jobs/s while a snapshot is held for {held_s:g} s")
    answer = bench.one("held_pickup", held_s, rate=PICKUP_RATE, warm_s=5.0, lasts_s=held_s)
    first, last = answer["quarters"][0], answer["quarters"][-1]
    bench.found(
        f"p99 ms of the pick-up at {PICKUP_RATE:g} jobs/s, first and last quarter of a snapshot held {held_s:g} s",
        (f"{first['p99_ms']:.1f}", f"{last['p99_ms']:.1f}"),
        Ratio("snapshot held, pick-up: p99, last quarter / first", _over(last, first, "p99_ms"), at_most=1.25),
        Ratio("snapshot held, pick-up: p50, last quarter / first", _over(last, first, "p50_ms")),
        **answer,
    )


def _list(bench: Bench) -> None:
    ended = bench.sizes.ended
    bench.progress.begin(f"a list by name beside {ended:,} ended tasks")
    answer = bench.one("listing", 600.0, seed=20_000, ended=ended)
    bench.found(
        f"list by a name that {ended:,} ended tasks have, and by one that none has, ms",
        (f"{answer['there_ms']:.1f}", f"{answer['not_there_ms']:.1f}"),
        Ratio("list by a name that is not there, in ms", answer["not_there_ms"], at_most=50),
        **answer,
    )


def _drain(bench: Bench) -> None:
    order = {"bench": "drain", "jobs": bench.sizes.jobs}
    ours, theirs, as_many = f"everpoll, {SLOTS} slots", "graphile-worker", "everpoll, 500 slots"
    batch = {"batch": 500, "concurrency": 24}
    arms = [
        Arm(ours, "everpoll", "everpoll", order),
        Arm(theirs, "graphile", "graphile.mjs", {**order, **batch}),
        Arm(as_many, "everpoll", "everpoll", {**order, "slots": 500}),
        Arm("pgqueuer", "pgqueuer", "pgqueuer", {**order, "batch": 1_000, "loop": "uvloop"}),
    ]
    samples = interleaved("cliffs, drain", arms, bench.sizes.rounds, lambda arm: _drained(bench.server, arm))
    bench.report.notes += samples.failures
    rates = {arm.name: samples.of(arm.name) for arm in arms}
    shown = {name: f"{median(taken):,.0f}" if taken else "not measured" for name, taken in rates.items()}
    bench.report.rows.append(
        (f"drain, jobs/s with the default of {SLOTS} slots; control: graphile-worker", shown[theirs], shown[ours])
    )
    bench.report.ratios += [
        compared(f"drain: {ours} / graphile-worker, batch 500", rates[ours], rates[theirs], at_least=1.3),
        compared(f"drain: {as_many} / graphile-worker, batch 500", rates[as_many], rates[theirs], at_least=1.3),
        compared(f"drain: {ours} / pgqueuer", rates[ours], rates["pgqueuer"]),
    ]
    bench.report.samples["drain"] = samples.answers


def _drained(server: Server, arm: Arm) -> Answer:
    try:
        return drain.measured(server, arm)
    except RuntimeError as error:  # npm could not fetch the competitor
        raise ArmFailed(f"{arm.name}: {error}") from error


def _over(beside: dict[str, float], control: dict[str, float], figure: str) -> float:
    return beside[figure] / max(control[figure], 1e-9)


SCENARIOS: dict[str, Callable[[Bench], None]] = {
    "watches": _watches,
    "ranks": _ranks,
    "running": _running,
    "queues": _queues,
    "due": _due,
    "waiters": _waiters,
    "pickup": _pickup,
    "list": _list,
    "drain": _drain,
}

NOTES = [
    f"One process with {SLOTS} slots unless said otherwise; a fresh database each, vacuumed after it was filled.",
    "The held snapshot is another session's, REPEATABLE READ and read-only, as a dump or a long report holds one.",
    "Server time: CPU time of all processes of Postgres. The running tasks belong to one more worker, which is alive.",
    (
        "graphile-worker: a local queue of 500, 24 jobs at a time, completions in batches: it holds 500 leased tasks, "
        "as everpoll does with 500 slots, and ten times as many as with 50. pgqueuer: batch 1,000, uvloop."
    ),
]
