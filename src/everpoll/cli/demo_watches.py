"""The watches and the schedule that the demo shows: exports in a pretended remote that end, fail or take their time."""

import random
from collections import Counter
from typing import Any

from everpoll.app import Everpoll
from everpoll.policy import Backoff, Budget
from everpoll.watches import Done, Fail, Wait

NEW_EVERY_S = 4.0


def add_watches(app: Everpoll) -> Counter[str]:
    """Register a watch, a loop that begins its runs, and a schedule; return the counts of what its runs did."""
    counts: Counter[str] = Counter()
    rng = random.Random()  # noqa: S311 - a story, no secret

    @app.watch(every=Backoff("500ms", factor=1.5, cap="3s", jitter=0.2), budget=Budget("2m", looks=60))
    async def export(op: dict[str, Any], w: Any) -> Done | Fail | Wait:
        counts["looks"] += 1
        share = min(1.0, w.elapsed / float(op["takes_s"]))
        w.status("complete" if share >= 1 else "running")
        w.progress(f"{share:.0%} of {op['table']}")
        if share < 1:
            return Wait()
        counts["failed" if op["fails"] else "done"] += 1
        return Fail("the bucket is full") if op["fails"] else Done({"rows": op["rows"]})

    @app.loop(every=NEW_EVERY_S, name="new exports", first=0, when_hidden=1)
    async def begin() -> None:
        tables = ("orders", "invoices", "events")
        operation = {
            "table": rng.choice(tables),
            "takes_s": rng.uniform(2, 20),
            "fails": rng.random() < 0.2,
            "rows": rng.randrange(1_000_000),
        }
        counts["begun"] += 1
        await export.begin(operation, f"{operation['table']}-{counts['begun']}")

    @app.schedule(every="10s")
    @app.job()
    async def nightly_sweep() -> None:
        """Stands for what a cron line would run."""

    return counts
