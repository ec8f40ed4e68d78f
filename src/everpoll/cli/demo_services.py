"""The services that the demo shows: small servers of its own on 127.0.0.1, one of which comes and goes."""

import socket
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from rich import box
from rich.markup import escape
from rich.table import Table

from everpoll.app import Everpoll
from everpoll.cli.demo_formats import FORMATS
from everpoll.cli.demo_server import HOST, Answer, ReceivedRequest, SmallServer
from everpoll.cli.health_display import STATUS_STYLE
from everpoll.monitors import ServiceEvent, ServiceInfo, StatusChange
from everpoll.policy import Backoff

BEATS_S, SILENT_S = 20.0, 6.0
"""The period of the backup's heartbeats, and how long it is silent at the end of each, in seconds."""


class ServiceStory:
    """The changes and looks of the services so far."""

    def __init__(self) -> None:
        self.looks: Counter[str] = Counter()
        self.story: list[str] = []
        """A line for each change."""
        self._infos: list[ServiceInfo] = []
        self._started_at = time.monotonic()

    @asynccontextmanager
    async def serving(self, app: Everpoll) -> AsyncIterator[None]:
        """Register services of all formats, and serve them for the length of the block."""
        async with AsyncExitStack() as stack:
            port = await stack.enter_async_context(SmallServer(self._answer).serving())
            # Bound, but not listening: connections are refused, and no other program can take the port.
            dead = stack.enter_context(socket.socket())
            dead.bind((HOST, 0))
            app.services.configure(shortest="1s")
            app.services.subscribe(self._note)
            for name in FORMATS:
                needs = ("shop",) if name == "search" else ()
                app.service(name, f"http://{HOST}:{port}/{name}", every="1s", depends_on=needs)
            app.service("port", f"tcp://{HOST}:{port}", every="1s")
            app.service("archive", f"tcp://{HOST}:{dead.getsockname()[1]}", every="1s", backoff=Backoff("1s", jitter=0))
            app.service("backup", "beat:", every="2s", timeout="1s")
            self._add_beats(app)
            yield

    def _add_beats(self, app: Everpoll) -> None:
        """Send heartbeats for the backup, with a silence now and then."""

        @app.loop(every="1s", name="beats of the backup", when_hidden=1)
        async def beat() -> None:
            if (time.monotonic() - self._started_at) % BEATS_S < BEATS_S - SILENT_S:
                await app.services["backup"].beat()

    async def look(self, app: Everpoll) -> None:
        """Read the state of the services."""
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

    def _answer(self, asked: ReceivedRequest) -> Answer:
        name = asked.path.strip("/")
        age_s = time.monotonic() - self._started_at
        return FORMATS[name](age_s) if name in FORMATS else Answer(404, {"error": "no such service"})
