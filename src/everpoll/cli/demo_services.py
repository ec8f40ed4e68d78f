"""The services that the demo shows: small servers of its own on 127.0.0.1, one of which comes and goes."""

import asyncio
import contextlib
import json
import socket
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from rich import box
from rich.markup import escape
from rich.table import Table

from everpoll.app import Everpoll
from everpoll.cli.health_display import STATUS_STYLE
from everpoll.monitors import ServiceEvent, ServiceInfo, StatusChange
from everpoll.policy import Backoff

HOST = "127.0.0.1"
FLAPS_S = 4.0
"""The flapping service is well for this long, then not for as long."""


class ServiceStory:
    """What was seen of the services so far."""

    def __init__(self) -> None:
        self.looks: Counter[str] = Counter()
        self.story: list[str] = []
        """A line for each change."""
        self._infos: list[ServiceInfo] = []
        self._answers: set[asyncio.Task[None]] = set()
        self._started_at = time.monotonic()

    @asynccontextmanager
    async def serving(self, app: Everpoll) -> AsyncIterator[None]:
        """Register four services, and serve three of them for the length of the block."""
        async with AsyncExitStack() as stack:
            server = await asyncio.start_server(self._connected, HOST, 0)
            stack.callback(server.close)
            port = server.sockets[0].getsockname()[1]
            # Bound, and not listening: connections are refused, and no other program can take the port.
            dead = stack.enter_context(socket.socket())
            dead.bind((HOST, 0))
            app.services.configure(shortest="1s")
            app.services.subscribe(self._note)
            app.service("shop", f"http://{HOST}:{port}/health", every="1s")
            app.service("search", f"http://{HOST}:{port}/search", every="1s", depends_on=("shop",))
            app.service("port", f"tcp://{HOST}:{port}", every="1s")
            app.service("archive", f"tcp://{HOST}:{dead.getsockname()[1]}", every="1s", backoff=Backoff("1s", jitter=0))
            yield

    async def look(self, app: Everpoll) -> None:
        """Read how the services are."""
        self._infos = [await service.info() for service in app.services]

    def table(self) -> Table:
        """The services, as a table."""
        table = Table(title="services", title_style="bold", box=box.SIMPLE_HEAD, expand=True)
        table.add_column("name", style="bold", no_wrap=True, min_width=9)
        table.add_column("status", no_wrap=True, min_width=8)
        for column in ("looks", "failures", "next look"):
            table.add_column(column, justify="right", no_wrap=True)
        table.add_column("why", overflow="ellipsis", no_wrap=True, ratio=1)
        for info in self._infos:
            table.add_row(
                info.name,
                f"[{STATUS_STYLE[info.status]}]{info.status}[/]",
                str(self.looks[info.name]),
                str(info.failures),
                "paused" if info.due_at is None else f"{max(0.0, info.due_at - time.time()):.1f}s",
                escape(info.error or ""),
            )
        return table

    def summary(self) -> str:
        """One line for the end."""
        looks = ", ".join(f"{count} {name}" for name, count in sorted(self.looks.items()))
        return f"services: looks: {looks or 'none'}"

    def _note(self, event: ServiceEvent) -> None:
        if event.kind == "poll:complete":
            self.looks[event.service_name] += 1
        if isinstance(event, StatusChange) and event.dependency_name is None:
            why = f": {event.error}" if event.error else ""
            self.story.append(f"{event.service_name}: {event.current_status}{why}")

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A task of our own: of one that it made itself, asyncio 3.11 prints a traceback when the demo cancels it.
        answer = asyncio.ensure_future(self._answer(reader, writer))
        self._answers.add(answer)
        answer.add_done_callback(self._answers.discard)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request, as Spring Boot does or as a list of dependencies, and close the connection."""
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                asked = await reader.readuntil(b"\r\n\r\n")
                age_s = time.monotonic() - self._started_at
                status, answer = _search(age_s) if b"/search" in asked else _shop(age_s)
                body = json.dumps(answer).encode()
                head = f"HTTP/1.1 {status} -\r\nContent-Type: application/json\r\nConnection: close\r\n"
                writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
                await writer.drain()
        finally:
            writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


def _shop(age_s: float) -> tuple[int, object]:
    if age_s % (2 * FLAPS_S) < FLAPS_S:
        return 200, {"status": "UP", "components": {"db": {"status": "UP"}}}
    database = {"status": "DOWN", "details": {"error": "too many connections"}}
    return 503, {"status": "DOWN", "components": {"db": database}}


def _search(age_s: float) -> tuple[int, object]:
    """Degraded two thirds of the time, by a cache of its own."""
    is_well = age_s % (3 * FLAPS_S) < FLAPS_S
    index = {"name": "index", "healthy": True, "health": {"state": 0, "code": 200, "latency": 3.1}, "type": "database"}
    cache = {
        "name": "cache",
        "healthy": is_well,
        "health": {"state": 0 if is_well else 2, "latency": 0.4},
        "type": "cache",
    }
    return 200, [index, cache if is_well else {**cache, "errorMessage": "connection refused"}]
