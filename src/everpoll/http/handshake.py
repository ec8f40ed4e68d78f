"""The TLS check: verifies the certificate of a host, and returns when it and its issuers expire."""

import asyncio
import ssl
from typing import Any

from msgspec import Struct

from everpoll.http.certificates import expires_at
from everpoll.http.contract import TIMEOUT_S, Reach, Tls
from everpoll.http.faults import place_of
from everpoll.http.host_connections import connected, place
from everpoll.http.tls import context_of, failed_handshake, server_name

_MOST_NAMES = 100


class TlsResult(Struct, frozen=True, gc=False):
    """A handshake that verified the other side."""

    address: str
    latency_s: float
    """The time for name look-up, connecting and the handshake."""
    protocol: str
    """`TLSv1.3` and the like."""
    cipher: str
    subject: str
    """The common name of the certificate, or its first name."""
    issuer: str
    names: tuple[str, ...]
    """Hosts and addresses that the certificate is for, 100 at most."""
    certificate_expires_at: float | None
    """Epoch seconds."""
    chain_expires_at: tuple[float, ...]
    """When each certificate expires, from the host's to the authority's."""

    @property
    def first_expires_at(self) -> float | None:
        """When the first certificate of the chain expires: from then on the host is not trusted."""
        return min(self.chain_expires_at, default=self.certificate_expires_at)


async def check_tls(
    host: str,
    port: int = 443,
    *,
    tls: Tls | ssl.SSLContext | None = None,
    timeout_s: float = TIMEOUT_S,
    reach: Reach = Reach.NAMED,
) -> TlsResult:
    """Connect, verify the certificate, and disconnect; raise `NotReached` with the reason if the handshake fails."""
    loop, target = asyncio.get_running_loop(), place(host, port)
    began, name = loop.time(), server_name(tls, target.host)
    context = await context_of(tls)
    async with connected(target, reach, timeout_s) as connection:
        try:
            _, writer = await asyncio.open_connection(
                sock=connection.sock, ssl=context, server_hostname=name, ssl_handshake_timeout=timeout_s + 60
            )
        except ssl.SSLError as error:
            raise await failed_handshake(error, place_of(target), name, connection.addresses) from None
        try:
            shown: ssl.SSLObject = writer.get_extra_info("ssl_object")
            return _result(shown, connection.address.ip, loop.time() - began)
        finally:
            writer.transport.abort()


def _result(shown: ssl.SSLObject, address: str, latency_s: float) -> TlsResult:
    certificate: dict[str, Any] = shown.getpeercert() or {}
    names = tuple(str(name) for _, name in certificate.get("subjectAltName", ())[:_MOST_NAMES])
    cipher = shown.cipher()
    chain = tuple(found for der in _chain(shown) if (found := expires_at(der)) is not None)
    return TlsResult(
        address=address,
        latency_s=latency_s,
        protocol=shown.version() or "",
        cipher=cipher[0] if cipher else "",
        subject=_common_name(certificate.get("subject", ())) or next(iter(names), ""),
        issuer=_common_name(certificate.get("issuer", ())),
        names=names,
        certificate_expires_at=chain[0] if chain else None,
        chain_expires_at=chain,
    )


def _chain(shown: ssl.SSLObject) -> list[bytes]:
    """Return the verified certificates; before Python 3.13 only that of the host can be read."""
    if hasattr(shown, "get_verified_chain"):
        found: list[bytes] = shown.get_verified_chain()
        return found
    own = shown.getpeercert(binary_form=True)
    return [] if own is None else [own]


def _common_name(parts: Any) -> str:
    pairs = [pair for part in parts for pair in part]
    return next((str(value) for key, value in pairs if key in ("commonName", "organizationName")), "")
