"""Shows health in a terminal: status words in colour, dependencies as a table, or as lines if it is narrow.

What a remote wrote is printed as text on one line: neither as markup nor as control characters.
"""

from collections.abc import Sequence
from typing import Protocol

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from everpoll.cli.session import plain
from everpoll.policy import human

STATUS_STYLE = {
    "up": "green",
    "degraded": "yellow",
    "down": "bold red",
    "unknown": "magenta",
    "stale": "dim magenta",
    "paused": "cyan",
}
WORST_FIRST = ("down", "degraded", "stale", "unknown", "paused", "up")
COLUMNS = ("dependency", "status", "latency", "type", "impact", "error")
WIDEST = {"dependency": 32, "type": 14, "impact": 24}
"""The largest widths of these columns; longer texts are wrapped."""
GAP = 3
ERROR_COLUMNS = 24
"""If errors get less room than this, dependencies are printed as lines."""


class ShownDependency(Protocol):
    """The displayed fields of a dependency, reported or stored."""

    @property
    def name(self) -> str: ...  # noqa: D102 - as in `Dependency`
    @property
    def status(self) -> str: ...  # noqa: D102
    @property
    def skipped(self) -> bool: ...  # noqa: D102
    @property
    def latency_ms(self) -> float | None: ...  # noqa: D102
    @property
    def type(self) -> str: ...  # noqa: D102
    @property
    def impact(self) -> str | None: ...  # noqa: D102
    @property
    def error_message(self) -> str | None: ...  # noqa: D102


def one_line(text: str | None) -> str:
    """Return foreign text as one line, with control characters and markup escaped."""
    return "" if text is None else plain(" ".join(text.split()))


def status_word(status: str) -> str:
    """Return the word for a status, in its colour."""
    return f"[{STATUS_STYLE[status]}]{status}[/]"


def latency(latency_ms: float | None) -> str:
    """Return a latency for people; empty if there is none."""
    return "" if latency_ms is None else human(latency_ms / 1000)


def print_head(out: Console, status: str, name: str, error: str | None, facts: Sequence[str]) -> None:
    """Print the status of a service, its error, and facts about its look; `facts` are markup."""
    out.print(f"[{STATUS_STYLE[status]}]● {status}[/]  [bold]{one_line(name)}[/]")
    if error is not None:
        out.print(f"[red]{one_line(error)}[/]")
    known = [fact for fact in facts if fact]
    if known:
        out.print("[dim] · [/]".join(known))


def http_word(http_status: int | None) -> str:
    """Return the HTTP status for people; empty if there is none."""
    return "" if http_status is None else f"HTTP {http_status}"


def print_warnings(out: Console, warnings: Sequence[str]) -> None:
    """Print the warnings of a look, one line each."""
    if warnings:
        out.print()
    for warning in warnings:
        out.print(f"[yellow]warning[/] {one_line(warning)}")


def print_dependencies(out: Console, dependencies: Sequence[ShownDependency]) -> None:
    """Print the dependencies of a service, the failed ones first."""
    if not dependencies:
        return
    ordered = sorted(dependencies, key=lambda one: WORST_FIRST.index(one.status))
    rows = [_row(one) for one in ordered]
    # Leave out empty columns, so that errors get their room.
    filled = [number for number in range(len(COLUMNS)) if any(row[number] for row in rows)]
    taken = sum(_width(rows, number) + GAP for number in filled if COLUMNS[number] != "error")
    out.print()
    out.print(_table(rows, filled) if taken + ERROR_COLUMNS <= out.width else _lines(rows))


def _width(rows: Sequence[tuple[str, ...]], number: int) -> int:
    name = COLUMNS[number]
    longest = max(len(name), *(len(Text.from_markup(row[number], emoji=False)) for row in rows))
    return min(longest, WIDEST.get(name, longest))


def _table(rows: Sequence[tuple[str, ...]], filled: Sequence[int]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for number in filled:
        name = COLUMNS[number]
        table.add_column(
            name,
            justify="right" if name == "latency" else "left",
            style={"dependency": "bold", "type": "dim"}.get(name, ""),
            width=None if name == "error" else _width(rows, number),
            overflow="fold",
        )
    for row in rows:
        table.add_row(*(row[number] for number in filled))
    return table


def _row(one: ShownDependency) -> tuple[str, ...]:
    word = status_word(one.status)
    return (
        one_line(one.name),
        f"{word} [dim](skipped)[/]" if one.skipped else word,
        latency(one.latency_ms),
        "" if one.type == "other" else one_line(one.type),
        one_line(one.impact),
        one_line(one.error_message),
    )


def _lines(rows: Sequence[tuple[str, ...]]) -> Table:
    """Return one dependency after the other, each with its error beneath."""
    lines = Table.grid(padding=(0, 2, 0, 0))
    lines.add_column(no_wrap=True)
    lines.add_column(overflow="fold")
    for name, status, took, kind, impact, error in rows:
        about = "".join(f" · {part}" for part in (took, kind, impact) if part)
        lines.add_row(status, f"[bold]{name}[/][dim]{about}[/]")
        if error:
            lines.add_row("", error)
    return lines
