"""Addresses of a Supabase project or a PostgREST server.

    https://xyz.supabase.co            a project: /rest/v1 is added, and Realtime is beside it
    https://api.example.com/rest/v1    the same under a name of one's own, or self-hosted
    http://127.0.0.1:3000              a bare PostgREST server; it has no Realtime

Never: takes a key from an address. Addresses are logged, keys are not.
"""

import urllib.request
from urllib.parse import urlsplit, urlunsplit

from msgspec import Struct

from everpoll.errors import BadInput

REST_PATH = "/rest/v1"
REALTIME_PATH = "/realtime/v1/websocket"
HOSTED = (".supabase.co", ".supabase.in", ".supabase.red")
LOOPBACK = ("127.0.0.1", "::1", "localhost")


class ProjectAddress(Struct, frozen=True):
    """The addresses of a project: its tables, and its Realtime."""

    rest: str
    """The address of the tables, without a slash at its end."""
    realtime: str | None
    """The address of the WebSocket; None: a bare PostgREST server."""
    is_private: bool
    """False: the key travels unencrypted over a network."""


def proxy_for(url: str) -> str | None:
    """Return the proxy that the environment names for this address (`HTTPS_PROXY`, `NO_PROXY`); None: no proxy.

    The HTTP client must not find the proxy by itself: it would also read `.netrc`, again for each request.
    """
    parts = urlsplit(url)
    if urllib.request.proxy_bypass(parts.netloc):
        return None
    kind = {"ws": "http", "wss": "https"}.get(parts.scheme, parts.scheme)
    return urllib.request.getproxies().get(kind)


def address_of(url: str) -> ProjectAddress:
    """Parse the address that the user wrote; `BadInput` shows what is accepted."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        raise BadInput("the address of the Supabase project cannot be read; write https://….supabase.co") from None
    if parts.username or parts.password or parts.query or parts.fragment:
        # Not quoted: what is there may be a key.
        raise BadInput(
            f"the address of {host!r} carries more than a host and a path; give the key by token=… or "
            "$SUPABASE_SERVICE_KEY, never in the address"
        )
    is_host = bool(host) and host.isprintable() and not any(sign.isspace() for sign in host)
    if parts.scheme.lower() not in {"http", "https"} or not is_host:
        raise BadInput("the address of a Supabase project is https://….supabase.co, that of PostgREST http://host:port")
    path = parts.path.rstrip("/")
    if not path and host.lower().endswith(HOSTED):
        path = REST_PATH
    is_project = path.endswith(REST_PATH)
    is_secure = parts.scheme.lower() == "https"
    realtime = urlunsplit(
        ("wss" if is_secure else "ws", parts.netloc, path.removesuffix(REST_PATH) + REALTIME_PATH, "", "")
    )
    return ProjectAddress(
        rest=urlunsplit((parts.scheme.lower(), parts.netloc, path, "", "")),
        realtime=realtime if is_project else None,
        is_private=is_secure or host in LOOPBACK,
    )
