"""Monitoring of services: checks a CPU second with durable history, and how punctual 10,000 services are.

All monitors ask the same target on the loopback. everpoll and the bare loop are given more than they can do;
Prometheus, with and without its blackbox exporter, a rate that it keeps. The figure is that of a CPU second, with
everything that the monitor needs: its own processes, and its database server.

make bench ARGS="monitors --only throughput"    or punctuality, or interval: one part
make bench ARGS="monitors --long"               punctuality over ten minutes
"""

import statistics
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.arm import Answer, Arm, ArmFailed, Process
from bench.progress import Progress
from bench.prometheus import Missing, binaries, scraping
from bench.quiet import wait_until_quiet
from bench.report import Ratio, Report, compared
from bench.rounds import Samples, interleaved
from bench.server import Server, postgres, resident_mb

ROUNDS, QUICK_ROUNDS = 3, 1
LASTS_S, QUICK_LASTS_S = 12.0, 6.0
SERVICES, EVERY_S, SLOTS = 2_000, 0.1, 500
"""20,000 checks a second are due: more than a process makes."""
WARM_S = 8.0
SCRAPE_EVERY_S, PROBE_EVERY_S = 1.0, 4.0
SCRAPED_S, QUICK_SCRAPED_S = 60.0, 20.0
"""Longer than the other rounds, so that the scraper's write-ahead log and its garbage collection are in them."""
KEPT = 0.97
"""Of the rate that a scraper was given: one that keeps less is not measured in its steady state."""
MANY, PUNCTUAL_S, QUICK_PUNCTUAL_S, LONG_S = 10_000, 60.0, 15.0, 600.0
FEW, INTERVAL_S = 1_000, 5.0
PARTS = ("throughput", "punctuality", "interval")

PUNCTUAL = (("sqlite", 200, 20), ("postgres", 200, 20), ("sqlite", 2_000, 100), ("postgres", 2_000, 100))
"""Store, checks a second, and the lateness in milliseconds that 99 of 100 looks keep to."""

FILE, BASE = "everpoll, SQLite", "everpoll, Postgres"
PLAIN = "everpoll, SQLite, plain bodies"
FRESH_FILE, FRESH_BASE = "everpoll, SQLite, new connections", "everpoll, Postgres, new connections"
LEAN = "everpoll's HTTP client, no history"
BARE, DIRECT, BLACKBOX = "aiohttp, no history", "Prometheus", "Prometheus + blackbox exporter"

NOTES = [
    (
        f"{SERVICES:,} services at one target on the loopback, in a process of its own. Bodies name three "
        "dependencies, with other latencies at each request, so that each is read and each is written to the history."
    ),
    (
        "A check of everpoll counts once its record is committed, durably. CPU time is that of the whole process, "
        "and of the Postgres server; the target's does not count for any monitor."
    ),
    (
        "Prometheus scrapes the same facts in its own format, five series a dependency with its texts as labels, and "
        "keeps them in its database; the blackbox exporter opens a connection for each probe, and reads the status "
        "alone. Requests are counted by the target. A scraper that does not keep its rate is left out."
    ),
    "Lateness is the distance of a look from its slot, by the database's clock; every look counts.",
]


def run(quick: bool, *, long: bool = False, only: str = "") -> Report:
    """Throughput first, then punctuality; `only` names the part that is wanted."""
    wanted = [name for name in only.split(",") if name] or list(PARTS)
    report = Report(
        "monitors",
        "Monitoring: checks a CPU second with history, and punctuality",
        ("", "checks/s", "checks per CPU second", "CPU s per 1,000 checks"),
    )
    report.notes += NOTES
    with ExitStack() as until:
        server = until.enter_context(postgres())
        folder = Path(until.enter_context(tempfile.TemporaryDirectory(prefix="everpoll-bench-")))
        measuring = _Measuring(server, folder, quick=quick)
        if "throughput" in wanted and not long:
            samples = interleaved("monitors", _arms(report), QUICK_ROUNDS if quick else ROUNDS, measuring.throughput)
            _compare(report, samples)
            report.notes += [samples.noisy, *samples.failures]
            report.samples = dict(samples.answers)
        if "punctuality" in wanted:
            _punctuality(report, measuring, LONG_S if long else QUICK_PUNCTUAL_S if quick else PUNCTUAL_S)
        if "interval" in wanted and not long:
            _interval(report, measuring, QUICK_PUNCTUAL_S if quick else LONG_S)
    return report


def _arms(report: Report) -> list[Arm]:
    common = {
        "bench": "checks",
        "services": SERVICES,
        "every_s": EVERY_S,
        "slots": SLOTS,
        "per_host": SLOTS,
        "warm_s": WARM_S,
        "path": "health",
        "format": "auto",
        "fresh": False,
    }
    arms = [
        Arm(FILE, "everpoll", "monitors", {**common, "store": "sqlite"}),
        Arm(BASE, "everpoll", "monitors", {**common, "store": "postgres"}),
        Arm(PLAIN, "everpoll", "monitors", {**common, "store": "sqlite", "path": "plain"}),
        Arm(FRESH_FILE, "everpoll", "monitors", {**common, "store": "sqlite", "fresh": True}),
        Arm(FRESH_BASE, "everpoll", "monitors", {**common, "store": "postgres", "fresh": True}),
        Arm(BARE, "everpoll", "monitors", {**common, "bench": "bare", "store": "none"}),
        Arm(LEAN, "everpoll", "monitors", {**common, "bench": "lean", "store": "none"}),
    ]
    try:
        binaries()
    except Missing as error:
        report.notes.append(f"not measured: {DIRECT}, {BLACKBOX}: {error}")
        return arms
    return [
        *arms,
        Arm(DIRECT, "prometheus", "", {"every_s": SCRAPE_EVERY_S, "path": "metrics", "through_exporter": False}),
        Arm(BLACKBOX, "prometheus", "", {"every_s": PROBE_EVERY_S, "path": "health", "through_exporter": True}),
    ]


class _Measuring:
    """How one arm is measured."""

    def __init__(self, server: Server, folder: Path, *, quick: bool) -> None:
        self._server = server
        self._folder = folder
        self._lasts_s = QUICK_LASTS_S if quick else LASTS_S
        self._scraped_s = QUICK_SCRAPED_S if quick else SCRAPED_S
        self._files = 0

    def throughput(self, arm: Arm) -> Answer:
        """Checks, and the CPU time that they took."""
        is_quiet = wait_until_quiet()
        with _target() as port:
            answer = self._scraped(arm, port) if arm.peer == "prometheus" else self._checked(arm, port)
        return {**answer, "per_cpu_s": answer["count"] / answer["cpu_s"], "quiet": [is_quiet]}

    def _checked(self, arm: Arm, port: int) -> Answer:
        on_server = arm.options["store"] == "postgres"
        with (
            self.store(arm.options["store"]) as url,
            Process(arm, url=url, port=port, lasts_s=self._lasts_s) as process,
        ):
            process.ready()
            server_cpu_s = self._server.cpu_s()
            process.go()
            answer = process.answer(gated=False)
            if on_server:
                answer["cpu_s"] += self._server.cpu_s() - server_cpu_s
            return answer

    def _scraped(self, arm: Arm, port: int) -> Answer:
        options = {key: arm.options[key] for key in ("every_s", "path", "through_exporter")}
        try:
            with scraping(port, SERVICES, **options) as prometheus:
                # Two intervals, so that every target has been asked and its series are known.
                time.sleep(max(WARM_S, 2 * arm.options["every_s"]))
                count, cpu_s, began = _count(port), prometheus.cpu_s(), time.perf_counter()
                time.sleep(self._scraped_s)
                took_s, cpu_s, count = time.perf_counter() - began, prometheus.cpu_s() - cpu_s, _count(port) - count
        except Missing as error:
            raise ArmFailed(f"{arm.name}: {error}") from None
        kept = count / took_s * arm.options["every_s"] / SERVICES
        if kept < KEPT:
            raise ArmFailed(f"{arm.name}: it kept {kept:.0%} of its rate, so it was not in its steady state")
        return {"rate": count / took_s, "count": count, "cpu_s": cpu_s, "kept": kept}

    @contextmanager
    def store(self, kind: str) -> Iterator[str]:
        """The URL of an empty store."""
        if kind == "postgres":
            with self._server.database() as url:
                yield url
        else:
            self._files += 1
            yield f"sqlite:///{self._folder / f'monitors-{self._files}.db'}"


@contextmanager
def _target() -> Iterator[int]:
    """The port of a new target."""
    with Process(Arm("target", "everpoll", "health_target", {"bench": "target"})) as process:
        port: int = process.line()["port"]
        yield port


def _count(port: int) -> int:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/count", timeout=10) as answer:
        return int(answer.read())


def _compare(report: Report, samples: Samples) -> None:
    rates = {name: samples.of(name, "per_cpu_s") for name in samples.answers}
    for name, taken in rates.items():
        if taken:
            each, rate = statistics.median(taken), statistics.median(samples.of(name))
            report.rows.append((name, f"{rate:,.0f}", f"{each:,.0f}", f"{1000 / each:.3f}"))
    for ours in (FILE, BASE):
        ours_each = statistics.median(rates[ours]) if rates.get(ours) else None
        report.ratios += [
            Ratio(f"{ours}: checks per CPU second", ours_each, at_least=5_000),
            compared(f"{ours} / {BLACKBOX}", rates.get(ours, []), rates.get(BLACKBOX, []), at_least=5),
            compared(f"{ours} / {DIRECT}", rates.get(ours, []), rates.get(DIRECT, []), at_least=1.5),
            compared(f"{ours} / {BARE}", rates.get(ours, []), rates.get(BARE, [])),
        ]
    report.ratios.append(compared(f"{LEAN} / {DIRECT}", rates.get(LEAN, []), rates.get(DIRECT, [])))
    for ours in (FRESH_FILE, FRESH_BASE):
        report.ratios.append(compared(f"{ours} / {BLACKBOX}", rates.get(ours, []), rates.get(BLACKBOX, []), at_least=2))


def _interval(report: Report, measuring: _Measuring, lasts_s: float) -> None:
    """Looks every 5 s, on both stores at the same time: the load is small, and ten minutes are long."""
    progress = Progress("monitors")
    progress.begin(f"{FEW:,} services every {INTERVAL_S:.0f} s, both stores, for {lasts_s:.0f} s")
    order = {**_punctual_order(FEW, INTERVAL_S, lasts_s), "warm_s": 15.0}
    with ExitStack() as until:
        port = until.enter_context(_target())
        running = {}
        for store in ("sqlite", "postgres"):
            url = until.enter_context(measuring.store(store))
            running[store] = until.enter_context(Process(Arm(store, "everpoll", "monitors", order), url=url, port=port))
            running[store].limit_s += lasts_s
            running[store].ready()
        for process in running.values():
            process.go()
        for store, process in running.items():
            found = process.answer(gated=False)
            what = f"{FEW:,} services, an interval of {INTERVAL_S:.0f} s, {store}, over {lasts_s:.0f} s"
            report.samples[what] = [found]
            off = abs(found["distance_s"] / INTERVAL_S - 1) * 100
            report.ratios += [
                Ratio(f"{what}: mean distance of looks, off by %", off, at_most=1),
                Ratio(f"{what}: longest distance of two looks, in s", found["longest_s"]),
            ]
    progress.end("measured")


def _punctual_order(services: int, every_s: float, lasts_s: float) -> dict[str, object]:
    return {
        "bench": "punctual",
        "services": services,
        "every_s": every_s,
        "slots": SLOTS,
        "per_host": SLOTS,
        "warm_s": 90.0,
        "lasts_s": lasts_s,
        "path": "health",
        "format": "auto",
        "fresh": False,
    }


def _punctuality(report: Report, measuring: _Measuring, lasts_s: float) -> None:
    """10,000 services in one process: memory, lateness and the distance of looks."""
    progress = Progress("monitors")
    for store, each_second, at_most_ms in PUNCTUAL:
        what = f"{MANY:,} services, {each_second:,} checks/s, {store}"
        progress.begin(f"{what}, for {lasts_s:.0f} s")
        order = _punctual_order(MANY, MANY / each_second, lasts_s)
        try:
            found = _punctual(measuring, Arm(what, "everpoll", "monitors", order), store)
        except ArmFailed as error:
            report.notes.append(f"failed and left out: {error.brief}")
            progress.end(f"FAILED: {error}")
            continue
        progress.end(f"p99 {found['p99_ms']:.1f} ms")
        report.samples[what] = [found]
        report.ratios += [
            Ratio(f"{what}: checks/s of what is due", found["rate"] / each_second, at_least=0.97),
            Ratio(f"{what}: p50 lateness in ms", found["p50_ms"]),
            Ratio(f"{what}: p99 lateness in ms", found["p99_ms"], at_most=at_most_ms),
            Ratio(f"{what}: resident MB", found["mb"], at_most=300),
            Ratio(f"{what}: share of a core", found["cpu_share"]),
        ]
        if each_second == MANY // 5 and found["distance_s"] is not None:
            off = abs(found["distance_s"] / 5.0 - 1) * 100
            label = f"{what}: mean distance of looks over {lasts_s:.0f} s, off 5 s by %"
            report.ratios.append(Ratio(label, off, at_most=1))


def _punctual(measuring: _Measuring, arm: Arm, store: str) -> Answer:
    wait_until_quiet()
    with _target() as port, measuring.store(store) as url, Process(arm, url=url, port=port) as process:
        process.limit_s += arm.options["lasts_s"]
        answer = process.answer(gated=False)
        answer["mb"] = resident_mb(process.pid)
        return answer
