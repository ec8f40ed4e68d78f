"""History of services: what it takes on disk, what writing it costs, and how long people wait for its answers.

500 services, looked at every 30 s for 90 days: days and hours for all of it, minutes for 30 days, looks for 7. The past
is made of 200 hours of looks that were really rolled up, written in bulk; the last ten minutes are recorded.
"""

import asyncio
import random
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from bench.health_filling import Fill, fill_postgres, fill_sqlite, sizes_postgres, sizes_sqlite
from bench.progress import Progress
from bench.quiet import wait_until_quiet
from bench.report import Ratio, Report
from bench.server import Server, postgres
from everpoll.stores.contract import Store
from everpoll.stores.health import HealthRecords, NewLook
from everpoll.stores.health_batches import batch_of
from everpoll.stores.urls import store_for

SERVICES, QUICK_SERVICES = 500, 50
DAYS, QUICK_DAYS = 90, 30
READS, QUICK_READS = 200, 50
BATCH, BATCHES, QUICK_BATCHES = 200, 250, 50
DAY_S, EVERY_S = 86_400.0, 30.0
NOW = 1_900_022_400.0 + 13 * 3_600 + 17 * 60

NOTES = [
    "Reads are one at a time, of random services and of ranges that begin and end at any second, percentiles included.",
    (
        "A look's database time is the median time of a call with 200 looks, less what it takes to make rows of them, "
        "divided by 200; commits are durable."
    ),
    "Bytes are those of the tables with their indexes, with pages as full as these figures leave them.",
]


@dataclass(slots=True)
class Found:
    """What one store needed."""

    reads_ms: dict[str, list[float]] = field(default_factory=dict)
    record_us: float = 0.0
    """The median of the batches: commits wait for a disk that others use as well."""
    mean_us: float = 0.0
    prepare_us: float = 0.0
    cpu_us: float | None = None
    roll_up_us: float = 0.0
    longest_step_ms: float = 0.0
    bytes_each: dict[str, float] = field(default_factory=dict)


def run(quick: bool) -> Report:
    """Both stores."""
    fill = Fill(QUICK_SERVICES if quick else SERVICES, QUICK_DAYS if quick else DAYS, NOW)
    report = Report(
        "health-history", f"History of {fill.services} services over {fill.days} days", ("", "SQLite", "Postgres")
    )
    progress = Progress("health-history")
    found: dict[str, Found] = {}
    with ExitStack() as until:
        folder = Path(until.enter_context(tempfile.TemporaryDirectory(prefix="everpoll-bench-")))
        found["SQLite"] = asyncio.run(_sqlite(folder / "health.db", fill, progress, quick))
        server = until.enter_context(postgres())
        with server.database() as url:
            found["Postgres"] = asyncio.run(_postgres(server, url, fill, progress, quick))
    _tell(report, found)
    report.notes += NOTES
    return report


async def _sqlite(path: Path, fill: Fill, progress: Progress, quick: bool) -> Found:
    store = store_for(f"sqlite:///{path}")
    await store.open()
    progress.begin(f"SQLite: filling {fill.rows:,} rows")
    fill_sqlite(path, fill)
    progress.end()
    found = Found(bytes_each=sizes_sqlite(path))
    try:
        await _measure(store, fill, found, progress, quick)
    finally:
        await store.close()
    return found


async def _postgres(server: Server, url: str, fill: Fill, progress: Progress, quick: bool) -> Found:
    store = store_for(url)
    await store.open()
    progress.begin(f"Postgres: filling {fill.rows:,} rows")
    await fill_postgres(url, fill)
    progress.end()
    found = Found(bytes_each=await sizes_postgres(url))
    try:
        await _measure(store, fill, found, progress, quick, server)
    finally:
        await store.close()
    return found


async def _measure(
    store: Store, fill: Fill, found: Found, progress: Progress, quick: bool, server: Server | None = None
) -> None:
    health, names = store.health, fill.names
    for number in range(20):
        looks = [_look(name, NOW - 600 + number * EVERY_S) for name in names]
        for start in range(0, len(looks), 500):
            await health.record(looks[start : start + 500])
    progress.begin("reading")
    wait_until_quiet()
    for label, read in _reads(health, names, fill.days).items():
        found.reads_ms[label] = await _times_ms(read, QUICK_READS if quick else READS)
    progress.end()
    progress.begin("recording")
    await _record(health, names, found, QUICK_BATCHES if quick else BATCHES, server)
    progress.end()
    progress.begin("rolling up")
    await _roll_up(health, found)
    progress.end()


def _reads(
    health: HealthRecords, names: list[str], days: int
) -> dict[str, Callable[[random.Random], Awaitable[object]]]:
    async def percentiles(rng: random.Random, longest_s: float) -> object:
        from_at = NOW - rng.uniform(0, longest_s)
        rollup = await health.summary(rng.choice(names), from_at, rng.uniform(from_at, NOW))
        return [rollup.latency_ms(share) for share in (0.5, 0.95, 0.99)]

    async def everything(_: random.Random) -> object:
        return await health.availability(names, NOW - days * DAY_S), await health.last_looks(names, 30)

    return {
        f"uptime and percentiles, {days} d": lambda rng: health.summary(rng.choice(names), NOW - days * DAY_S, NOW),
        "uptime and percentiles, any range": lambda rng: percentiles(rng, days * DAY_S),
        "chart of a day by the minute": lambda rng: health.rollups(rng.choice(names), "minute", NOW - DAY_S, NOW),
        "chart of 30 d by the hour": lambda rng: health.rollups(rng.choice(names), "hour", NOW - 30 * DAY_S, NOW),
        "the last 1,000 looks": lambda rng: health.looks(rng.choice(names), NOW - 7 * DAY_S, NOW, 1_000),
        "list: all services, uptime and 30 looks": everything,
        "list: 20 services, uptime and 30 looks": lambda rng: _page(health, rng.sample(names, 20), days),
    }


async def _page(health: HealthRecords, names: Sequence[str], days: int) -> object:
    return await health.availability(names, NOW - days * DAY_S), await health.last_looks(names, 30)


async def _times_ms(read: Callable[[random.Random], Awaitable[object]], times: int) -> list[float]:
    rng = random.Random(7)
    await read(rng)
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        await read(rng)
        taken.append((time.perf_counter() - began) * 1_000)
    return taken


async def _record(health: HealthRecords, names: list[str], found: Found, batches: int, server: Server | None) -> None:
    """In the order in which services are due, which is not that of their names."""
    order = list(names)
    random.Random(3).shuffle(order)
    count = batches * BATCH
    looks = [_look(order[one % len(order)], NOW + one * EVERY_S / len(order)) for one in range(count)]
    wait_until_quiet()
    began = time.perf_counter()
    for start in range(0, count, BATCH):
        batch_of(looks[start : start + BATCH])
    found.prepare_us = (time.perf_counter() - began) / count * 1e6
    cpu_s = 0.0 if server is None else server.cpu_s()
    taken = []
    for start in range(0, count, BATCH):
        began = time.perf_counter()
        await health.record(looks[start : start + BATCH])
        taken.append(time.perf_counter() - began)
    found.record_us, found.mean_us = (
        figure / BATCH * 1e6 for figure in (statistics.median(taken), sum(taken) / batches)
    )
    found.cpu_us = None if server is None else (server.cpu_s() - cpu_s) / count * 1e6


async def _roll_up(health: HealthRecords, found: Found) -> None:
    wait_until_quiet()
    after: int | None = 0
    steps = []
    while after is not None:
        began = time.perf_counter()
        after = await health.roll_up(NOW + DAY_S, after)
        steps.append(time.perf_counter() - began)
    found.roll_up_us = sum(steps) * 1e6
    found.longest_step_ms = max(steps) * 1_000


def _look(name: str, at: float) -> NewLook:
    latency_ms = 20 + hash((name, at)) % 20_000 / 1_000
    return NewLook(service=name, at=at, status="up", span_s=EVERY_S, latency_ms=latency_ms, http_status=200)


def _tell(report: Report, found: dict[str, Found]) -> None:
    stores = list(found.values())
    for label in stores[0].reads_ms:
        report.rows.append((f"{label}: median, p99, ms", *(_spread(one.reads_ms[label]) for one in stores)))
    report.rows += [
        (
            "record, a look, whole call: median, mean, us",
            *(f"{one.record_us:.1f}, {one.mean_us:.1f}" for one in stores),
        ),
        ("of that, making rows, us", *(f"{one.prepare_us:.1f}" for one in stores)),
        ("CPU of the server, a look, us", *("-" if one.cpu_us is None else f"{one.cpu_us:.1f}" for one in stores)),
        ("rolling up everything recorded, ms", *(f"{one.roll_up_us / 1_000:.0f}" for one in stores)),
        ("longest step of that, ms", *(f"{one.longest_step_ms:.1f}" for one in stores)),
    ]
    for label in stores[0].bytes_each:
        report.rows.append((f"bytes: {label}", *(f"{one.bytes_each[label]:,.1f}" for one in stores)))
    for name, one in found.items():
        slow = max(_p99(times) for label, times in one.reads_ms.items() if "percentiles" in label)
        report.ratios += [
            Ratio(f"{name}: uptime and percentiles of any range, p99, ms", slow, at_most=50),
            Ratio(
                f"{name}: list of all services, median, ms",
                statistics.median(one.reads_ms["list: all services, uptime and 30 looks"]),
            ),
            Ratio(
                f"{name}: database time of a look in batches of {BATCH}, us",
                one.record_us - one.prepare_us,
                at_most=10 if name == "SQLite" else 20,
            ),
            Ratio(f"{name}: megabytes per service after a year", one.bytes_each["a service after a year"] / 2**20),
        ]
        report.samples[name] = {"reads_ms": one.reads_ms, "bytes": one.bytes_each}


def _spread(times: list[float]) -> str:
    return f"{statistics.median(times):.2f}, {_p99(times):.2f}"


def _p99(times: list[float]) -> float:
    return sorted(times)[max(0, -(-99 * len(times) // 100) - 1)]
