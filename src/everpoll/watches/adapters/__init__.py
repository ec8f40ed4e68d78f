"""Adapters: the protocols in which remotes tell how their operations are, each with its own rules.

    http202           202, Location, Operation-Location, 303      openai_batch      batches of OpenAI
    azure             Azure long-running operations               anthropic_batch   message batches of Anthropic
    google            google.longrunning.Operation                sql_row           a row of a table, or any function
    waiter            waiter models of AWS, and Smithy's

Each has a pure `judge`, from a parsed answer to a verdict, and a thin `look` that asks. Looks are reads; effects are in
`start`, `cancel` and `cleanup`. A look that meets a dead network or a busy remote raises an `OSError`, for the watch
to count.
"""

from typing import Any, Protocol, runtime_checkable

from everpoll.watches.adapters.addresses import Refused
from everpoll.watches.adapters.client import HttpError, Memory, RemoteBusy, Request
from everpoll.watches.adapters.fetch import Fetch, HttpFetch, ThreadFetch
from everpoll.watches.adapters.response import Response
from everpoll.watches.verdicts import Verdict


@runtime_checkable
class Adapter(Protocol):
    """What every adapter can do. Handles are JSON: they are stored."""

    async def look(self, handle: Any, memory: Memory | None = None) -> Verdict:
        """Return the verdict on the operation as it is now. Pass `w.memory` as `memory`: it must last between looks."""
        ...


@runtime_checkable
class Starter(Adapter, Protocol):
    """An adapter that can start an operation."""

    async def start(self, op: Any, key: str) -> Any:
        """Begin it, with a key that stays the same over crashes; answers the handle, or `Started` with more."""
        ...


@runtime_checkable
class Canceler(Adapter, Protocol):
    """An adapter that can cancel an operation."""

    async def cancel(self, handle: Any) -> None:
        """Ask the remote to cancel; an operation that has ended, or is gone, is not an error."""
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
    "ThreadFetch",
]
