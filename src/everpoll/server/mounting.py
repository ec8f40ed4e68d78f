"""Mounting: makes the HTTP app of an app; without given tokens, with those of the environment."""

import os
from collections.abc import Iterable

from everpoll.errors import BadInput
from everpoll.server.access import Access, own_hosts
from everpoll.server.asgi import HttpApp
from everpoll.server.mounts import checked_prefix
from everpoll.server.served import ServedApp

TOKEN = "EVERPOLL_TOKEN"  # noqa: S105 - the name of the variable
READ_TOKEN = "EVERPOLL_READ_TOKEN"  # noqa: S105


def mounted(
    app: ServedApp, prefix: str, token: str | None, *, read_only: bool, hosts: Iterable[str] | None = None
) -> HttpApp:
    """Return the HTTP app; raise `BadInput` for arguments that are not valid."""
    if isinstance(hosts, str):
        raise BadInput(f"hosts={hosts!r}: write a list of names, as [{hosts!r}]")
    known = None if hosts is None else own_hosts("", hosts)
    return HttpApp(app, access_of(token, read_only=read_only, hosts=known), checked_prefix(prefix))


def access_of(token: str | None, *, read_only: bool, hosts: frozenset[str] | None) -> Access:
    """Return the access rules: by the given tokens, else by those of the environment."""
    given = token if token is not None else os.environ.get(TOKEN) or None
    return Access(given, os.environ.get(READ_TOKEN) or None, read_only, hosts)
