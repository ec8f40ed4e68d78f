"""Makes the errors of a request that got no answer, each with its kind and a message.

There are two kinds of errors: the other side did not answer (`NotReached`), or this process could not send the request
(`NotAsked`). Without file descriptors or ports, nothing is known about the other side, so it must not count as down.
Messages contain hosts, ports and the operating system's text, never what was sent. Pure.
"""

import errno

from everpoll.http.contract import Kind, NotAsked, NotReached
from everpoll.http.urls import Target
from everpoll.policy import human

_OURS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL})
_UNREACHABLE = frozenset({errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN})


def place_of(target: Target) -> str:
    """Return host and port for messages."""
    return f"[{target.host}]:{target.port}" if ":" in target.host else f"{target.host}:{target.port}"


def is_ours(error: OSError) -> bool:
    """Return True if the error means that this process lacks file descriptors, memory or ports."""
    return error.errno in _OURS


def error_of_os(error: OSError, place: str) -> NotReached | NotAsked:
    """Return the error for an `OSError` of a connection."""
    if isinstance(error, NotReached):
        return error
    why = error.strerror or type(error).__name__
    if is_ours(error):
        return NotAsked(f"{place} was not asked, because this process has no resources left: {why}")
    if isinstance(error, TimeoutError):
        return NotReached(f"{place}: timed out connecting", Kind.TIMED_OUT, error.errno)
    if isinstance(error, ConnectionRefusedError):
        return NotReached(f"{place} refused the connection", Kind.REFUSED, errno.ECONNREFUSED)
    if isinstance(error, ConnectionError):
        return NotReached(f"{place} broke off the connection", Kind.REFUSED, error.errno)
    if error.errno in _UNREACHABLE:
        return NotReached(f"{place} cannot be reached: {why}", Kind.REFUSED, error.errno)
    return NotReached(f"{place}: connecting failed: {why}", Kind.REFUSED, error.errno)


def timed_out(target: Target, timeout_s: float, *, received: int | None = None) -> NotReached:
    """Return the error for a timeout; `received` is how many bytes of the body came, None if no answer began."""
    if received is None:
        return NotReached(f"{target.shown} did not answer within {human(timeout_s)}", Kind.TIMED_OUT)
    what = f"{target.shown} did not finish its answer within {human(timeout_s)}"
    return NotReached(f"{what}: {received} bytes came", Kind.TIMED_OUT)


def lookup_timed_out(target: Target, timeout_s: float) -> NotReached:
    """Return the error for a name server that did not answer in time."""
    return NotReached(f"the name {target.host} was not looked up within {human(timeout_s)}", Kind.TIMED_OUT)


def closed_early(target: Target, *, received: int | None = None) -> NotReached:
    """Return the error for a connection that ended too early."""
    if received is None:
        return NotReached(f"{target.shown} closed the connection without an answer", Kind.REFUSED)
    what = f"{target.shown} closed the connection before its answer was complete"
    return NotReached(f"{what}: {received} bytes came", Kind.REFUSED)


def not_http(target: Target) -> NotReached:
    """Return the error for an answer that is not HTTP."""
    return NotReached(f"{target.shown} answered with something that is not valid HTTP", Kind.PROTOCOL)


def head_too_large(target: Target) -> NotReached:
    """Return the error for headers that are too large, or too many."""
    return NotReached(f"{target.shown} answered with headers that are too large, or too many", Kind.PROTOCOL)
