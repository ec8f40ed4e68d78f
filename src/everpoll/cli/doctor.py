"""`everpoll doctor`: diagnoses the database and the fleet, with evidence and remedies."""

import asyncio
from collections import defaultdict
from typing import Annotated

import typer
from rich import box
from rich.table import Table

from everpoll.cli.session import AsJson, Url, console, duration_s, found_app, plain, print_json
from everpoll.doctor import Check, Diagnosis, Level, diagnose
from everpoll.errors import BadInput
from everpoll.stores.examination import Examiner
from everpoll.stores.urls import default_url, store_for

SIGNS: dict[Level, str] = {"ok": "[green]✓[/]", "warning": "[bold yellow]![/]", "problem": "[bold red]✗[/]"}
EXIT: dict[Level, int] = {"ok": 0, "warning": 1, "problem": 2}
NOT_LOOKED = "not looked at: "


def doctor(
    app: Annotated[
        str | None,
        typer.Argument(help="The app, as module:variable. Without it: the database of --url.", metavar="APP"),
    ] = None,
    *,
    transaction_age: Annotated[
        str, typer.Option(help="Report transactions that are open for longer than this.")
    ] = "5m",
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Check the database and the workers. Exit code 0: all is well, 1: warnings, 2: problems."""
    age_s = duration_s("--transaction-age", transaction_age)
    if app is not None and url is not None:
        raise BadInput(f"--url: {app} has an address of its own; --url is for a diagnosis without an app")
    found = asyncio.run(found_app(app).doctor(age_s) if app is not None else diagnose(_examiner(url), age_s))
    if as_json:
        print_json(found)
    else:
        _show(found)
    raise typer.Exit(EXIT[found.worst])


def _examiner(url: str | None) -> Examiner:
    address = url or default_url()
    if address.startswith("memory:"):
        raise BadInput(f"{address} exists only in the process of its app: ask that process, GET /api/doctor")
    return store_for(address).examiner()


def _show(found: Diagnosis) -> None:
    out = console()
    table = Table(box=box.SIMPLE_HEAD, show_header=False, padding=(0, 1))
    table.add_column(no_wrap=True)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    skipped: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for one in found.checks:
        if one.says.startswith(NOT_LOOKED):
            skipped[one.says.removeprefix(NOT_LOOKED), one.remedy].append(one.name)
        else:
            table.add_row(SIGNS[one.level], one.name, _words(one))
    for (why, remedy), names in skipped.items():
        says = f"{', '.join(names)}: {why}"
        table.add_row(
            SIGNS["warning"], "not looked at", _words(Check(name="", level="warning", says=says, remedy=remedy))
        )
    out.print(table)
    out.print(_summary(found))


def _words(check: Check) -> str:
    return plain(check.says) + (f"\n[green]→[/] {plain(check.remedy)}" if check.remedy else "")


def _summary(found: Diagnosis) -> str:
    counts = {level: sum(one.level == level for one in found.checks) for level in EXIT}
    if found.ok:
        return f"[green]All is well:[/] {counts['ok']} checks."
    parts = [
        f"{counts[level]} {level}{'' if counts[level] == 1 else 's'}"
        for level in ("problem", "warning")
        if counts[level]
    ]
    return f"[bold]{' and '.join(parts)}[/], {counts['ok']} checks are fine."
