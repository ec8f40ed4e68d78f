"""`everpoll loops`: the loops of all processes, as each publishes them with its heartbeat."""

from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
import typer
from rich import box
from rich.table import Table

from everpoll.cli.session import AsJson, Url, ago, console, plain, print_json, with_store
from everpoll.errors import LoopNotFound
from everpoll.http.stored_secrets import without_secrets
from everpoll.policy import human
from everpoll.stores.contract import Store
from everpoll.stores.figures import LoopCard, PublishedLoops

loops = typer.Typer(name="loops", help="List and show the loops of all processes.", no_args_is_help=True)

LoopName = Annotated[str, typer.Argument(help="The loop's name.", metavar="NAME")]


@loops.command("list")
def list_loops(url: Url = None, as_json: AsJson = False) -> None:
    """List the loops of all processes that run, or that ended within the last hour."""
    _print(with_store(url, _found), as_json=as_json)


@loops.command("show")
def show(name: LoopName, url: Url = None, as_json: AsJson = False) -> None:
    """Show one loop, in each process that runs it."""
    found = [one for one in with_store(url, _found) if one["name"] == name]
    if not found:
        raise LoopNotFound(f"no process publishes a loop called {name!r}: `everpoll loops list` shows all")
    _print(found, as_json=as_json)


async def _found(store: Store) -> list[dict[str, Any]]:
    published = await store.published_loops()
    found = [_fields(card, process) for process in published for card in process.loops]
    return sorted(found, key=lambda one: (one["name"], one["worker"]))


def _fields(card: LoopCard, process: PublishedLoops) -> dict[str, Any]:
    instants = {name: _at(getattr(card, name)) for name in ("last_run_at", "next_due_at")}
    fields = msgspec.structs.asdict(card) | {"worker": process.worker, "is_alive": process.is_alive}
    safe: dict[str, Any] = without_secrets(fields)
    return safe | instants


def _at(instant: float | None) -> datetime | None:
    return None if instant is None else datetime.fromtimestamp(instant, UTC)


def _print(found: list[dict[str, Any]], *, as_json: bool) -> None:
    if as_json:
        print_json(found)
        return
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("loop", style="bold", overflow="fold")
    table.add_column("phase", no_wrap=True)
    for column in ("every", "runs", "failures", "last run"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("worker", overflow="fold")
    table.add_column("last error", overflow="fold")
    for one in found:
        table.add_row(
            plain(one["name"]),
            plain(one["phase"]) if one["is_alive"] else "[bold red]silent[/]",
            human(one["every_s"]),
            str(one["runs"]),
            str(one["failures"]),
            ago(one["last_run_at"]),
            plain(one["worker"]),
            plain(one["last_error"] or ""),
        )
    console().print(table if found else "No process publishes a loop.")
