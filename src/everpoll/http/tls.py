"""TLS: contexts that verify certificates, and errors for handshakes that failed.

Promises: the other side is verified by the system's authorities, or by those of `Tls.ca_file`. A context is made once,
in a thread, because loading the authorities takes some 20 ms; files that have changed since are read again.
"""

import asyncio
import ssl
import time
from pathlib import Path

from everpoll.http.address_ranges import IpAddress
from everpoll.http.certificates import expires_at
from everpoll.http.connecting import connect
from everpoll.http.contract import Kind, NotAsked, NotReached, Tls
from everpoll.http.lookups import in_daemon_thread
from everpoll.policy import human

_EXPIRED, _NOT_YET_VALID, _SELF_SIGNED, _SELF_SIGNED_IN_CHAIN = 10, 9, 18, 19
_UNKNOWN_ISSUER = (2, 20, 21, 27)
_OTHER_NAME = (62, 64)
_MAX_CONTEXTS = 256
_PROBE_S = 3.0

_Stamp = tuple[int, ...]
_contexts: dict[tuple[Tls | None, _Stamp], ssl.SSLContext] = {}


async def context_of(tls: Tls | ssl.SSLContext | None) -> ssl.SSLContext:
    """Return the context for these options; raise `NotAsked` if one of their files cannot be used."""
    if isinstance(tls, ssl.SSLContext):
        return tls
    key = (tls, () if tls is None else _stamp(tls))
    found = _contexts.get(key)
    if found is None:
        found = await in_daemon_thread(lambda: _made(tls))
        while len(_contexts) >= _MAX_CONTEXTS:
            del _contexts[next(iter(_contexts))]
        _contexts[key] = found
    return found


def server_name(tls: Tls | ssl.SSLContext | None, host: str) -> str:
    """Return the name that the certificate must have."""
    return tls.server_name if isinstance(tls, Tls) and tls.server_name else host


async def failed_handshake(error: ssl.SSLError, place: str, name: str, addresses: list[IpAddress]) -> NotReached:
    """Return the error for a handshake that failed, with the date of a certificate that has expired."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return NotReached(f"{place}: {await _verdict(error, name, addresses)}", Kind.TLS)
    if error.reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNKNOWN_PROTOCOL", "RECORD_LAYER_FAILURE"):
        return NotReached(f"{place} does not speak TLS", Kind.TLS)
    why = (error.reason or "the connection ended").replace("_", " ").lower()[:100]
    return NotReached(f"{place}: the TLS handshake failed: {why}", Kind.TLS)


async def _verdict(error: ssl.SSLCertVerificationError, name: str, addresses: list[IpAddress]) -> str:
    match error.verify_code:
        case code if code == _EXPIRED:
            return await _expired(name, addresses)
        case code if code == _NOT_YET_VALID:
            return "its certificate is not valid yet (or the clock of this machine is wrong)"
        case code if code in (_SELF_SIGNED, _SELF_SIGNED_IN_CHAIN):
            return "its certificate is self-signed, and not trusted"
        case code if code in _UNKNOWN_ISSUER:
            return "its certificate comes from an authority that is not trusted, or lacks an intermediate certificate"
        case code if code in _OTHER_NAME:
            return f"its certificate belongs to another host, and not to {name}"
        case _:
            return f"its certificate is not valid: {error.verify_message[:100]}"


async def _expired(name: str, addresses: list[IpAddress]) -> str:
    """Return the error with the date of expiry, read by a second handshake without verification."""
    expired_at = None
    if not addresses:
        return "its certificate, or one of its issuers, expired"
    try:
        async with asyncio.timeout(_PROBE_S):
            expired_at = expires_at(await _presented(name, addresses) or b"")
    except (OSError, NotReached):
        pass
    ago_s = 0.0 if expired_at is None else time.time() - expired_at
    return f"its certificate expired {_ago(ago_s)}" if ago_s > 0 else "its certificate, or one of its issuers, expired"


async def _presented(name: str, addresses: list[IpAddress]) -> bytes | None:
    """Return the certificate that the other side shows, without verification. Nothing is sent on this connection."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    sock, _ = await connect(addresses)
    _, writer = await asyncio.open_connection(sock=sock, ssl=context, server_hostname=name)
    try:
        shown: bytes | None = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        return shown
    finally:
        writer.transport.abort()


def _ago(seconds: float) -> str:
    days = int(seconds // 86_400)
    return f"{days} day{'' if days == 1 else 's'} ago" if days else f"{human(seconds)} ago"


def _stamp(tls: Tls) -> _Stamp:
    found = []
    for path in (tls.ca_file, tls.certificate_file, tls.key_file):
        try:
            found.append(0 if path is None else Path(path).stat().st_mtime_ns)
        except OSError:
            found.append(-1)
    return tuple(found)


def _made(tls: Tls | None) -> ssl.SSLContext:
    tls = tls or Tls()
    try:
        context = ssl.create_default_context(cafile=tls.ca_file)
    except (OSError, ssl.SSLError) as error:
        raise NotAsked(f"ca_file={tls.ca_file!r} cannot be used: {_why(error)}") from None
    if tls.certificate_file is not None:
        try:
            # Without this, OpenSSL would ask for the password of a key at the terminal, and wait for ever.
            context.load_cert_chain(tls.certificate_file, tls.key_file, password=lambda: b"")
        except (OSError, ssl.SSLError) as error:
            raise NotAsked(f"certificate_file={tls.certificate_file!r} cannot be used: {_why(error)}") from None
    context.set_alpn_protocols(["http/1.1"])
    return context


def _why(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return "it is not a PEM file with a certificate and a key, or its key has a password"
    return error.strerror or type(error).__name__
