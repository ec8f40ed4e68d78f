"""`everpoll services incidents`, `everpoll services ack`: list outages, and acknowledge one."""

import getpass
import time
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
import typer
from rich import box
from rich.console import Console
from rich.table import Table

from everpoll.cli.health_display import one_line, status_word
from everpoll.cli.service_access import since, with_services
from everpoll.cli.session import AsJson, Url, actor, console, print_json
from everpoll.errors import BadInput
from everpoll.http.stored_secrets import without_secrets
from everpoll.monitors.alerts.incidents import IncidentInfo
from everpoll.monitors.alerts.undelivered import WaitingAlerts, undelivered
from everpoll.monitors.services import Services
from everpoll.monitors.why import sent_words
from everpoll.policy import human
from everpoll.policy.visible_texts import visible
from everpoll.stores.contract import Store

NO_NAME = "the command line"
WAITS = {
    "delay": "waits for its delay",
    "mute": "not sent: muted",
    "maintenance": "not sent: in maintenance",
    "root": "held back",
}


def list_incidents(
    past: Annotated[bool, typer.Option("--past", help="Only past incidents.")] = False,
    everything: Annotated[bool, typer.Option("--all", help="Open and past incidents.")] = False,
    service: Annotated[str | None, typer.Option(help="Only incidents of this service.")] = None,
    limit: Annotated[int, typer.Option(help="How many at most.", min=1, max=1000)] = 20,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """List open incidents, newest first; with --past or --all, past ones."""
    if past and everything:
        raise BadInput("--past and --all: write one of them")
    is_open = None if everything else not past

    async def use(services: Services, store: Store) -> tuple[Sequence[IncidentInfo], WaitingAlerts]:
        found = await services.incidents.list(is_open, service, limit)
        return found, await waiting_alerts(store, found)

    found, waiting = with_services(url, use)
    if as_json:
        print_json([fields_of(one, waiting) for one in found])
        return
    out = console()
    out.print(incident_table(found, waiting) if found else f"No {'incident is open' if is_open else 'incidents'}.")
    if len(found) == limit:
        out.print(f"The newest {limit}: --limit shows more.")


def acknowledge(
    incident: Annotated[str, typer.Argument(help="The id of the incident.", metavar="ID")],
    by: Annotated[str | None, typer.Option(help="Your name; default: your account.", show_default=False)] = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Acknowledge an incident: it sends no further alerts or reminders."""

    async def use(services: Services, store: Store) -> tuple[IncidentInfo, WaitingAlerts]:
        info = await services.incidents.acknowledge(incident, by or _account(), actor=actor())
        return info, await waiting_alerts(store, [info])

    info, waiting = with_services(url, use)
    if as_json:
        print_json(fields_of(info, waiting))
    elif not info.is_open:
        typer.echo(f"{visible(info.id)} is over already: {visible(info.closed_why or '')}")
    else:
        when = since(info.acknowledged_at)
        typer.echo(f"{visible(info.id)} is acknowledged by {visible(info.acknowledged_by or '')}, {when}")


def _account() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return NO_NAME


async def waiting_alerts(store: Store, found: Sequence[IncidentInfo]) -> WaitingAlerts:
    """Return the alerts of these incidents that their channels have not delivered yet."""
    return await undelivered(store, {name for one in found if one.is_open for name in one.alerted}, time.time())


def fields_of(info: IncidentInfo, waiting: WaitingAlerts) -> dict[str, Any]:
    """Return an incident for scripts, without secrets that a remote repeated."""
    late = {name: waiting[info.id, name] for name in info.alerted if (info.id, name) in waiting}
    fields = msgspec.structs.asdict(info) | {"is_open": info.is_open, "undelivered": late}
    return fields | {name: without_secrets(fields[name]) for name in ("dependency", "error")}


def print_incidents(out: Console, found: Sequence[IncidentInfo], waiting: WaitingAlerts) -> None:
    """Print the incidents of one service."""
    if found:
        out.print("\n[bold]incidents[/]")
        out.print(incident_table(found, waiting))


def incident_table(found: Sequence[IncidentInfo], waiting: WaitingAlerts) -> Table:
    """Return incidents as a table: two lines each, so that ids can be copied at any width."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("since", no_wrap=True)
    table.add_column("lasted", no_wrap=True, justify="right")
    table.add_column("incident", overflow="fold")
    for one in found:
        lasted = "open" if one.closed_at is None else human(round(max(0.0, one.closed_at - one.since)))
        about = one.service if one.dependency is None else f"{one.dependency} of {one.service}"
        word = status_word(one.status) if one.is_open else "[green]over[/]"
        error = f": {one_line(without_secrets(one.error))}" if one.error else ""
        table.add_row(since(one.since), lasted, f"{word} [bold]{one_line(without_secrets(about))}[/]{error}")
        table.add_row("", "", f"[dim]{one_line(one.id)} · {_alerts(one, waiting)}[/]")
    return table


def _alerts(one: IncidentInfo, waiting: WaitingAlerts) -> str:
    """Tell which alerts were sent about an incident, or why none was."""
    if one.closed_why is not None:
        return one_line(one.closed_why)
    if one.acknowledged_by is not None:
        return f"acknowledged by {one_line(one.acknowledged_by)} {since(one.acknowledged_at)}"
    if one.alerted:
        return one_line(sent_words(one.id, one.alerted, waiting, time.time()))
    held = f" by {one_line(', '.join(one.held_by))}" if one.waits == "root" else ""
    return WAITS.get(one.waits, "not sent: no channel") + held
