"""`everpoll maintenance`: windows in which incidents do not alert, planned, listed and removed by operators."""

import time
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import msgspec
import typer
from rich import box
from rich.table import Table

from everpoll.cli.health_display import one_line
from everpoll.cli.service_access import since, with_services
from everpoll.cli.session import AsJson, Url, actor, console, duration_s, print_json
from everpoll.errors import BadInput
from everpoll.monitors.alerts.maintenance_windows import PlannedWindow
from everpoll.monitors.maintenance import DAYS, Window, once, weekly
from everpoll.monitors.services import Services
from everpoll.policy import human
from everpoll.policy.visible_texts import visible
from everpoll.stores.contract import Store

maintenance = typer.Typer(
    name="maintenance",
    help="Plan, list and remove maintenance windows, in which incidents send no alerts.",
    no_args_is_help=True,
)


@maintenance.command("add")
def add(  # noqa: PLR0913 - options of a command
    *,
    lasting: Annotated[str | None, typer.Option("--for", help="How long it lasts, such as 2h.")] = None,
    start: Annotated[
        str | None, typer.Option("--from", help="When it begins, such as 2026-11-20T02:00; default: now.")
    ] = None,
    until: Annotated[str | None, typer.Option("--until", help="When it ends, instead of --for.")] = None,
    days: Annotated[
        str | None, typer.Option("--weekly", help="Repeat every week on these days, such as sat,sun.")
    ] = None,
    at: Annotated[str | None, typer.Option("--at", help="With --weekly: the time of day, such as 02:00.")] = None,
    zone: Annotated[str | None, typer.Option(help="With --weekly: the time zone; default: UTC.")] = None,
    service: Annotated[list[str] | None, typer.Option(help="Only this service; repeatable.")] = None,
    reason: Annotated[str, typer.Option(help="The reason, shown in the list.")] = "",
    window_id: Annotated[
        str | None, typer.Option("--id", help="The id of the window. A window with that id is replaced.")
    ] = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Plan a maintenance window: once or every week. Incidents in it are recorded, and send no alerts."""
    names = service or []
    if days is not None:
        if start is not None or until is not None or at is None or lasting is None:
            raise BadInput("--weekly needs --at 02:00 and --for 2h, and takes neither --from nor --until")
        window = weekly(days.lower().split(","), at, duration_s("--for", lasting), zone or "UTC", names, reason)
    else:
        if at is not None or zone is not None:
            raise BadInput("--at and --zone: belong to --weekly; write --from 2026-11-20T02:00 for one instant")
        window = _once(start, until, lasting, names, reason)

    async def use(services: Services, _store: Store) -> tuple[PlannedWindow, list[str]]:
        planned = PlannedWindow(await services.maintenance.add(window, window_id, by=actor()), window)
        known = {row.key for row in await services.rows()}
        return planned, [name for name in names if name not in known]

    planned, unknown = with_services(url, use)
    for name in unknown:
        typer.echo(f"No service is called {visible(name)}: is it written as in `everpoll services list`?", err=True)
    if as_json:
        print_json(_fields(planned))
    else:
        typer.echo(f"{visible(planned.id)} is planned: {visible(_when(window))}, {visible(_about(window))}")


@maintenance.command("list")
def list_windows(url: Url = None, as_json: AsJson = False) -> None:
    """List the maintenance windows: open, planned and past."""

    async def use(services: Services, _store: Store) -> tuple[PlannedWindow, ...]:
        return await services.maintenance.list()

    found = with_services(url, use)
    if as_json:
        print_json([_fields(one) for one in found])
        return
    if not found:
        console().print("No maintenance is planned.")
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name in ("id", "", "when", "services", "reason"):
        table.add_column(name, overflow="fold")
    for one in found:
        cells = (one.id, _state(one.window), _when(one.window), _about(one.window), one.window.reason)
        table.add_row(*map(one_line, cells))
    console().print(table)


@maintenance.command("remove")
def remove(
    window_id: Annotated[str, typer.Argument(help="The id of the window.", metavar="ID")], url: Url = None
) -> None:
    """Remove a window. Alerts that it holds back are sent within half a minute."""

    async def use(services: Services, _store: Store) -> bool:
        return await services.maintenance.remove(window_id, by=actor())

    if not with_services(url, use):
        raise BadInput(f"no maintenance window has the id {window_id!r}: `everpoll maintenance list` lists them")
    typer.echo(f"{visible(window_id)} is removed")


def _once(start: str | None, until: str | None, lasting: str | None, names: list[str], reason: str) -> Window:
    if (until is None) is (lasting is None):
        raise BadInput("write either --for 2h or --until 2026-11-20T04:00")
    begins = datetime.now(UTC) if start is None else _instant("--from", start)
    if until is not None:
        ends = _instant("--until", until)
    else:
        try:
            ends = begins + timedelta(seconds=duration_s("--for", lasting or ""))
        except OverflowError:
            raise BadInput(f"--for {lasting}: ends after the last date of the calendar; write a shorter time") from None
    if ends <= datetime.now(UTC):
        raise BadInput(f"--until: {ends.isoformat(timespec='minutes')} is over already")
    return once(begins, ends, names, reason)


def _instant(option: str, text: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
        return found.astimezone() if found.tzinfo is None else found
    except (ValueError, OverflowError):
        raise BadInput(
            f"{option} {text!r}: is not an instant; write 2026-11-20T02:00, with +01:00 for a zone"
        ) from None


def _when(window: Window) -> str:
    if window.starts_at is None or window.ends_at is None:
        days = ", ".join(DAYS[day] for day in window.days)
        clock = f"{window.minute // 60:02}:{window.minute % 60:02}"
        return f"{days} at {clock} {window.zone} for {human(window.lasts_s)}"
    begins, ends = (datetime.fromtimestamp(at).astimezone() for at in (window.starts_at, window.ends_at))
    return f"{begins:%Y-%m-%d %H:%M} to {ends:%Y-%m-%d %H:%M %Z}"


def _about(window: Window) -> str:
    return ", ".join(window.services) or "all services"


def _state(window: Window) -> str:
    until = window.active_until(time.time())
    if until is not None:
        return f"open, ends {since(until)}"
    return "over" if window.ends_at is not None and window.ends_at <= time.time() else ""


def _fields(one: PlannedWindow) -> dict[str, Any]:
    return {"id": one.id, "open": one.window.active_until(time.time()) is not None} | msgspec.structs.asdict(one.window)
