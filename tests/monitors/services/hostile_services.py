"""Run as a program: look at hostile services and at good ones, print what is known of each and what that cost."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from everpoll import Everpoll

LIMIT_S = 120.0
"""Far more than it takes: a test that needs it has failed."""


def memory_mb(field: str) -> float:
    """VmRSS: now; VmHWM: the most so far."""
    return int(Path("/proc/self/status").read_text().partition(f"{field}:")[2].split()[0]) / 1024


async def looked_at(app: Everpoll, names: list[str], times: int) -> None:
    """Wait until each service has so many looks in its history."""
    async with asyncio.timeout(LIMIT_S):
        for name in names:
            while len(await app.services[name].history()) < times:  # noqa: ASYNC110 - a worker is what it waits for
                await asyncio.sleep(0.05)


async def main(asked: dict[str, Any]) -> None:
    app = Everpoll("memory://")
    app.services.configure(shortest="100ms", per_host=50)
    for name, url in asked["hostile"].items():
        app.service(name, url, every="2s", timeout=asked["timeouts_s"][name], backoff=None, breaker=None)
    for name, url in asked["good"].items():
        app.service(name, url, every=asked["good_every_s"], timeout="60s")
    found: dict[str, Any] = {}
    async with app:
        await looked_at(app, list(asked["good"]), 2)
        start_mb = memory_mb("VmRSS")
        await looked_at(app, list(asked["hostile"]), 2)
        for name in asked["hostile"]:
            info = await app.services[name].info()
            spans = [one.latency_ms for one in await app.services[name].history()]
            found[name] = {"status": str(info.status), "error": info.error, "warnings": info.warnings, "spans": spans}
        histories = {name: await app.services[name].history() for name in asked["good"]}
        good = {name: [one.at for one in looks] for name, looks in histories.items()}
        # Of the looks: on a machine that has much other work, what is shown at the end may be stale.
        statuses = sorted({str(one.status) for looks in histories.values() for one in looks})
    cost_mb = memory_mb("VmHWM") - start_mb
    json.dump({"hostile": found, "good": good, "statuses": statuses, "cost_mb": cost_mb}, sys.stdout)


asyncio.run(main(json.load(sys.stdin)))
