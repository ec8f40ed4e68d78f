"""`everpoll check URL`: one look at a health endpoint, without a database.

Promises: the answer is fetched, read and judged as it is for a monitored service. Exit codes: 0 up, 1 reached but not
up, 2 not reached or not usable. Values of headers, of environment variables that they refer to, and passwords in the
address are never printed, even where the remote repeats them.
"""

import asyncio
import os
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from msgspec import Struct
from msgspec.structs import asdict
from rich.console import Console

from everpoll.cli.given_files import json_of
from everpoll.cli.given_headers import headers_from
from everpoll.cli.health_display import (
    http_word,
    latency,
    one_line,
    print_dependencies,
    print_head,
    print_warnings,
)
from everpoll.cli.session import AsJson, console, duration_s, print_json
from everpoll.errors import BadInput
from everpoll.http import HttpClient, NotAsked
from everpoll.http.environment import resolved
from everpoll.http.secrets import Secrets
from everpoll.http.stored_secrets import safe_dependency, without_secrets
from everpoll.monitors import FORMATS, Dependency, Status
from everpoll.monitors.checks.fetching import Fetching
from everpoll.monitors.checks.looking import CERTIFICATE_WARNING_S, Looking, reader_of
from everpoll.monitors.control import Control
from everpoll.monitors.definition import Definition
from everpoll.monitors.look import Look, verdict
from everpoll.monitors.options import ServiceOptions, define
from everpoll.monitors.targets import shown_target
from everpoll.policy import human

NAME = "check"
PLAIN = " [dim](only the HTTP status counts)[/]"
"""Printed after the format if auto has recognized none: the body tells nothing about dependencies."""

Format = Annotated[str, typer.Option("--format", help=f"The format of the body: {', '.join(FORMATS)}.")]
MappingFile = Annotated[
    Path | None, typer.Option("--mapping", help="A JSON file that says where the body has names and statuses.")
]
Headers = Annotated[list[str] | None, typer.Option("--header", help="A header, 'Name: ${VARIABLE}'; repeatable.")]
Conditions = Annotated[
    list[str] | None,
    typer.Option("--condition", help="A condition that must hold, such as 'latency < 300ms'; repeatable."),
]
Fresh = Annotated[bool, typer.Option("--fresh", help="Open a new connection for each look.")]


class LookResult(Struct, frozen=True, kw_only=True):
    """The result of one look, without secrets."""

    target: str
    status: Status
    healthy: bool | None
    reached: bool | None
    """None: this process could not send the request."""
    error: str | None
    http_status: int | None
    latency_ms: float | None
    address: str | None
    format: str | None
    dependencies: tuple[Dependency, ...]
    warnings: tuple[str, ...]
    certificate_expires_at: float | None


def check(  # noqa: PLR0913 - options of a command
    url: Annotated[
        str, typer.Argument(help="https://host/health, tcp://host:port, tls://host:port or dns://name.", metavar="URL")
    ],
    *,
    body_format: Format = "auto",
    mapping: MappingFile = None,
    header: Headers = None,
    timeout: Annotated[str, typer.Option(help="How long the look may take.")] = "10s",
    condition: Conditions = None,
    fresh: Fresh = False,
    as_json: AsJson = False,
) -> None:
    """Check a health endpoint once. Exit code 0: up, 1: not up, 2: no answer."""
    options: ServiceOptions = {
        "format": body_format,
        "mapping": None if mapping is None else json_of(mapping, f"--mapping {mapping}"),
        "headers": headers_from(header or []),
        "timeout": duration_s("--timeout", timeout),
        "conditions": condition or [],
        "fresh": fresh,
    }
    sight = asyncio.run(_look(_defined(url, options)))
    if as_json:
        dependencies = [asdict(one) | {"healthy": one.healthy} for one in sight.dependencies]
        print_json(asdict(sight) | {"dependencies": dependencies})
    elif sight.reached is None:
        raise NotAsked(sight.error or "")
    else:
        _print(console(), sight)
    raise typer.Exit(2 if not sight.reached else 0 if sight.status is Status.UP else 1)


def _defined(url: str, options: ServiceOptions) -> Definition:
    try:
        definition = define(NAME, url, options)
    except BadInput as error:
        raise BadInput(str(error).removeprefix(f"service {NAME!r}: ")) from None
    if definition.is_heartbeat:
        raise BadInput("target='beat:': a heartbeat has no address to look at; write one, such as https://host/health")
    return definition


async def _look(definition: Definition) -> LookResult:
    client = HttpClient()
    try:
        looking = Looking(client, Fetching(1))
        look = await looking.look(reader_of(definition), Control(), time.time, is_forced=True)
    finally:
        await client.close()
    return _sight(definition, look)


def _sight(definition: Definition, look: Look) -> LookResult:
    """Return the result of a look, without the secrets of the request."""
    secrets = _secrets(definition)

    def safe(value: Any) -> Any:
        return without_secrets(secrets.masked(value))

    status, error = verdict(look)
    report = look.report
    dependencies = () if report is None else report.dependencies
    return LookResult(
        target=shown_target(definition.target),
        status=status,
        healthy=status.healthy,
        reached=look.reached,
        error=safe(look.error if look.reached is None else error),
        http_status=look.http_status,
        latency_ms=look.latency_ms,
        address=look.address or None,
        format=None if report is None else report.format,
        dependencies=tuple(safe_dependency(one, safe) for one in dependencies),
        warnings=tuple(safe(one) for one in look.warnings),
        certificate_expires_at=look.certificate_expires_at,
    )


def _secrets(definition: Definition) -> Secrets:
    try:
        headers = resolved(definition.headers, os.environ)
    except NotAsked:
        headers = {}
    return Secrets(headers, definition.target)


def _print(out: Console, sight: LookResult) -> None:
    http, certificate = http_word(sight.http_status), sight.certificate_expires_at
    facts = [
        "" if http and (sight.error or "").startswith(http) else http,
        latency(sight.latency_ms),
        one_line(sight.address),
        one_line(sight.format) + (PLAIN if sight.format == "plain" else ""),
        "" if certificate is None else _certificate(certificate - time.time()),
    ]
    print_head(out, sight.status, sight.target, sight.error, facts)
    print_dependencies(out, sight.dependencies)
    print_warnings(out, sight.warnings)


def _certificate(left_s: float) -> str:
    style = "red" if left_s <= 0 else "yellow" if left_s < CERTIFICATE_WARNING_S else "default"
    words = f"expired {human(round(-left_s))} ago" if left_s <= 0 else f"expires in {human(round(left_s))}"
    return f"[{style}]certificate {words}[/]"
