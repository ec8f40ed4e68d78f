"""Gives commands access to services through the store, whether a worker runs or not."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Annotated, TypeVar

import msgspec
import typer

from everpoll.cli.completion import service_names
from everpoll.cli.session import ago, with_store
from everpoll.engine.live_workers import is_any_alive
from everpoll.errors import BadInput, ServiceNotFound
from everpoll.monitors.checks.assignment import Assignment
from everpoll.monitors.definition import Definition
from everpoll.monitors.services import Services
from everpoll.stores.contract import Store

T = TypeVar("T")
NO_WORKER = "No worker is running. The change takes effect when one starts: `everpoll run`."
REMOVAL_S = 5.0
"""How long a command waits for a worker to remove a service; a running one does it within two seconds."""
REMOVAL_POLL_S = 0.1

ServiceName = Annotated[
    str, typer.Argument(help="The name of the service.", metavar="NAME", autocompletion=service_names)
]


def with_services(url: str | None, use: Callable[[Services, Store], Awaitable[T]], *, may_create: bool = False) -> T:
    """Open the store, call `use` with its services, and close it; `may_create` as in `with_store`."""

    async def use_store(store: Store) -> T:
        async def opened() -> Store:
            return store

        return await use(Services(opened, time.time, "command line"), store)

    return with_store(url, use_store, may_create=may_create)


async def definition_of(services: Services, name: str) -> Definition | None:
    """Return the current definition of a service; None if no service has that name.

    If it is being removed, wait for that; raise `BadInput` if no worker removes it in time.
    """
    started = time.monotonic()
    while True:
        try:
            row = await services.row(name)
        except ServiceNotFound:
            return None
        if not row.cancel_requested:
            return msgspec.convert(row.args, Assignment).definition
        workers = await (await services.store()).workers()
        if time.monotonic() - started > REMOVAL_S or not is_any_alive(workers):
            raise BadInput(f"service {name!r} waits for a worker that removes it: add it again after that")
        await asyncio.sleep(REMOVAL_POLL_S)


async def publish(services: Services, definitions: Sequence[Definition], by: str) -> None:
    """Publish as the operator `by`; if another process is removing the service, wait for that."""
    waiting = list(definitions)
    while waiting:
        waiting = await services.publish(waiting, by=by)
        for one in waiting:
            await definition_of(services, one.name)


def since(instant: float | None) -> str:
    """Return the distance of an instant (epoch seconds) from now, such as "5s ago" or "in 2m"."""
    return "" if instant is None else ago(datetime.fromtimestamp(instant, UTC))
