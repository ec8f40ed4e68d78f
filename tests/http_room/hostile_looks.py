"""Run as a program: look at each URL that comes in, print what came of it, and how much memory that took at most."""

import asyncio
import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

from everpoll.http import HttpClient, NotReached, Request


async def _look(client: HttpClient, url: str, timeout_s: float) -> dict[str, object]:
    began = time.monotonic()
    try:
        got = await client.send(Request(url, timeout_s=timeout_s))
        said = {"kind": "answer", "words": f"{got.status} with {len(got.body)} bytes"}
    except NotReached as error:
        said = {"kind": str(error.kind), "words": str(error)}
    return {**said, "took_s": time.monotonic() - began}


def _peak_mb() -> float:
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    # Of this program alone: `ru_maxrss` begins with what the process had that started it.
    return int(status.read_text().partition("VmHWM:")[2].split()[0]) / 1024


async def _main(asked: dict[str, Any]) -> None:
    client, found = HttpClient(**asked["client"]), {}
    for name, (url, timeout_s) in asked["looks"].items():
        found[name] = await _look(client, url, timeout_s)
        found[name]["peak_mb"] = _peak_mb()
    await client.close()
    json.dump(found, sys.stdout)


asyncio.run(_main(json.load(sys.stdin)))
