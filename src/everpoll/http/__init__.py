"""Requests to others: one client with address checks, limits and masked secrets, for every room that calls out."""

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
