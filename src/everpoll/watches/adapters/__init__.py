"""Adapters: one for each protocol in which a remote reports the state of its operations.

    http202           202, Location, Operation-Location, 303      openai_batch      batches of OpenAI
    azure             Azure long-running operations               anthropic_batch   message batches of Anthropic
    google            google.longrunning.Operation                sql_row           a row of a table, or any function
    waiter            waiter models of AWS, and Smithy's

Each has a pure `judge`, which makes a verdict of a parsed answer, and a thin `look`, which asks the remote. A look only
reads; effects are in `start`, `cancel` and `cleanup`. If the network is down or the remote is busy, the look raises an
`OSError`, which the watch counts.
"""

from typing import Any, Protocol, runtime_checkable

from everpoll.watches.adapters.addresses import Refused
from everpoll.watches.adapters.client import HttpError, Memory, RemoteBusy, Request
from everpoll.watches.adapters.fetch import Fetch, HttpFetch
from everpoll.watches.adapters.response import Response
from everpoll.watches.verdicts import Verdict


@runtime_checkable
class Adapter(Protocol):
    """Every adapter can look. Handles are JSON, because they are stored."""

    async def look(self, handle: Any, memory: Memory | None = None) -> Verdict:
        """Return the verdict on the operation as it is now. Pass `w.memory` as `memory`: it must last between looks."""
        ...


@runtime_checkable
class Starter(Adapter, Protocol):
    """An adapter that can start an operation."""

    async def start(self, op: Any, key: str) -> Any:
        """Start the operation, with a key that stays the same over crashes; return its handle, or a `Started`."""
        ...


@runtime_checkable
class Canceler(Adapter, Protocol):
    """An adapter that can cancel an operation."""

    async def cancel(self, handle: Any) -> None:
        """Ask the remote to cancel. If the operation has ended or is gone, this is not an error."""
        ...


__all__ = [
    "Adapter",
    "Canceler",
    "Fetch",
    "HttpError",
    "HttpFetch",
    "Memory",
    "Refused",
    "RemoteBusy",
    "Request",
    "Response",
    "Starter",
]
