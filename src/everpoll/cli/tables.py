"""`everpoll tables`: whether an app's adopted tables are as their mappings say, and the DDL for what is missing."""

import asyncio
from typing import Annotated

import typer
from rich import box
from rich.markup import escape
from rich.table import Table

from everpoll.cli.session import AsJson, console, found_app, print_json
from everpoll.errors import BadInput
from everpoll.tables import AdoptedTable
from everpoll.tables.contract import Finding, TableSource

tables = typer.Typer(name="tables", help="Check adopted tables, print their DDL.", no_args_is_help=True)

App = Annotated[str, typer.Argument(help="Where the app is: module:name.", metavar="MODULE:APP")]
Name = Annotated[str | None, typer.Argument(help="Only this table; default: all of them.", metavar="TABLE")]


@tables.command()
def ddl(app: App, table: Name = None) -> None:
    """Print the statements that give the tables what their mappings name: columns, indexes, push. Runs none of them."""
    for adopted in _wanted(app, table):
        typer.echo(f"-- {adopted.name}")
        for statement in asyncio.run(_statements(adopted.source)):
            typer.echo(f"{statement};")


@tables.command()
def check(app: App, table: Name = None, as_json: AsJson = False) -> None:
    """Look at columns, the index and its use, push and heartbeat. Ends with 1 if something needed is missing."""
    found = {adopted.name: asyncio.run(_inspected(adopted.source)) for adopted in _wanted(app, table)}
    if as_json:
        print_json(found)
    else:
        for name, findings in found.items():
            console().print(_shown(name, findings))
            for finding in findings:
                if not finding.is_fit and finding.ddl is not None:
                    typer.echo(f"{finding.ddl};")
    if any(one.is_needed and not one.is_fit for findings in found.values() for one in findings):
        raise typer.Exit(1)


def _wanted(path: str, name: str | None) -> list[AdoptedTable]:
    app = found_app(path)
    if name is None:
        if not app.tables:
            raise BadInput(f"{path!r} has adopted no tables: write app.table(Table(…)) first")
        return list(app.tables.values())
    if name not in app.tables:
        raise BadInput(f"{path!r} has not adopted {name!r}; adopted: {', '.join(app.tables) or 'none'}")
    return [app.tables[name]]


async def _statements(source: TableSource) -> list[str]:
    """What the table as it is lacks, and what may be run again."""
    try:
        # Looked at, it knows which columns are missing. Not opened: that is a worker's, and may change an SQLite file.
        await source.inspect()
        return source.ddl()
    finally:
        await source.close()


async def _inspected(source: TableSource) -> list[Finding]:
    try:
        return await source.inspect()
    finally:
        await source.close()


def _shown(name: str, findings: list[Finding]) -> Table:
    shown = Table(title=escape(name), box=box.SIMPLE_HEAD, title_justify="left")
    for column in ("", "what", "found"):
        shown.add_column(column, overflow="fold")
    for one in findings:
        sign = "[green]ok[/]" if one.is_fit else "[bold red]missing[/]" if one.is_needed else "[yellow]better with[/]"
        shown.add_row(sign, escape(one.what), escape(one.detail))
    return shown
