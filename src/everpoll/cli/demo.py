"""`everpoll demo`: loops alive in a terminal. Some fail, back off, recover, pause; the table shows it as it happens."""

import asyncio
import contextlib
import json
import logging
import signal
import time
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from everpoll.app import Everpoll
from everpoll.cli.demo_loops import Scenario, demo_app
from everpoll.loops import Loop, Phase
from everpoll.policy import human, seconds

REFRESH_S = 0.25
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
) -> None:
    """Watch loops fail, back off, recover and pause, live. Ctrl-C ends it with a summary."""
    lasts_s = None if duration is None else seconds(duration, name="--for", positive=True)
    # The table tells the story here; the log would tear it apart.
    logging.getLogger("everpoll").addHandler(logging.NullHandler())
    logging.getLogger("everpoll").propagate = False
    console = Console()
    started = time.monotonic()
    app, scenario = asyncio.run(_show(console, lasts_s, quiet=as_json))
    lasted_s = time.monotonic() - started
    if as_json:
        typer.echo(json.dumps({"seconds": round(lasted_s, 3), "loops": [_summary(app.loops[n]) for n in app.loops]}))
    else:
        _print_summary(console, app, scenario, lasted_s)


async def _show(console: Console, lasts_s: float | None, *, quiet: bool) -> tuple[Everpoll, Scenario]:
    app, scenario = demo_app()
    over = asyncio.Event()
    event_loop = asyncio.get_running_loop()
    for wanted in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(NotImplementedError):
            event_loop.add_signal_handler(wanted, over.set)
    if lasts_s is not None:
        event_loop.call_later(lasts_s, over.set)
    async with app:
        if quiet:
            await over.wait()
        elif console.is_terminal:
            await _show_live(console, app, scenario, over)
        else:
            await _show_changes(console, app, scenario, over)
        for name in app.loops:
            scenario.final[name] = app.loops[name].state
    return app, scenario


async def _show_live(console: Console, app: Everpoll, scenario: Scenario, over: asyncio.Event) -> None:
    with Live(_table(app, scenario), console=console, auto_refresh=False, transient=True) as live:
        while not over.is_set():
            live.update(_table(app, scenario), refresh=True)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(over.wait(), REFRESH_S)


async def _show_changes(console: Console, app: Everpoll, scenario: Scenario, over: asyncio.Event) -> None:
    """Not a terminal: one line for each thing that happened, so that a log stays readable."""
    told = 0
    while not over.is_set():
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(over.wait(), REFRESH_S)
        for line in scenario.story[told:]:
            console.print(line, highlight=False, soft_wrap=True, markup=False)
        told = len(scenario.story)
    console.print(_table(app, scenario))


def _table(app: Everpoll, scenario: Scenario) -> Table:
    table = Table(title="everpoll · loops", title_style="bold", caption=scenario.caption(), box=box.SIMPLE_HEAD)
    table.add_column("name", style="bold", no_wrap=True, min_width=9)
    table.add_column("phase", no_wrap=True, min_width=7)
    for column in ("interval", "multiplier", "failures", "next due"):
        table.add_column(column, justify="right", no_wrap=True, min_width=len(column))
    table.add_column("last error", overflow="ellipsis", no_wrap=True, ratio=1)
    for name in app.loops:
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


def _print_summary(console: Console, app: Everpoll, scenario: Scenario, lasted_s: float) -> None:
    table = Table(title=f"after {human(round(lasted_s, 1))}", title_style="bold", box=box.SIMPLE_HEAD)
    table.add_column("name", style="bold", no_wrap=True)
    for column in ("runs", "failed", "recovered", "backoff"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("what it shows")
    for name in app.loops:
        seen = scenario.seen[name]
        longest = max(seen.longest, scenario.final[name].multiplier)
        table.add_row(
            name,
            str(app.loops[name].state.runs),
            str(seen.failed),
            str(seen.recovered),
            f"up to x{longest:g}",
            scenario.shows[name],
        )
    console.print(table)
    console.print("Next: docs/tutorial builds a loop like these, and a test for it, in five minutes.")
