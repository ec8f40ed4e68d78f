"""`everpoll run` and `everpoll migrate`: what a fleet starts."""

import asyncio
import logging
import os
import sys
from dataclasses import replace
from typing import Annotated

import typer
from rich.console import Console
from rich.logging import RichHandler

from everpoll.cli.log_lines import JsonLines, PlainLines
from everpoll.cli.session import Url, found_app
from everpoll.drivers.addresses import masked
from everpoll.errors import BadInput
from everpoll.stores.contract import Store
from everpoll.stores.urls import default_url, store_for


def run(
    app: Annotated[str, typer.Argument(help="Where the app is: module:name.", metavar="MODULE:APP")],
    grace: Annotated[str, typer.Option(help="How long handlers may go on after SIGTERM.")] = "10s",
    slots: Annotated[
        int | None,
        typer.Option(help="Tasks at a time, in place of the app's own; of a table, unless it has its own.", min=1),
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log every look, too.")] = False,
) -> None:
    """Run an app's jobs and loops until SIGTERM or Ctrl-C."""
    set_up_logging(verbose=verbose)
    found = found_app(app)
    if slots is not None:
        found.worker_options = replace(found.worker_options, slots=slots)
    log = logging.getLogger("everpoll")
    log.info("running %s on %s", app, masked(found.url))
    if not (found.queues or found.tables or len(found.loops)):
        log.warning("nothing is registered on %s: is the module that has its jobs imported?", app)
    elif found.queues and found.url.startswith("memory:"):
        log.warning("tasks in %s live in this process alone: no other can enqueue any", found.url)
    asyncio.run(found.run(grace))


def migrate(url: Url = None) -> None:
    """Bring the database's schema up to date; safe beside running workers and other migrations."""

    async def apply(store: Store) -> list[str]:
        try:
            return await store.migrate()
        finally:
            await store.close()

    address = url or default_url()
    applied = asyncio.run(apply(store_for(address)))
    for name in applied:
        typer.echo(f"applied {name}")
    typer.echo(f"{masked(address)} is up to date")


def set_up_logging(*, verbose: bool) -> None:
    """`EVERPOLL_LOG=pretty` for people (the default), `json` for machines: one object a line."""
    kind = os.environ.get("EVERPOLL_LOG", "pretty")
    if kind not in {"pretty", "json"}:
        raise BadInput(f"EVERPOLL_LOG={kind!r}: write pretty or json")
    handler: logging.Handler
    if kind == "json":
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(JsonLines())
    else:
        handler = RichHandler(console=Console(stderr=True), show_path=False, rich_tracebacks=False)
        handler.setFormatter(PlainLines("%(message)s", datefmt="%H:%M:%S"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    logging.getLogger("everpoll").setLevel(logging.DEBUG if verbose else logging.INFO)
