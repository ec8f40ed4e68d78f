"""`everpoll services list`: every service at a glance, with its last looks."""

import math
import time
from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

import typer
from msgspec import Struct
from msgspec.structs import asdict
from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from everpoll.cli.health_display import STATUS_STYLE, WORST_FIRST, latency, one_line, status_word
from everpoll.cli.service_access import with_services
from everpoll.cli.session import AsJson, Url, console, print_json
from everpoll.cli.sparkline import sparkline
from everpoll.engine.live_workers import is_any_alive
from everpoll.errors import BadInput
from everpoll.http.stored_secrets import without_secrets
from everpoll.monitors.info import ServiceInfo, service_info
from everpoll.monitors.services import Services
from everpoll.policy import human
from everpoll.policy.rollup import Availability
from everpoll.policy.uptime import NOTHING_AHEAD, Uptime, ahead_of, uptime_of
from everpoll.stores.contract import Store
from everpoll.stores.health import LookPoint

DAY_S = 86_400.0
NO_SERVICES = "No services. Add one: everpoll services add NAME URL"
LOOKS = 20
CHUNK = 500
"""For how many services one statement reads the looks."""
ERROR_COLUMNS = 36
"""If errors get less room than this, they are printed below the table."""
NAME_COLUMNS = 24
"""The width that a name gets before other columns are shortened; longer names are wrapped."""
LEAST_NAME_COLUMNS = 8
GAP = 3
NEVER_SHORTENED = ("service", "status", "for", "latency", "24 h")
WAITS = {"backoff": "backoff", "breaker": "breaker", "retry_after": "Retry-After", "changed": "changed"}
"""The words after the time of the next look; a look that waits for its interval has none."""


class Layout(NamedTuple):
    """The optional columns of the list."""

    bars: int
    """How many of the last looks it shows."""
    next_look: str
    """"why" (when, and what it waits for), "when", or "" for no such column."""


LAYOUTS = (Layout(LOOKS, "why"), Layout(10, "why"), Layout(10, "when"), Layout(0, "when"), Layout(0, ""))
"""The layouts from wide to narrow: the first one that fits is printed."""


class ListedService(Struct, frozen=True):
    """One service of the list."""

    info: ServiceInfo
    uptime: Uptime
    looks: list[LookPoint]


def list_services(
    status: Annotated[str | None, typer.Option(help=f"Only this status: {', '.join(STATUS_STYLE)}.")] = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """List services with their status, latency, uptime and last looks."""
    if status is not None and status not in STATUS_STYLE:
        raise BadInput(f"--status {status!r}: write one of {', '.join(STATUS_STYLE)}")

    async def use(services: Services, store: Store) -> tuple[list[ListedService], bool]:
        return await _read(services, store, status), is_any_alive(await store.workers())

    listed, is_looked_at = with_services(url, use)
    if as_json:
        print_json([_fields(one) for one in listed])
        return
    out = console()
    if not listed:
        out.print(NO_SERVICES if status is None else f"No service is {status}.")
        return
    _print(out, listed)
    if not is_looked_at:
        out.print("[yellow]No worker is running: nothing is looked at.[/]")


async def _read(services: Services, store: Store, status: str | None) -> list[ListedService]:
    now = time.time()
    infos = [service_info(row, now) for row in await services.rows()]
    infos = [one for one in infos if status is None or one.status == status]
    looks: dict[str, list[LookPoint]] = {}
    availability: dict[str, Availability] = {}
    for start in range(0, len(infos), CHUNK):
        names = [one.name for one in infos[start : start + CHUNK]]
        looks |= await store.health.last_looks(names, LOOKS)
        availability |= await store.health.availability(names, now - DAY_S)
    day_ms = round(DAY_S * 1000)
    listed = []
    for one in infos:
        shown = looks.get(one.name, [])
        ahead = ahead_of(shown[0].status, shown[0].at, one.due_at or now, now) if shown else NOTHING_AHEAD
        listed.append(ListedService(one, uptime_of(availability.get(one.name, Availability()), day_ms, ahead), shown))
    return listed


def _fields(one: ListedService) -> dict[str, Any]:
    fields = asdict(one.info) | {"healthy": one.info.healthy, "uptime_24h": one.uptime, "looks": one.looks}
    return fields | {name: without_secrets(fields[name]) for name in ("error", "warnings")}


def _print(out: Console, listed: Sequence[ListedService]) -> None:
    errors = [one_line(without_secrets(one.info.error)) for one in listed]
    head, rows = _fitting(listed, out.width)
    room = out.width - sum(_widths(head, rows)) - GAP * len(head)
    is_beside = any(errors) and room >= ERROR_COLUMNS
    out.print(_table(head, rows, out.width, errors if is_beside else None))
    if any(errors) and not is_beside:
        out.print()
        for one, error in zip(listed, errors, strict=True):
            if error:
                out.print(f"[bold]{one_line(one.info.name)}[/]: {error}")
    counts = Counter(str(one.info.status) for one in listed)
    words = ", ".join(f"{counts[word]} {status_word(word)}" for word in reversed(WORST_FIRST) if counts[word])
    out.print(f"\n{len(listed):,} service{'s' if len(listed) != 1 else ''}: {words}")


def _fitting(listed: Sequence[ListedService], columns: int) -> tuple[list[str], list[list[Text]]]:
    """Return the headings and cells of the widest layout that fits."""
    found = (_laid_out(listed, layout) for layout in LAYOUTS)
    return next((one for one in found if _least_width(*one) <= columns), _laid_out(listed, LAYOUTS[-1]))


def _laid_out(listed: Sequence[ListedService], layout: Layout) -> tuple[list[str], list[list[Text]]]:
    optional = (("last looks", layout.bars), ("next look", layout.next_look))
    head = [*NEVER_SHORTENED, *(name for name, is_there in optional if is_there)]
    return head, [_cells(one, layout) for one in listed]


def _least_width(head: Sequence[str], rows: Sequence[Sequence[Text]]) -> int:
    name, *others = _widths(head, rows)
    return min(name, NAME_COLUMNS) + sum(others) + GAP * len(others)


def _widths(head: Sequence[str], rows: Sequence[Sequence[Text]]) -> list[int]:
    return [max(cell_len(name), *(row[place].cell_len for row in rows)) for place, name in enumerate(head)]


def _table(head: Sequence[str], rows: Sequence[Sequence[Text]], columns: int, errors: Sequence[str] | None) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, expand=errors is not None)
    first, *others = _widths(head, rows)
    # Every column has the width that it needs: rich would rather drop the names than cut another column. Names are for
    # copying: rather two lines than three dots.
    left = max(LEAST_NAME_COLUMNS, columns - sum(others) - GAP * len(others))
    table.add_column(head[0], style="bold", overflow="fold", width=min(first, left))
    for name, width in zip(head[1:], others, strict=True):
        table.add_column(name, justify="left" if name == "status" else "right", no_wrap=True, width=width)
    if errors is not None:
        table.add_column("error", no_wrap=True, overflow="ellipsis", ratio=1)
    for number, row in enumerate(rows):
        table.add_row(*row, *([] if errors is None else [errors[number]]))
    return table


def _cells(one: ListedService, layout: Layout) -> list[Text]:
    info = one.info
    span = "" if info.since is None else human(round(max(0.0, time.time() - info.since)))
    marks = [mark for mark, holds in (("muted", info.muted_until), ("removed", info.is_removed)) if holds]
    words = status_word(info.status) + "".join(f" [dim]({mark})[/]" for mark in marks)
    cells = [one_line(info.name), words, span, latency(info.latency_ms), percent(one.uptime)]
    texts = [Text.from_markup(cell, emoji=False) for cell in cells]
    if layout.bars:
        texts.append(sparkline(one.looks, layout.bars))
    if layout.next_look:
        texts.append(Text.from_markup(next_look(info, has_reason=layout.next_look == "why")))
    return texts


def next_look(info: ServiceInfo, *, has_reason: bool = True) -> str:
    """Return when the next look is, and what it waits for, if not for the interval."""
    if info.due_at is None:
        return "paused"
    left_s = info.due_at - time.time()
    when = f"in {human(math.ceil(left_s))}" if left_s > 0 else "now"
    reason = WAITS.get(info.waits)
    return when if reason is None or not has_reason else f"{when} [dim]({reason})[/]"


def percent(uptime: Uptime) -> str:
    """Return an uptime for people, rounded down: 100 means that it never was down."""
    if uptime.percent is None:
        return ""
    floored = math.floor(uptime.percent * 100) / 100
    return f"{floored:.2f} %" if 0 < floored < 100 else f"{floored:.0f} %"
