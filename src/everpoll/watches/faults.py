"""Classifies an exception in a look, start, cancel or cleanup: try again, or give up.

    transient   the remote or the network has a problem: tried again until the budget is spent
    unexpected  probably a bug of the look: tried again, a limited number of times in a row
    fatal       trying again cannot help: the run fails

Pure. HTTP errors are recognized by their attributes, so that no client library has to be installed: httpx, aiohttp,
requests, urllib.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from everpoll.errors import BadInput, Hopeless, JobTimeout, StoreUnavailable
from everpoll.policy import shown
from everpoll.watches.decisions.events import Fault

FAULTS: tuple[Fault, ...] = ("transient", "unexpected", "fatal")
Classify = Callable[[BaseException], Fault | None]

TRANSIENT_STATUSES = frozenset({408, 409, 421, 423, 425, 429, 500, 502, 503, 504})
NETWORK = (OSError, TimeoutError, asyncio.TimeoutError, EOFError, JobTimeout, StoreUnavailable)
NETWORK_NAMES = frozenset(
    {
        "TransportError",
        "ClientConnectionError",
        "ClientPayloadError",
        "ServerTimeoutError",
        "ConnectionError",
        "Timeout",
        "ChunkedEncodingError",
        "APIConnectionError",
        "APITimeoutError",
        "IncompleteRead",
        "RemoteDisconnected",
    }
)


class NothingSent(Hopeless):
    """A cancel function raises this if it has no way to ask its remote: it has sent no request."""


def fault_of(error: BaseException, rules: tuple[Classify, ...] = ()) -> Fault:
    """Classify an error: by the user's rules first, in order, then by the built-in ones."""
    for rule in rules:
        if (said := rule(error)) is not None:
            if said in FAULTS:
                return said
            raise BadInput(f"classify returned {shown(said)}; it returns {', '.join(FAULTS)}, or None for no opinion")
    if isinstance(error, Hopeless):
        return "fatal"
    status = status_of(error)
    if status is not None:
        return "transient" if status in TRANSIENT_STATUSES or status >= 500 else "fatal"
    if isinstance(error, NETWORK) or any(kind.__name__ in NETWORK_NAMES for kind in type(error).__mro__):
        return "transient"
    return "unexpected"


def status_of(error: BaseException) -> int | None:
    """Return the HTTP status of an error of any common client, or None."""
    response: Any = getattr(error, "response", None)
    for holder in (response, error):
        for name in ("status_code", "status", "code"):
            value = getattr(holder, name, None)
            if isinstance(value, int) and not isinstance(value, bool) and 100 <= value < 600:
                return value
    return None


def rule_of_types(transient: tuple[type[BaseException], ...], fatal: tuple[type[BaseException], ...]) -> Classify:
    """Make a rule from two lists of exception types; fatal wins."""

    def rule(error: BaseException) -> Fault | None:
        if isinstance(error, fatal):
            return "fatal"
        return "transient" if isinstance(error, transient) else None

    return rule
