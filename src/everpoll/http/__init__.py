"""Requests to other systems: one client with address checks, limits and masked secrets, for the whole of everpoll.

A name is imported when it is first used: a program that sends no request loads no client.
"""

import importlib as _importlib
import typing as _typing

if _typing.TYPE_CHECKING:
    from everpoll.http.client import HttpClient
    from everpoll.http.contract import (
        MAX_BODY_BYTES,
        MAX_REDIRECTS,
        TIMEOUT_S,
        Answer,
        Client,
        Kind,
        NotAsked,
        NotReached,
        Reach,
        Request,
        Tls,
    )
    from everpoll.http.dns import DnsResult, check_dns
    from everpoll.http.handshake import TlsResult, check_tls
    from everpoll.http.headers import Headers
    from everpoll.http.retry_after import retry_after_s
    from everpoll.http.tcp import TcpResult, check_tcp
    from everpoll.http.validators import Validator

__all__ = [
    "MAX_BODY_BYTES",
    "MAX_REDIRECTS",
    "TIMEOUT_S",
    "Answer",
    "Client",
    "DnsResult",
    "Headers",
    "HttpClient",
    "Kind",
    "NotAsked",
    "NotReached",
    "Reach",
    "Request",
    "TcpResult",
    "Tls",
    "TlsResult",
    "Validator",
    "check_dns",
    "check_tcp",
    "check_tls",
    "retry_after_s",
]

_NAMES = {
    "everpoll.http.client": "HttpClient",
    "everpoll.http.contract": (
        "MAX_BODY_BYTES MAX_REDIRECTS TIMEOUT_S Answer Client Kind NotAsked NotReached Reach Request Tls"
    ),
    "everpoll.http.dns": "DnsResult check_dns",
    "everpoll.http.handshake": "TlsResult check_tls",
    "everpoll.http.headers": "Headers",
    "everpoll.http.retry_after": "retry_after_s",
    "everpoll.http.tcp": "TcpResult check_tcp",
    "everpoll.http.validators": "Validator",
}
"""The module of each name, for the interpreter. Type checkers read the imports above."""
_HOMES = {name: home for home, names in _NAMES.items() for name in names.split()}

if not _typing.TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module 'everpoll.http' has no attribute {name!r}")
        found = globals()[name] = getattr(_importlib.import_module(_HOMES[name]), name)
        return found

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
