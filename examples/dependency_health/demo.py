"""The demo: start the servers, look at them, show what happens, and end with a summary."""

import asyncio
import contextlib
import os
import signal
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.live import Live

from everpoll import Everpoll, ServiceInfo
from examples.dependency_health.app import monitor
from examples.dependency_health.screen import Screen
from examples.dependency_health.servers import Servers
from examples.dependency_health.stories import STORIES

REFRESH_S = 0.25
LONGEST_FIRST_LOOK_S = 60.0


async def play(url: str, lasts_s: float | None) -> None:
    """Run for so long, and until each service was looked at; without a length, until Ctrl-C."""
    console, screen, servers = Console(), Screen(), Servers()
    with tempfile.TemporaryDirectory(prefix="everpoll-certificate-") as folder:
        certificate = Path(folder) / "expired.pem"
        # Trusted, so that its date is all that is wrong with it.
        os.environ["SSL_CERT_FILE"] = str(certificate)
        async with servers.running(certificate):
            app = monitor(url, servers.targets, screen.tell)
            app.services.subscribe(screen.note)
            async with app:
                infos = await _follow(console, screen, app, lasts_s)
    console.print(screen.summary(infos, servers.requests))
    looks, requests = screen.looks["catalog"] + screen.looks["catalog-copy"], servers.requests["catalog"]
    console.print(f"catalog and catalog-copy share a URL: {looks} looks, {requests} requests", highlight=False)


async def _follow(console: Console, screen: Screen, app: Everpoll, lasts_s: float | None) -> list[ServiceInfo]:
    started_at, printed, over = time.monotonic(), 0, asyncio.Event()
    for wanted in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(wanted, over.set)
    with Live(console=console, auto_refresh=False, transient=True) as live:
        while True:
            infos = [await one.info() for one in app.services]
            if console.is_terminal:
                live.update(screen.live(infos, time.time()), refresh=True)
            else:
                for line in screen.lines[printed:]:
                    console.print(line, markup=False, highlight=False, soft_wrap=True)
                printed = len(screen.lines)
            elapsed_s = time.monotonic() - started_at
            is_known = len(screen.looks) == len(STORIES) or elapsed_s > LONGEST_FIRST_LOOK_S
            if over.is_set() or (lasts_s is not None and elapsed_s >= lasts_s and is_known):
                return infos
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(over.wait(), REFRESH_S)
