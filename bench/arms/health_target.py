"""A health endpoint that costs as little as possible: what is measured is the monitor, not what it asks.

    /health/…   a proactive-deps body of three dependencies; their latencies are others at each request
    /plain/…    two letters
    /metrics/…  the same three dependencies, as Prometheus reads them
    /count      how many of these were answered

Connections are kept, unless the request says `Connection: close`, or the order says that each is closed.
Requests are not parsed: the path is taken from the first line, and a request is complete where its headers end.
"""

import asyncio
import itertools
import json
import random

from bench.arms import gate

BODIES = 64
DEPENDENCIES = (("postgres", "database"), ("redis", "cache"), ("stripe", "rest"))


def _health(rng: random.Random) -> bytes:
    return json.dumps(
        [
            {
                "name": name,
                "description": f"The {kind} of this service",
                "impact": "Orders cannot be taken",
                "healthy": True,
                "health": {"state": 0, "code": 200, "latency": round(rng.uniform(1, 90), 3), "skipped": False},
                "lastChecked": "2026-01-01T00:00:00Z",
                "type": kind,
            }
            for name, kind in DEPENDENCIES
        ]
    ).encode()


def _metrics(rng: random.Random) -> bytes:
    """The facts of `_health` as proactive-deps writes them for Prometheus: five series a dependency."""
    lines = []
    for name, kind in DEPENDENCIES:
        texts = f'description="The {kind} of this service",impact="Orders cannot be taken"'
        labels = f'{{name="{name}",type="{kind}",{texts}}}'
        lines += [
            f"dependency_health_status{labels} 0",
            f"dependency_health_healthy{labels} 1",
            f"dependency_health_code{labels} 200",
            f"dependency_health_check_skipped{labels} 0",
            f"dependency_health_latency_ms{labels} {rng.uniform(1, 90):.3f}",
        ]
    return ("\n".join(lines) + "\n").encode()


def _answer(body: bytes, content_type: str, *, closes: bool) -> bytes:
    head = [b"HTTP/1.1 200 OK", b"Content-Type: " + content_type.encode(), b"Content-Length: %d" % len(body)]
    head += [b"Connection: close"] if closes else []
    return b"\r\n".join([*head, b"", body])


class Answers:
    """What is sent for each path, one after the other; and how often."""

    def __init__(self, *, closes: bool) -> None:
        rng = random.Random(7)
        kinds = {
            b"h": ("application/json", [_health(rng) for _ in range(BODIES)]),
            b"p": ("text/plain", [b"ok"]),
            b"m": ("text/plain; version=0.0.4", [_metrics(rng) for _ in range(BODIES)]),
        }
        self._closes = closes
        self._next = {
            letter: itertools.cycle([_answer(body, content_type, closes=closes) for body in bodies]).__next__
            for letter, (content_type, bodies) in kinds.items()
        }
        self._count = 0

    def to(self, request: bytes) -> tuple[bytes, bool]:
        """The answer to one request, and whether the connection is closed after it."""
        letter = request[5:6]
        if letter == b"c":
            return _answer(str(self._count).encode(), "text/plain", closes=True), True
        self._count += 1
        return self._next[letter](), self._closes or b"Connection: close" in request


class Target(asyncio.Protocol):
    """One connection."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        received = self._received + data if self._received else data
        while b"\r\n\r\n" in received:
            request, received = received.split(b"\r\n\r\n", 1)
            answer, closes = self._answers.to(request)
            assert isinstance(self._transport, asyncio.Transport), "TCP"
            self._transport.write(answer)
            if closes:
                self._transport.close()
        self._received = received


async def target(order: gate.Order) -> None:
    answers = Answers(closes=order.get("closes", False))
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Target(answers), "127.0.0.1", 0, backlog=4_096)
    await gate.report(port=server.sockets[0].getsockname()[1])


if __name__ == "__main__":
    gate.main({"target": target})
