"""`everpoll schedules`: list schedules."""

from datetime import UTC, datetime

import typer
from rich import box
from rich.table import Table

from everpoll.cli.session import AsJson, Url, ago, console, plain, print_json, with_store
from everpoll.jobs.schedule_listing import ScheduleInfo, list_schedules
from everpoll.policy import human

schedules = typer.Typer(name="schedules", help="List schedules.", no_args_is_help=True)


@schedules.callback()
def _group() -> None:
    """List schedules."""


@schedules.command("list")
def show(url: Url = None, as_json: AsJson = False) -> None:
    """List all schedules: which job is enqueued, and when."""
    found: list[ScheduleInfo] = with_store(url, list_schedules)
    if as_json:
        print_json(found)
        return
    table = Table(box=box.SIMPLE_HEAD)
    for column, style in (("schedule", "bold"), ("job", ""), ("when", "")):
        table.add_column(column, style=style, overflow="fold")
    for column in ("next", "last"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("missed")
    for one in found:
        table.add_row(plain(one.name), plain(one.job), plain(one.timetable), _next(one), ago(one.last_at), one.missed)
    console().print(table if found else "No schedule is registered. `@app.schedule(…)` above `@app.job()` makes one.")


def _next(one: ScheduleInfo) -> str:
    if not one.is_registered:
        return "[bold yellow]no live worker has it[/]"
    if one.next_at is None:
        return "starting"
    left_s = (one.next_at - datetime.now(UTC)).total_seconds()
    return f"in {human(max(1, round(left_s)))}" if left_s > 0 else "due now"
