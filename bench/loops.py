"""100,000 loops in one process, against bare `loop.call_later` that starts the same coroutines on the same schedule.

Each measurement is a process of its own; rounds are interleaved, and the medians are compared. CPU time is that of
the whole process between the first and the last run, with starting up left out; memory is the growth of the
resident set over the same registrations, divided by their number: everything included.
"""

import asyncio
import gc
import json
import random
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import TypedDict

LOOPS = 100_000
EVERY_S = 5.0
PERIODS = 2
ROUNDS = 3


class Sample(TypedDict):
    cpu_s: float
    runs: int
    bytes_each: float
    peak_bytes_each: float


async def measure(kind: str, loops: int) -> Sample:
    rng = random.Random(1)
    names = [f"loop-{number}" for number in range(loops)]
    runs = 0

    async def work() -> None:
        nonlocal runs
        runs += 1

    gc.collect()
    before = resident_bytes()
    app, over = None, False
    if kind == "everpoll":
        from everpoll import Everpoll  # noqa: PLC0415 - the reference must not pay for the import

        app = Everpoll(rng=rng)
        for name in names:
            app.loops.add(work, EVERY_S, name=name, jitter=1)
        await app.loops.start()
    else:
        event_loop = asyncio.get_running_loop()

        async def once() -> None:
            await work()
            event_loop.call_later(EVERY_S * 2 * rng.random(), start)

        def start() -> None:
            if not over:
                event_loop.create_task(once())  # noqa: RUF006 - ends at its first step

        for _ in names:
            event_loop.call_later(EVERY_S * 2 * rng.random(), start)
    started_cpu, started_runs = time.process_time(), runs
    await asyncio.sleep(EVERY_S * PERIODS)
    cpu_s, done = time.process_time() - started_cpu, runs - started_runs
    over = True
    gc.collect()
    at_rest = (resident_bytes() - before) / loops
    peak = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before) / loops
    if app is not None:
        await app.loops.close()
    return Sample(cpu_s=cpu_s, runs=done, bytes_each=at_rest, peak_bytes_each=peak)


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def sample(kind: str) -> Sample:
    command = [sys.executable, "-m", "bench.loops", kind, str(LOOPS)]
    answer: Sample = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return answer


def run() -> dict[str, object]:
    samples: dict[str, list[Sample]] = {"bare": [], "everpoll": []}
    for number in range(ROUNDS):
        for kind, taken in samples.items():
            print(f"  loops: round {number + 1}/{ROUNDS}, {kind} …", file=sys.stderr, flush=True)
            taken.append(sample(kind))
    each_us = {
        kind: statistics.median(one["cpu_s"] / one["runs"] * 1e6 for one in taken) for kind, taken in samples.items()
    }
    memory = {kind: statistics.median(one["bytes_each"] for one in taken) for kind, taken in samples.items()}
    peak = {kind: statistics.median(one["peak_bytes_each"] for one in taken) for kind, taken in samples.items()}
    return {
        "name": "loops",
        "title": f"{LOOPS:,} loops, each every {EVERY_S:g} s ± 100 %, against bare call_later",
        "rows": [
            ["CPU, x bare call_later (at most 3)", f"{each_us['everpoll'] / each_us['bare']:.2f}"],
            ["CPU microseconds a run, everpoll / bare", f"{each_us['everpoll']:.1f} / {each_us['bare']:.1f}"],
            ["bytes a loop, all included (at most 1,024)", f"{memory['everpoll']:,.0f}"],
            ["bytes a loop at the peak", f"{peak['everpoll']:,.0f}"],
            ["bytes a bare timer", f"{memory['bare']:,.0f}"],
            ["runs, everpoll / bare", f"{samples['everpoll'][0]['runs']:,} / {samples['bare'][0]['runs']:,}"],
        ],
        "samples": samples,
    }


if __name__ == "__main__":
    print(json.dumps(asyncio.run(measure(sys.argv[1], int(sys.argv[2])))))
