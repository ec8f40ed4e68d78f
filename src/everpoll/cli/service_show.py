"""`everpoll services show`: everything about one service."""

import time
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import asdict
from rich import box
from rich.console import Console
from rich.table import Table

from everpoll.cli.health_display import (
    http_word,
    latency,
    one_line,
    print_dependencies,
    print_head,
    print_warnings,
    status_word,
)
from everpoll.cli.incidents import fields_of, print_incidents, waiting_alerts
from everpoll.cli.service_access import ServiceName, since, with_services
from everpoll.cli.service_list import DAY_S, next_look, percent
from everpoll.cli.session import AsJson, Url, console, print_json
from everpoll.cli.sparkline import sparkline
from everpoll.engine.live_workers import is_any_alive
from everpoll.http.stored_secrets import safe_dependency, without_secrets
from everpoll.monitors.alerts.incidents import IncidentInfo
from everpoll.monitors.alerts.undelivered import WaitingAlerts
from everpoll.monitors.checks.assignment import Assignment
from everpoll.monitors.info import ServiceInfo, service_info
from everpoll.monitors.last_look import ahead_of_look
from everpoll.monitors.pause import pause_text
from everpoll.monitors.safe_definition import safe_definition
from everpoll.monitors.service import Service
from everpoll.monitors.services import Services
from everpoll.policy import human, seconds
from everpoll.policy.rollup import Rollup
from everpoll.policy.uptime import Uptime, uptime_of
from everpoll.stores.contract import Store
from everpoll.stores.health import DependencyInfo, Look

SPANS = ("24h", "7d", "30d", "90d")
LOOKS = 60
LISTED_LOOKS = 10
INCIDENTS = 10
PERCENTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
COVERED = 0.95
"""If looks cover less of a span than this share, the covered time is printed after the uptime."""
# These have no meaning for a heartbeat service.
_OF_LOOKS = frozenset({"breaker", "backoff", "format"})


class ShownService(Struct, frozen=True, kw_only=True):
    """The displayed data of one service."""

    info: ServiceInfo
    definition: dict[str, Any]
    dependencies: list[DependencyInfo]
    looks: list[Look]
    """Newest first."""
    uptime: dict[str, Uptime]
    latencies_24h_ms: dict[str, float | None]
    incidents: tuple[IncidentInfo, ...]
    """The newest incidents, open and past."""
    waiting: WaitingAlerts
    is_looked_at: bool
    beat_path: str | None = None
    """The path that a heartbeat service calls."""


def show(name: ServiceName, url: Url = None, as_json: AsJson = False) -> None:
    """Show one service: definition, dependencies, looks, uptime, incidents and warnings."""

    async def use(services: Services, store: Store) -> ShownService:
        return await _read(services, store, name)

    shown = with_services(url, use)
    if as_json:
        print_json(_fields(shown))
    else:
        _print(console(), shown)


async def _read(services: Services, store: Store, name: str) -> ShownService:
    row, now = await services.row(name), time.time()
    service = Service(services, name)
    rollups = {span: await store.health.summary(name, now - seconds(span), now) for span in SPANS}
    dependencies = [safe_dependency(one) for one in await service.dependencies()]
    looks = [msgspec.structs.replace(one, error=without_secrets(one.error)) for one in await service.history(LOOKS)]
    ahead = ahead_of_look(looks[0] if looks else None, now)
    incidents = await services.incidents.list(None, name, INCIDENTS)
    return ShownService(
        info=service_info(row, now),
        definition=safe_definition(msgspec.convert(row.args, Assignment).definition),
        dependencies=dependencies,
        looks=looks,
        uptime={span: uptime_of(rollup, round(seconds(span) * 1000), ahead) for span, rollup in rollups.items()},
        latencies_24h_ms=_percentiles(rollups[SPANS[0]]),
        incidents=incidents,
        waiting=await waiting_alerts(store, incidents),
        is_looked_at=is_any_alive(await store.workers()),
        beat_path=None if (token := await service.beat_token()) is None else f"/api/beat/{token}",
    )


def _percentiles(rollup: Rollup) -> dict[str, float | None]:
    return {name: rollup.latency_ms(share) for name, share in PERCENTILES.items()}


def _fields(shown: ShownService) -> dict[str, Any]:
    fields = asdict(shown.info) | {"healthy": shown.info.healthy} | asdict(shown)
    fields["incidents"] = [fields_of(one, shown.waiting) for one in shown.incidents]
    del fields["info"], fields["waiting"], fields["is_looked_at"]
    return fields | {name: without_secrets(fields[name]) for name in ("error", "warnings")}


def _print(out: Console, shown: ShownService) -> None:
    info = shown.info
    lasting = "" if info.since is None else f"for {human(round(max(0.0, time.time() - info.since)))}"
    print_head(out, info.status, info.name, without_secrets(info.error), [lasting])
    if not shown.is_looked_at:
        out.print("[yellow]No worker is running: it is not looked at.[/]")
    out.print()
    out.print(_card(shown))
    print_dependencies(out, shown.dependencies)
    print_warnings(out, without_secrets(info.warnings))
    print_incidents(out, shown.incidents, shown.waiting)
    _print_looks(out, shown.looks)


def _card(shown: ShownService) -> Table:
    info, is_beaten = shown.info, shown.definition["target"].startswith("beat:")
    card = Table(box=None, show_header=False, pad_edge=False)
    card.add_column(style="dim", no_wrap=True)
    card.add_column(overflow="fold")
    rows = {
        "target": one_line(info.target),
        "heartbeats to": shown.beat_path or "",
        "last heartbeat" if is_beaten else "last look": " · ".join(
            part for part in (since(info.looked_at), http_word(info.http_status), latency(info.latency_ms)) if part
        ),
        "is late" if is_beaten else "next look": next_look(info),
        "breaker": _breaker(shown),
        "paused": "" if info.paused is None else one_line(f"{since(info.paused.at)}, {pause_text(info.paused)}"),
        "muted": "" if info.muted_until is None else f"ends {since(info.muted_until)}",
        "removed": "by the next worker that looks" if info.is_removed else "",
        "uptime": _uptimes(shown.uptime),
        "latency 24h": " · ".join(
            f"{name} {latency(value)}" for name, value in shown.latencies_24h_ms.items() if value is not None
        ),
    }
    for name, value in (rows | _definition_rows(shown.definition)).items():
        if value and not (is_beaten and name in _OF_LOOKS):
            card.add_row(name, value)
    return card


def _definition_rows(definition: dict[str, Any]) -> dict[str, str]:
    """Return the definition in the words of `app.service`."""
    backoff, mapping = definition["backoff"], definition["mapping"]
    return {
        "every": f"{human(definition['every_s'])}, timeout {human(definition['timeout_s'])}",
        "backoff": "" if backoff is None else f"{human(backoff['initial_s'])} to {human(backoff['cap_s'])}",
        "format": one_line(definition["format"]),
        "mapping": "" if mapping is None else one_line(msgspec.json.encode(mapping).decode()),
        "headers": one_line(", ".join(f"{name}: {value}" for name, value in definition["headers"].items())),
        "conditions": one_line("; ".join(definition["conditions"])),
        "depends on": one_line(", ".join(definition["depends_on"])),
        "witness": one_line(", ".join(definition["witness"])),
        "alert": one_line(_alert(definition["alert"])),
    }


def _breaker(shown: ShownService) -> str:
    breaker, phase = shown.definition["breaker"], shown.info.breaker
    if breaker is None:
        return ""
    rule = f"opens after {breaker['failures']} failures for {human(breaker['cooldown_s'])}"
    return f"closed, {rule}" if phase == "closed" else f"[yellow]{phase.replace('_', '-')}[/], {rule}"


def _alert(alert: dict[str, Any]) -> str:
    within = f" of {alert['within']}" if alert["within"] is not None else ""
    lasting = f" for {human(alert['lasting_s'])}" if alert["lasting_s"] is not None else ""
    parts = [f"after {alert['after']}{within} failed looks{lasting}"]
    parts += [f"delay {human(alert['delay_s'])}"] if alert["delay_s"] else []
    parts += [f"reminder every {human(alert['reminder_s'])}"] if alert["reminder_s"] is not None else []
    parts += [f"to {', '.join(alert['to'])}" if alert["to"] else "to no channel"]
    return ", ".join(parts)


def _uptimes(uptimes: dict[str, Uptime]) -> str:
    """Return the uptime of each span, and the covered time if looks do not cover the whole span."""
    words = " · ".join(f"{span} {percent(one)}" for span, one in uptimes.items() if one.percent is not None)
    for span, one in uptimes.items():
        if words and one.covered < COVERED:
            return f"{words} [dim](known for {human(round(one.covered * seconds(span)))})[/]"
    return words


def _print_looks(out: Console, looks: Sequence[Look]) -> None:
    if not looks:
        return
    out.print("\n[bold]last looks[/]")
    out.print(sparkline(looks, min(LOOKS, out.width)))
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, show_header=False)
    for right in (False, False, True, True):
        table.add_column(no_wrap=True, justify="right" if right else "left")
    table.add_column(overflow="fold")
    for one in looks[:LISTED_LOOKS]:
        at = datetime.fromtimestamp(one.at).astimezone()
        is_old = time.time() - one.at > DAY_S
        http = http_word(one.http_status)
        when = f"{at:%m-%d %H:%M}" if is_old else f"{at:%H:%M:%S}"
        table.add_row(when, status_word(one.status), http, latency(one.latency_ms), one_line(one.error))
    out.print(table)
