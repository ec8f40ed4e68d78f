"""Running: uvicorn beside an app, in the same event loop.

Promises: a port that is taken is an error at once. A server without a token listens on this machine only. Stopping
takes no new connection, ends streams, lets other answers finish for the grace period, and then drops what is left. A
client that does not read what it was sent costs a connection and its buffer for UNREAD_S, on Linux; one that does not
finish a request costs a connection for half a minute.
Requests are not logged: their paths may carry the tokens of heartbeats.
"""

import asyncio
import contextlib
import errno
import gc
import logging
import socket
from collections.abc import Collection, Iterable, Iterator
from typing import cast

import uvicorn

from everpoll.errors import BadInput
from everpoll.server.access import is_loopback, own_hosts
from everpoll.server.asgi import HttpApp
from everpoll.server.mounting import READ_TOKEN, TOKEN, access_of
from everpoll.server.mounts import checked_prefix
from everpoll.server.served import ServedApp
from everpoll.server.silent_connections import Connection, SilentConnections

logger = logging.getLogger("everpoll.server")

PORT = 8787
HOST = "127.0.0.1"
STOP_S = 5.0
"""The longest time for answers to finish, even with a longer grace period."""
FORCE_S = 1.0
BACKLOG = 2_048
UNREAD_S = 30.0
"""How long a client may leave what was sent to it unread. After that the kernel closes the connection: uvicorn would
keep it, and its buffer, for as long as the client lives. Only Linux does this."""


def _exempt_from_garbage_collection() -> None:
    """Exempt loaded objects from garbage collection.

    A page of a thousand rows makes enough objects for a full collection, which visits all that live. With those of the
    start among them it took as long as the page itself, and doubled the p95 of every long list.
    """
    gc.collect()
    gc.freeze()


class _Uvicorn(uvicorn.Server):
    """Leaves signals to the app."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture no signals."""
        yield


class HttpServer:
    """The HTTP API of one app on one address."""

    def __init__(
        self,
        app: ServedApp,
        host: str = HOST,
        port: int = PORT,
        *,
        prefix: str = "",
        allowed_hosts: Iterable[str] = (),
        is_alone: bool = False,
    ) -> None:
        access = access_of(None, read_only=False, hosts=own_hosts(host, allowed_hosts))
        if access.is_open and not is_loopback(host):
            raise BadInput(
                f"--host {host}: other machines could change everything without a token: set ${TOKEN} "
                f"(`everpoll token` makes one) or ${READ_TOKEN}, or listen on {HOST}"
            )
        self._prefix = checked_prefix(prefix)
        self.http_app = HttpApp(app, access, self._prefix, watches_signals=False, is_alone=is_alone)
        self._host, self._port = host, port
        self._server: _Uvicorn | None = None
        self._serving: asyncio.Task[None] | None = None
        self._sweeping: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        """The URL of the server."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self._port}{self._prefix}"

    async def start(self) -> None:
        """Start listening."""
        listener = self._listener()
        self._port = listener.getsockname()[1]
        config = uvicorn.Config(
            self.http_app,
            lifespan="off",
            ws="none",
            log_config=None,
            # Start and end are logged below; uvicorn's own records of them contain escape codes for terminals.
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=int(STOP_S),
        )
        self._server = _Uvicorn(config)
        self._serving = asyncio.get_running_loop().create_task(
            self._serve(self._server, listener), name="everpoll-http"
        )
        while not self._server.started and not self._serving.done():  # noqa: ASYNC110 - uvicorn notifies of nothing
            await asyncio.sleep(0.01)
        if self._serving.done():
            self._serving.result()
        silent = SilentConnections(cast("Collection[Connection]", self._server.server_state.connections))
        self._sweeping = asyncio.get_running_loop().create_task(silent.run(), name="everpoll-silent-connections")
        await self.http_app.begin()
        _exempt_from_garbage_collection()
        logger.info("serving %s", self.url)

    async def _serve(self, server: _Uvicorn, listener: socket.socket) -> None:
        with contextlib.closing(listener):
            await server.serve(sockets=[listener])

    async def stop(self, grace_s: float) -> None:
        """Stop; requests that are not answered within the grace period are dropped. May be repeated."""
        server, serving = self._server, self._serving
        self._server = self._serving = None
        if server is None or serving is None:
            return
        if self._sweeping is not None:
            self._sweeping.cancel()
        server.should_exit = True
        self.http_app.end_streams()
        try:
            await asyncio.wait({serving}, timeout=min(grace_s, STOP_S))
            server.force_exit = True
            await asyncio.wait({serving}, timeout=FORCE_S)
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)
            self.http_app.close()

    def _listener(self) -> socket.socket:
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        try:
            listener = socket.create_server((self._host, self._port), family=family, backlog=BACKLOG)
        except (OSError, OverflowError) as error:
            is_taken = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
            why = "another program has this port" if is_taken else error
            raise BadInput(f"cannot listen on {self.url}: {why}; choose another --port") from None
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            # The connections that it accepts inherit this.
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(1_000 * UNREAD_S))
        # As a socket that names its protocol: asyncio turns Nagle's algorithm off for those alone, and with it on, each
        # answer on a kept connection waits 40 ms for the client's acknowledgment of its headers.
        return socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP, listener.detach())
