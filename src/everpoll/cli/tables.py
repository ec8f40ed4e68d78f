"""`everpoll tables`: shows an app's adopted tables: rows by status, findings, and the DDL that they lack."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, TypeVar

import typer
from msgspec import Struct
from rich import box
from rich.markup import escape
from rich.table import Table

from everpoll.cli.session import AsJson, ago, console, found_app, plain, print_json, with_store
from everpoll.engine.why import Why
from everpoll.errors import BadInput, EverpollError, TaskNotFound
from everpoll.stores.contract import WorkerInfo
from everpoll.tables import AdoptedTable
from everpoll.tables.contract import Finding, StatusCount
from everpoll.tables.overview import TableWorker
from everpoll.tables.source import TableSource
from everpoll.tables.why import counted_text, why_row

T = TypeVar("T")

tables = typer.Typer(name="tables", help="List and check adopted tables, and print their DDL.", no_args_is_help=True)

App = Annotated[str, typer.Argument(help="The app, as module:variable.", metavar="MODULE:APP")]
Name = Annotated[str | None, typer.Argument(help="Only this table; default: all.", metavar="TABLE")]


class TableOverview(Struct, frozen=True, kw_only=True):
    """One line of `everpoll tables list`."""

    name: str
    has_handler: bool
    counts: list[StatusCount]
    workers: list[TableWorker]
    """The workers that hold rows."""
    error: str | None = None
    """Why the table could not be read; the rest is empty then."""


@tables.command("list")
def list_tables(app: App, table: Name = None, as_json: AsJson = False) -> None:
    """List adopted tables with their rows by status, and the workers that hold rows. Counts stop at 10,000."""
    found = [asyncio.run(_overview(adopted)) for adopted in _wanted(app, table)]
    if as_json:
        print_json(found)
        return
    listed = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in ("table", "handler", "rows", "workers with rows"):
        listed.add_column(column, overflow="fold")
    for one in found:
        rows = one.error or ", ".join(map(counted_text, one.counts))
        listed.add_row(plain(one.name), "yes" if one.has_handler else "no", plain(rows), str(len(one.workers)))
    console().print(listed)


async def _overview(adopted: AdoptedTable) -> TableOverview:
    async def use(source: TableSource[Any, Any]) -> TableOverview:
        counts, workers = await source.counts(), await source.workers()
        return TableOverview(name=adopted.name, has_handler=adopted.has_handler, counts=counts, workers=workers)

    try:
        return await _used(adopted, use)
    except EverpollError as error:
        return TableOverview(
            name=adopted.name, has_handler=adopted.has_handler, counts=[], workers=[], error=str(error)
        )


def list_workers(path: str, url: str | None, as_json: bool) -> None:
    """Print `everpoll workers --app`: the workers of the app's store, if it has work there, and those of its tables."""
    from everpoll.cli.jobs import show_workers  # noqa: PLC0415 - imports all of jobs

    app = found_app(path)
    with_rows: list[TableWorker] = []
    errors: list[EverpollError] = []
    for adopted in app.tables.values():
        try:
            with_rows += asyncio.run(_used(adopted, _workers_of))
        except EverpollError as error:
            errors.append(error)
    is_needed = url is not None or app.needs_store
    found: list[WorkerInfo] = with_store(url or app.url, lambda store: store.workers()) if is_needed else []
    if as_json:
        print_json([*found, *with_rows])
    else:
        if found or (is_needed and not with_rows):
            show_workers(found)
        if with_rows:
            console().print(_workers(with_rows))
        elif app.tables:
            typer.echo("No worker holds rows of the app's tables; an idle one leaves no trace there.")
    # A table that cannot be read hides no worker of another one.
    for other in errors[1:]:
        typer.echo(f"everpoll: {other}", err=True)
    if errors:
        raise errors[0]


async def _workers_of(source: TableSource[Any, Any]) -> list[TableWorker]:
    return await source.workers()


def _workers(found: list[TableWorker]) -> Table:
    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in ("worker", "state", "table"):
        shown.add_column(column, overflow="fold")
    for column in ("running", "heartbeat", "oldest claim"):
        shown.add_column(column, no_wrap=True, justify="right")
    states = {True: "[green]alive[/]", False: "[bold red]silent[/]", None: "unknown"}
    for one in found:
        row = (plain(one.label), states[one.is_alive], plain(one.table), str(one.running))
        shown.add_row(*row, ago(one.beat_at) or "none", ago(one.started_at))
    return shown


def why_table_row(app: str, name: str) -> Why | None:
    """Explain the row TABLE:KEY, or TABLE#KEY as logs write it; None if the app has adopted no table of that name."""
    tables = found_app(app).tables
    table_name = max((one for one in tables if name.startswith((f"{one}:", f"{one}#"))), key=len, default=None)
    if table_name is None:
        return None
    adopted, key = tables[table_name], name[len(table_name) + 1 :]

    async def use(source: TableSource[Any, Any]) -> Why:
        row = await source.row_state(key)
        if row is None:
            raise TaskNotFound(f"table {table_name!r} has no row {key!r}")
        return why_row(adopted.table, name, row, await source.counts(), await source.workers())

    return asyncio.run(_used(adopted, use))


async def _used(adopted: AdoptedTable, use: Callable[[TableSource[Any, Any]], Awaitable[T]]) -> T:
    try:
        return await use(adopted.source)
    finally:
        await adopted.source.close()


@tables.command()
def ddl(app: App, table: Name = None) -> None:
    """Print the SQL that adds missing columns, indexes and triggers. Nothing is run."""
    for adopted in _wanted(app, table):
        typer.echo(f"-- {adopted.name}")
        for statement in asyncio.run(_used(adopted, _statements)):
            typer.echo(f"{statement};")


@tables.command()
def check(app: App, table: Name = None, as_json: AsJson = False) -> None:
    """Check columns, index, push and heartbeat. Exit code 1: something needed is missing."""
    adopted = _wanted(app, table)
    found = {one.name: asyncio.run(_used(one, _inspected)) for one in adopted}
    if as_json:
        print_json(found)
    else:
        for one in adopted:
            console().print(_shown(one.name, found[one.name]))
            # The very statements of `everpoll tables ddl`, which are more than those of single findings: a table that
            # lacks columns needs the index as well.
            for statement in one.source.ddl():
                typer.echo(f"{statement};")
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


async def _statements(source: TableSource[Any, Any]) -> list[str]:
    """Return the statements that add what the table lacks; each may be run again."""
    # Inspected, it knows which columns are missing. Not opened: only a worker may switch an SQLite file to WAL.
    await source.inspect()
    return source.ddl()


async def _inspected(source: TableSource[Any, Any]) -> list[Finding]:
    return await source.inspect()


def _shown(name: str, findings: list[Finding]) -> Table:
    shown = Table(title=escape(name), box=box.SIMPLE_HEAD, title_justify="left")
    for column in ("", "what", "found"):
        shown.add_column(column, overflow="fold")
    for one in findings:
        sign = "[green]ok[/]" if one.is_fit else "[bold red]missing[/]" if one.is_needed else "[yellow]better with[/]"
        shown.add_row(sign, escape(one.what), escape(one.detail))
    return shown
