"""`everpoll serve` and `everpoll token`: the HTTP API without a worker, and its tokens."""

import asyncio
import contextlib
import logging
import secrets
import signal
from typing import TYPE_CHECKING, Annotated

import typer

from everpoll.app import Everpoll
from everpoll.cli.run import http_server, set_up_logging
from everpoll.cli.session import found_app
from everpoll.drivers.addresses import masked
from everpoll.errors import BadInput
from everpoll.policy import seconds

if TYPE_CHECKING:
    from everpoll.server.running import HttpServer

Host = Annotated[str, typer.Option(help="The address to listen on. Any address but loopback needs a token.")]
Port = Annotated[int, typer.Option(help="The port to listen on.", min=0, max=65_535)]
AllowHost = Annotated[
    list[str] | None, typer.Option(help="A host name that clients use, such as the proxy's; repeatable.")
]


def serve(
    app: Annotated[
        str | None,
        typer.Argument(help="The app, as module:variable. Without it, clients cannot start new work.", metavar="APP"),
    ] = None,
    *,
    host: Host = "127.0.0.1",
    port: Port = 8787,
    allow_host: AllowHost = None,
    prefix: Annotated[str, typer.Option(help="The path prefix of the proxy, such as /polls.")] = "",
    url: Annotated[
        str | None, typer.Option("--url", help="Without APP: the database address; default: $EVERPOLL_URL.")
    ] = None,
    grace: Annotated[str, typer.Option(help="How long open requests may continue after SIGTERM.")] = "10s",
) -> None:
    """Serve the HTTP API and the dashboard without a worker."""
    set_up_logging(verbose=False)
    if app is not None and url is not None:
        raise BadInput(f"--url: {app} has an address of its own; --url is for a server without an app")
    grace_s = seconds(grace, name="--grace")
    found = Everpoll(url) if app is None else found_app(app)
    if found.url.startswith("memory:"):
        raise BadInput(f"{found.url} exists only in the process of its app: write everpoll run APP --serve")
    logging.getLogger("everpoll").info("serving what is in %s", masked(found.url))
    server = http_server(found, host, port, allow_host, prefix=prefix, is_alone=True)
    asyncio.run(_serve(found, server, grace_s))


def token() -> None:
    """Print a new random token for the HTTP API."""
    typer.echo(secrets.token_urlsafe(32))


async def _serve(app: Everpoll, server: "HttpServer", grace_s: float) -> None:
    asked = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        with contextlib.suppress(NotImplementedError):
            asyncio.get_running_loop().add_signal_handler(number, asked.set)
    app.accompany(server)
    try:
        await server.start()
        await asked.wait()
    finally:
        await app.close(grace_s)
