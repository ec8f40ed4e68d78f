"""Fills a store with a fleet: its workers, and the figures that they publish with their heartbeats.

As workers write them: for each span of time a row for each name, each queue and each kind of tasks, of each worker.
"""

import json
import random
import time
from collections.abc import Iterator

from bench.database import Database, Row
from everpoll.policy import Histogram
from everpoll.stores.figures import KEPT_S, MINUTE_S

LEASE_S = 86_400.0
"""Of the workers, which never beat again: they must pass for alive as long as the benchmark runs."""
VARIANTS = 100
DRAWN = 500
"""Values that a histogram is drawn from, at most; for more of them, these stand for all."""
COLUMNS = ("span_s", "kind", "name", "queue", "began", "incarnation", "counts", "waited", "ran")
CARD = ("incarnation", "label", "host", "pid", "slots", "version", "lease_s", "started_at", "beat_at", "beats")
LOOPS = 5
NAMES, QUEUES = 50, 5
GROUPS: dict[tuple[str, str, str], int] = {
    ("check", "", ""): 500,
    ("check", "", "everpoll.checks"): 500,
    ("check", "everpoll.check", "everpoll.checks"): 500,
    ("job", "", ""): 40,
    **{("job", "", f"queue{number}"): 8 for number in range(QUEUES)},
    **{("job", f"job{number}", f"queue{number % QUEUES}"): 1 for number in range(NAMES)},
    ("watch", "", ""): 20,
    ("watch", "", "default"): 20,
    ("watch", "export", "default"): 20,
}
"""What a worker counts apart, and how many tasks of each it ends in a minute: a million jobs in two days, looks at
2,000 services every 30 s, and at 10,000 runs every hour."""

_Variant = tuple[str, bytes, bytes]


async def fill_fleet(database: Database, workers: int) -> None:
    """Sign workers on, each with some loops."""
    now = time.time()
    own = ("queues", "names", "loops")
    names = [f"job{number}" for number in range(NAMES)]
    queues = [f"queue{number}" for number in range(QUEUES)]
    await database.insert(
        "workers",
        (*CARD, *own),
        [
            (
                *(one, f"worker-{one}", f"host-{one}", 4_000 + one, 50, "1.0", LEASE_S),
                *(database.at(now - 3 * 86_400), database.at(now), 50_000),
                *((queues, names) if database.path is None else (json.dumps(queues), json.dumps(names))),
                _loops(now),
            )
            for one in range(1, workers + 1)
        ],
    )


async def fill_figures(database: Database, workers: int) -> None:
    """Write the figures of as many spans as are kept."""
    now = int(time.time())
    for span_s in KEPT_S:
        await database.insert("figures", COLUMNS, _figures(span_s, now, workers))


def _figures(span_s: int, now: int, workers: int) -> Iterator[Row]:
    """Yield the rows in the order of the table's key."""
    rng = random.Random(span_s)
    tasks = sorted(set(GROUPS.values()))
    drawn = {one: [_variant(rng, one * span_s // MINUTE_S) for _ in range(VARIANTS)] for one in tasks}
    last = now // span_s * span_s
    starts = range(last - KEPT_S[span_s] + span_s, last + span_s, span_s)
    for place, (group, size) in enumerate(sorted(GROUPS.items())):
        variants = drawn[size]
        for number, began in enumerate(starts):
            for worker in range(1, workers + 1):
                yield span_s, *group, began, worker, *variants[(number * 7 + worker * 13 + place) % VARIANTS]


def _variant(rng: random.Random, tasks: int) -> _Variant:
    """Return the outcomes and histograms of so many tasks."""
    counts = {"done": tasks - tasks // 10, "failed": tasks // 50, "retried": tasks // 20}
    found = {name: count for name, count in counts.items() if count}
    waited, ran = (_encoded(rng, mean, tasks) for mean in (9.0, 11.0))
    return json.dumps(found, separators=(",", ":")), waited, ran


def _encoded(rng: random.Random, mean: float, tasks: int) -> bytes:
    drawn = Histogram.of(round(rng.lognormvariate(mean, 1.2)) for _ in range(min(tasks, DRAWN)))
    times = max(1, tasks // DRAWN)
    return Histogram(tuple((bucket, count * times) for bucket, count in drawn.counts)).encoded()


def _loops(now: float) -> str:
    return json.dumps(
        [
            {
                "name": f"loop-{number}",
                "phase": "waiting",
                "every_s": 30.0,
                "runs": 5_000,
                "failures": number,
                "last_run_at": now - 10,
                "next_due_at": now + 20,
                "last_error": "ConnectionError: refused" if number else None,
                "strip": "ooofoooooooo",
            }
            for number in range(LOOPS)
        ]
    )
