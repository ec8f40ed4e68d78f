"""Lists over HTTP: `everpoll serve` in a process of its own, one client, every list, detail and series call."""

import http.client
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from bench.quiet import process_cpu_s

STARTED = re.compile(r"serving http://127\.0\.0\.1:(\d+)")
START_S = 60.0


def calls(service: str, run: str, job: int) -> list[str]:
    """The calls that are measured: as the dashboard makes them, and with the highest limits."""
    named = f"/api/services/{service}"
    return [
        "/api/jobs",
        "/api/jobs?limit=1000",
        "/api/jobs?state=failed&limit=1000",
        "/api/jobs?q=user%3A7",
        "/api/jobs/causes",
        "/api/jobs/causes?name=job10",
        f"/api/jobs/{job}",
        f"/api/jobs/{job}/why",
        "/api/runs",
        "/api/runs?limit=1000",
        "/api/runs?watch=export&state=queued",
        "/api/runs?state=done",
        f"/api/runs/{run}",
        f"/api/runs/{run}/why",
        "/api/services",
        "/api/services?limit=1000",
        "/api/services?status=down",
        named,
        f"{named}/why",
        f"{named}/dependencies",
        f"{named}/history?limit=50",
        f"{named}/history?range=24h&step=minute",
        "/api/graph",
        f"/api/graph?focus={service}",
        "/api/graph?problems=true",
        "/api/incidents",
        "/api/incidents?state=all",
        "/api/incidents?state=past&limit=1000",
        f"/api/incidents?service={service}",
        f"/api/incidents?service={service}&state=all",
        "/api/aliases",
        "/api/maintenance",
        "/api/loops",
        "/api/workers",
        "/api/queues",
        "/api/schedules",
        "/api/log?limit=1000",
        "/api/log?kind=incident",
        f"/api/log?name={service}",
        "/api/log?kind=none",
        "/api/series?of=throughput&range=1h&step=1m",
        "/api/series?of=lateness&range=1h&step=1m",
        "/api/series?of=throughput&range=24h",
        "/api/series?of=waiting&range=24h&step=15m",
        "/api/series?of=waiting&range=7d",
        "/api/series?of=running&range=24h",
        "/api/series?of=lateness&range=4h",
        "/api/series?of=lateness&range=24h&step=15m",
        "/api/series?of=lateness&range=24h",
        "/api/series?of=lateness&range=2d",
        "/api/series?of=lateness&range=7d",
        "/api/series?of=lateness&range=90d",
        "/api/series?of=waiting&range=7d&queue=queue1",
        "/api/series?of=throughput&range=24h&name=job1",
        f"/api/series?of=uptime&service={service}&range=24h",
        "/metrics",
    ]


@dataclass
class Answers:
    """Of one call: how long each answer took, and what of that the server computed, both in milliseconds."""

    times_ms: list[float] = field(default_factory=list)
    cpu_ms: list[float] = field(default_factory=list)


def measured(url: str, paths: list[str], reads: int) -> dict[str, Answers]:
    """Return the answers of each call; the first round warms up."""
    found = {path: Answers() for path in paths}
    with served(url) as (port, pid):
        client = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        for turn in range(reads + 1):
            for path in paths:
                computed_s = process_cpu_s(pid)
                began = time.perf_counter()
                client.request("GET", path)
                answer = client.getresponse()
                answer.read()
                took_ms = (time.perf_counter() - began) * 1_000
                if answer.status != http.HTTPStatus.OK:
                    raise RuntimeError(f"GET {path}: {answer.status}")
                if turn:
                    found[path].times_ms.append(took_ms)
                    found[path].cpu_ms.append((process_cpu_s(pid) - computed_s) * 1_000)
        client.close()
    return found


@contextmanager
def served(url: str) -> Iterator[tuple[int, int]]:
    """The port and the process id of a server on that database, for the length of the block."""
    command = [sys.executable, "-m", "everpoll", "serve", "--url", url, "--port", "0"]
    environment = {**os.environ, "EVERPOLL_LOG": "json"}
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
    try:
        yield _port(server), server.pid
    finally:
        server.terminate()
        server.wait(START_S)


def _port(server: "subprocess.Popen[str]") -> int:
    assert server.stdout is not None
    for line in server.stdout:
        if found := STARTED.search(line):
            return int(found[1])
    raise RuntimeError("everpoll serve did not start")
