"""`everpoll run` and `everpoll migrate`: run a worker, and update the schema."""

import asyncio
import logging
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from everpoll.app import Everpoll
from everpoll.cli.channels import add_channels
from everpoll.cli.configuration import configure, load, missing_variables
from everpoll.cli.session import Url, found_app
from everpoll.drivers.addresses import masked
from everpoll.drivers.missing_packages import missing_server
from everpoll.errors import BadInput
from everpoll.logs import log_handler
from everpoll.stores.contract import Store
from everpoll.stores.urls import default_url, store_for

if TYPE_CHECKING:
    from everpoll.server.running import HttpServer


def run(  # noqa: PLR0913 - options of a command
    app: Annotated[
        str | None, typer.Argument(help="The app, as module:variable. Without it: only services.", metavar="APP")
    ] = None,
    *,
    config: Annotated[Path | None, typer.Option(help="A TOML file with services and alert channels.")] = None,
    grace: Annotated[str, typer.Option(help="How long running handlers may continue after SIGTERM.")] = "10s",
    slots: Annotated[
        int | None,
        typer.Option(
            help="How many tasks run at a time; default: the app's option. Tables with slots of their own keep them.",
            min=1,
        ),
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Also log each poll, and each look.")] = False,
    url: Annotated[
        str | None, typer.Option("--url", help="Without APP: the database address; default: $EVERPOLL_URL.")
    ] = None,
    serve: Annotated[bool, typer.Option("--serve", help="Also serve the dashboard and the HTTP API.")] = False,
    host: Annotated[str, typer.Option(help="With --serve: the address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="With --serve: the port to listen on.", min=0, max=65_535)] = 8787,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(help="With --serve: a host name that clients use, such as the proxy's; repeatable."),
    ] = None,
    prefix: Annotated[str, typer.Option(help="With --serve: the path prefix of the proxy, such as /polls.")] = "",
) -> None:
    """Run a worker for an app, a configuration file, or the stored services, until SIGTERM or Ctrl-C."""
    set_up_logging(verbose=verbose)
    found = _app(app, config, url)
    if slots is not None:
        found.worker_options = replace(found.worker_options, slots=slots)
    log = logging.getLogger("everpoll")
    what = " with ".join(str(one) for one in (app, config) if one is not None) or "the services of the database"
    log.info("running %s on %s", what, masked(found.url))
    is_anything = bool(found.queues or found.tables or len(found.loops) or found.services.is_set_up)
    if app is None and not len(found.services):
        log.info("no services are configured here: looking at the services that `everpoll services add` adds")
    elif not is_anything:
        log.warning("nothing is registered on %s: is the module that has its jobs imported?", what)
    elif found.queues and found.url.startswith("memory:"):
        log.warning("tasks in %s live in this process alone: no other process can enqueue one", found.url)
    server = http_server(found, host, port, allow_host, prefix=prefix) if serve else None
    asyncio.run(_run(found, grace, server))


async def _run(app: Everpoll, grace: str, server: "HttpServer | None") -> None:
    if server is not None:
        app.accompany(server)
        await server.start()
    await app.run(grace)


def http_server(
    app: Everpoll, host: str, port: int, allow_host: list[str] | None, *, prefix: str = "", is_alone: bool = False
) -> "HttpServer":
    """Return the server of an app; raise `BadInput` if the extra is missing."""
    try:
        from everpoll.server.running import HttpServer  # noqa: PLC0415 - the extra may be missing
    except ModuleNotFoundError as error:
        raise missing_server(error.name) from None
    return HttpServer(app, host, port, prefix=prefix, allowed_hosts=allow_host or (), is_alone=is_alone)


def _app(path: str | None, config: Path | None, url: str | None) -> Everpoll:
    """Return the app of a module, or an app with only the services of the file and the database."""
    if path is not None and url is not None:
        raise BadInput(f"--url: {path} has an address of its own; --url is for runs without an app")
    configuration = None if config is None else load(config)
    app = Everpoll(url) if path is None else found_app(path)
    if path is None:
        app.services.finds_others = True
    if configuration is not None:
        configure(app, configuration, add_channels)
        for name in missing_variables(configuration, os.environ):
            text = "%s refers to ${%s}, which the environment does not have: set it before you start everpoll"
            logging.getLogger("everpoll").warning(text, config, name)
    return app


def migrate(url: Url = None) -> None:
    """Create or update the database schema. Safe while workers run."""

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
    """Log to standard error as `EVERPOLL_LOG` says: `pretty` for people (the default), `json` for machines."""
    logging.basicConfig(level=logging.INFO, handlers=[log_handler()])
    logging.getLogger("everpoll").setLevel(logging.DEBUG if verbose else logging.INFO)
