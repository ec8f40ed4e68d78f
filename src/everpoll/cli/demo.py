"""`everpoll demo`: runs work of every kind, and shows it in the terminal and in the dashboard."""

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
import tempfile
import threading
import time
import webbrowser
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from everpoll.app import Everpoll
from everpoll.cli.demo_jobs import add_jobs
from everpoll.cli.demo_loops import Scenario, add_loops
from everpoll.cli.demo_services import ServiceStory
from everpoll.cli.demo_table import add_table
from everpoll.cli.demo_watches import RemoteStory
from everpoll.cli.session import duration_s
from everpoll.errors import BadInput
from everpoll.loops import Loop, Phase
from everpoll.policy import human

REFRESH_S = 0.25
TALL = 34
"""How many lines all three tables need; a smaller terminal shows services in the summary only."""
PHASE_STYLE = {
    Phase.IDLE: "dim",
    Phase.WAITING: "green",
    Phase.RUNNING: "bold cyan",
    Phase.PAUSED: "yellow",
    Phase.OPEN: "bold red",
    Phase.STOPPED: "dim",
    Phase.CLOSED: "dim",
}


def demo(
    duration: Annotated[str | None, typer.Option("--for", help="End after this long, such as 10s.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print only the summary, as JSON.")] = False,
    port: Annotated[int, typer.Option(help="Where the dashboard is; 0: any free port.", min=0, max=65_535)] = 8787,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Open no browser.")] = False,
) -> None:
    """Show jobs, watches, services, loops and a table at work, with failures. Ctrl-C ends it with a summary."""
    lasts_s = None if duration is None else duration_s("--for", duration)
    # The tables show everything; log lines would break their display.
    logging.getLogger("everpoll").addHandler(logging.NullHandler())
    logging.getLogger("everpoll").propagate = False
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="everpoll-demo-") as folder:
        stage = Demo(Path(folder) / "demo.db")
        asyncio.run(stage.play(lasts_s, None if as_json else port, opens_browser=not no_browser))
    lasted_s = time.monotonic() - started
    if as_json:
        typer.echo(json.dumps(stage.summary(lasted_s)))
    else:
        stage.print_summary(lasted_s)


class Demo:
    """The demo's app, its stories, and their display."""

    def __init__(self, database: Path) -> None:
        self._app = app = Everpoll(f"sqlite:///{database}")
        self._console = Console()
        self._scenario = add_loops(app)
        # The loops of the story, without the loop that only brings new jobs.
        self._names = list(app.loops)
        self._jobs = add_jobs(app)
        self._services = ServiceStory()
        self._remote = RemoteStory(app)
        self._orders = add_table(app, database)
        self._dashboard = ""

    async def play(self, lasts_s: float | None, port: int | None, *, opens_browser: bool) -> None:
        """Run until the time is over or a signal comes. Without a port, show nothing meanwhile."""
        over = asyncio.Event()
        event_loop = asyncio.get_running_loop()
        for wanted in (signal.SIGINT, signal.SIGTERM):
            with contextlib.suppress(NotImplementedError):
                event_loop.add_signal_handler(wanted, over.set)
        if lasts_s is not None:
            event_loop.call_later(lasts_s, over.set)
        async with self._services.serving(self._app), self._remote.serving(), self._app:
            if port is None:
                await over.wait()
            else:
                self._dashboard = await self._served(port)
                self._console.print(f"dashboard: {self._dashboard}", highlight=False, soft_wrap=True)
                if opens_browser and self._console.is_terminal and has_browser(os.environ, sys.platform):
                    # On some systems this call waits for the browser; a daemon thread does not delay the end.
                    threading.Thread(target=webbrowser.open, args=(self._dashboard,), daemon=True).start()
                await (self._show_live(over) if self._console.is_terminal else self._show_changes(over))
            for name in self._names:
                self._scenario.final[name] = self._app.loops[name].state

    async def _served(self, port: int) -> str:
        """Serve the dashboard, and return its address, or why it cannot be served."""
        try:
            from everpoll.server.running import HttpServer  # noqa: PLC0415 - the extra may be missing
        except ModuleNotFoundError as error:
            return f"needs {error.name}: pip install 'path/to/the/clone[server]'"
        server = HttpServer(self._app, port=port)
        try:
            await server.start()
        except BadInput:
            # The port is taken, perhaps by another demo.
            server = HttpServer(self._app, port=0)
            await server.start()
        self._app.accompany(server)
        return server.url

    async def _show_live(self, over: asyncio.Event) -> None:
        with Live(console=self._console, auto_refresh=False, transient=True) as live:
            while not over.is_set():
                live.update(await self._tables(), refresh=True)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(over.wait(), REFRESH_S)

    async def _show_changes(self, over: asyncio.Event) -> None:
        """Print one line for each event: for output that is not a terminal."""
        stories = (self._scenario.story, self._services.story)
        printed = [0, 0]
        while not over.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(over.wait(), REFRESH_S)
            for number, story in enumerate(stories):
                for line in story[printed[number] :]:
                    self._console.print(line, highlight=False, soft_wrap=True, markup=False)
                printed[number] = len(story)

    async def _tables(self) -> Group:
        await self._jobs.look(self._app)
        loops = _table(self._app, self._names, self._scenario)
        where = Text(f"dashboard: {self._dashboard}", style="bold", no_wrap=True)
        rest = Text(f"{self._runs_line()} · {self._orders_line()}", style="dim", no_wrap=True, justify="center")
        if self._console.height < TALL:
            return Group(where, loops, self._jobs.table(), rest)
        await self._services.look(self._app)
        return Group(where, loops, self._services.table(), self._jobs.table(), rest)

    def _runs_line(self) -> str:
        runs = self._remote.counts
        ended = f"{runs['done']} done, {runs['failed']} failed"
        return f"watches: {runs['begun']} runs, {runs['looks']} looks, {ended}"

    def _orders_line(self) -> str:
        return f"rows of a table: {self._orders['packed']} packed, {self._orders['failed']} failed"

    def summary(self, lasted_s: float) -> dict[str, object]:
        """Return the summary for scripts."""
        loops = [_summary(self._app.loops[name]) for name in self._names]
        jobs = {"enqueued": self._jobs.enqueued, "runs": dict(self._jobs.runs)}
        return {"seconds": round(lasted_s, 3), "loops": loops, "jobs": jobs, "looks": dict(self._services.looks)}

    def print_summary(self, lasted_s: float) -> None:
        """Print the summary for people."""
        table = Table(title=f"after {human(round(lasted_s, 1))}", title_style="bold", box=box.SIMPLE_HEAD)
        table.add_column("name", style="bold", no_wrap=True)
        for column in ("runs", "failed", "recovered", "backoff"):
            table.add_column(column, justify="right", no_wrap=True)
        table.add_column("what it shows")
        for name in self._names:
            seen, final = self._scenario.seen[name], self._scenario.final[name]
            longest = max(seen.longest, final.multiplier)
            counts = (
                str(final.runs),
                str(seen.failed),
                str(seen.recovered),
                f"up to x{longest:g}" if longest > 1 else "",
            )
            table.add_row(name, *counts, self._scenario.shows[name])
        self._console.print(table)
        self._console.print(self._jobs.summary(), highlight=False)
        self._console.print(self._services.summary(), highlight=False)
        self._console.print(self._runs_line(), highlight=False)
        self._console.print(self._orders_line(), highlight=False)
        self._console.print("Next: docs/quickstart.md, then your first job, watch, service and loop in docs/tutorial.")


def has_browser(environ: Mapping[str, str], platform: str) -> bool:
    """Return True if a browser window can be opened: not in CI, and not without a screen."""
    if environ.get("CI"):
        return False
    has_screen = bool(environ.get("DISPLAY") or environ.get("WAYLAND_DISPLAY"))
    return has_screen or platform == "win32" or (platform == "darwin" and not environ.get("SSH_CONNECTION"))


def _table(app: Everpoll, names: list[str], scenario: Scenario) -> Table:
    table = Table(title="loops", title_style="bold", caption=scenario.caption(), box=box.SIMPLE_HEAD, expand=True)
    table.add_column("name", style="bold", no_wrap=True, min_width=9)
    table.add_column("phase", no_wrap=True, min_width=7)
    for column in ("interval", "multiplier", "failures", "next due"):
        table.add_column(column, justify="right", no_wrap=True, min_width=len(column))
    table.add_column("last error", overflow="ellipsis", no_wrap=True, ratio=1)
    for name in names:
        table.add_row(*_row(app, app.loops[name]))
    return table


def _row(app: Everpoll, loop: Loop) -> list[str]:
    state = loop.state
    style = PHASE_STYLE[state.phase]
    due = "" if state.next_due is None else f"{max(0.0, state.next_due - app.loops.now()):.1f}s"
    error = escape(state.last_error or "")
    return [
        loop.name,
        f"[{style}]{state.phase.value}[/]",
        human(state.base_s),
        f"[red]x{state.multiplier:g}[/]" if state.multiplier > 1 else "x1",
        f"[red]{state.failures}[/]" if state.failures else "0",
        due,
        error if state.failures else f"[dim]{error}[/]",
    ]


def _summary(loop: Loop) -> dict[str, object]:
    state = loop.state
    return {
        "name": loop.name,
        "runs": state.runs,
        "failures": state.failures,
        "skips": state.skips,
        "last_error": state.last_error,
    }
