"""`everpoll services add, remove, check, mute, unmute, pause, resume, beat`: operators change services.

Everything is written to the store and taken up by a running fleet within two seconds. If no worker runs, the commands
print that; the change waits for one.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from everpoll.cli.check import Conditions, Format, Fresh, Headers, MappingFile
from everpoll.cli.given_files import json_of
from everpoll.cli.given_headers import headers_from
from everpoll.cli.service_access import NO_WORKER, ServiceName, definition_of, publish, with_services
from everpoll.cli.session import Url, actor, duration_s
from everpoll.engine.live_workers import is_any_alive
from everpoll.errors import BadInput
from everpoll.monitors.alerting import Alert
from everpoll.monitors.beat_tokens import with_token
from everpoll.monitors.options import ServiceOptions, define
from everpoll.monitors.service import Service
from everpoll.monitors.services import Services
from everpoll.monitors.written_options import refuse_literal_secrets, refuse_password
from everpoll.policy import human
from everpoll.policy.visible_texts import visible
from everpoll.stores.contract import Store

T = TypeVar("T")


def add(  # noqa: PLR0913 - options of a command
    name: ServiceName,
    target: Annotated[
        str,
        typer.Argument(
            help="https://host/health, tcp://host:port, tls://host:port, dns://name or beat:", metavar="URL"
        ),
    ],
    *,
    every: Annotated[str, typer.Option(help="The time from one look to the next.")] = "30s",
    body_format: Format = "auto",
    mapping: MappingFile = None,
    timeout: Annotated[
        str, typer.Option(help="How long a look may take; for beat: how late a heartbeat may be.")
    ] = "10s",
    header: Headers = None,
    condition: Conditions = None,
    depends_on: Annotated[
        list[str] | None, typer.Option(help="A service or dependency that this service needs; repeatable.")
    ] = None,
    witness: Annotated[
        list[str] | None, typer.Option(help="An address to check when the service does not answer; repeatable.")
    ] = None,
    alert_to: Annotated[list[str] | None, typer.Option(help="A channel for its alerts; repeatable.")] = None,
    alert_after: Annotated[int, typer.Option(help="How many failed looks in a row open an incident.")] = 2,
    alert_delay: Annotated[str, typer.Option(help="How long an incident is open before it alerts.")] = "0s",
    fresh: Fresh = False,
    replace: Annotated[bool, typer.Option("--replace", help="Replace a service of that name.")] = False,
    url: Url = None,
) -> None:
    """Add a service. A running worker looks at it within 5 seconds."""
    options: ServiceOptions = {
        "every": every,
        "format": body_format,
        "mapping": _mapping(mapping),
        "timeout": timeout,
        "headers": headers_from(header or []),
        "conditions": condition or [],
        "depends_on": depends_on or [],
        "witness": witness or [],
        "alert": Alert(after=alert_after, delay=alert_delay, to=alert_to or []),
        "fresh": fresh,
    }
    refuse_literal_secrets(options["headers"])
    refuse_password(target)
    definition = define(name, target, options)
    shown = visible(name)

    async def use(services: Services, _store: Store) -> str:
        before = await definition_of(services, name)
        wanted = with_token(definition, before)
        if before == wanted:
            return f"{shown} exists already, with the same options"
        if before is not None and not replace:
            raise BadInput(f"service {name!r} exists already, with other options; --replace replaces it")
        await publish(services, [wanted], by=actor())
        token = await Service(services, name).beat_token()
        beats = f"everpoll services beat {shown}, or over HTTP: POST /api/beat/{token}"
        how = f"; record its heartbeats with: {beats}" if definition.is_heartbeat else ""
        return f"{shown} is {'added' if before is None else 'replaced'}{how}"

    _change(url, use, may_create=True)


def _mapping(path: Path | None) -> dict[str, object] | None:
    return None if path is None else json_of(path, f"--mapping {path}")


def remove(name: ServiceName, url: Url = None) -> None:
    """Remove a service: stop its looks, close its incidents, delete its history."""

    async def use(services: Services, _store: Store) -> str:
        await Service(services, name).remove(by=actor())
        return f"{visible(name)} is removed, with its history; an app that registers it adds it again when it starts"

    _change(url, use)


def mute(
    name: ServiceName,
    span: Annotated[str, typer.Argument(help="How long, such as 2h.", metavar="DURATION")],
    url: Url = None,
) -> None:
    """Send no alerts about a service for a while. Incidents are still recorded."""
    span_s = duration_s("DURATION", span)

    async def use(services: Services, _store: Store) -> str:
        await Service(services, name).mute(span_s, by=actor())
        return f"{visible(name)} is muted for {human(span_s)}"

    _change(url, use)


def unmute(name: ServiceName, url: Url = None) -> None:
    """Send alerts about a service again."""

    async def use(services: Services, _store: Store) -> str:
        await Service(services, name).unmute(by=actor())
        return f"{visible(name)} is not muted any more"

    _change(url, use)


def pause(
    name: ServiceName,
    reason: Annotated[str, typer.Option(help="Why, for `everpoll why` and the log.")] = "",
    url: Url = None,
) -> None:
    """Have no worker look at a service until it is resumed; its open incidents are closed."""

    async def use(services: Services, _store: Store) -> str:
        await Service(services, name).pause(reason, by=actor())
        return f"{visible(name)} is paused"

    _change(url, use)


def resume(name: ServiceName, url: Url = None) -> None:
    """Look at a service again, at once."""

    async def use(services: Services, _store: Store) -> str:
        was_paused = await Service(services, name).resume(by=actor())
        return f"{visible(name)} is looked at again" if was_paused else f"{visible(name)} was not paused"

    _change(url, use)


def beat(
    name: ServiceName,
    status: Annotated[str, typer.Option(help="The status: up, degraded or down.")] = "up",
    url: Url = None,
) -> None:
    """Record a heartbeat of a service whose target is "beat:"."""

    async def use(services: Services, _store: Store) -> str:
        await Service(services, name).beat(status)
        return f"heartbeat recorded: {visible(name)} is {status}"

    _change(url, use)


def _change(url: str | None, use: Callable[[Services, Store], Awaitable[str]], *, may_create: bool = False) -> None:
    """Make a change, print what was done, and say if no worker is running."""

    async def changed(services: Services, store: Store) -> tuple[str, bool]:
        return await use(services, store), is_any_alive(await store.workers())

    words, is_taken_up = with_services(url, changed, may_create=may_create)
    typer.echo(words)
    if not is_taken_up:
        typer.echo(NO_WORKER, err=True)
