"""What the demos share on the screen: how rows come along, until all of them have ended."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from examples.plain_sql import Row

LOOK_S = 0.2
LONGEST_S = 120.0
ENDS = ("completed", "failed")
STYLES = {"completed": "green", "failed": "bold red", "running": "bold cyan", "processing": "bold cyan"}

Look = Callable[[], Awaitable[Sequence[Row]]]


class NotEnded(RuntimeError):
    """The demo has waited long enough."""


def quiet() -> None:
    """The tables tell the story here; the log would tear them apart."""
    logging.getLogger("everpoll").addHandler(logging.NullHandler())
    logging.getLogger("everpoll").propagate = False


def styled(status: str) -> str:
    """A status in its colour."""
    return f"[{STYLES.get(status, 'dim')}]{escape(status)}[/]"


async def until_ended(console: Console, look: Look, label: Callable[[Row], str]) -> list[Row]:
    """Show the rows until every one of them has ended; a bar each in a terminal, else a line for every change."""
    try:
        async with asyncio.timeout(LONGEST_S):
            return await (_bars if console.is_terminal else _lines)(console, look, label)
    except TimeoutError:
        raise NotEnded(f"not every row has ended within {LONGEST_S:g} s: is another worker at this table?") from None


async def _bars(console: Console, look: Look, label: Callable[[Row], str]) -> list[Row]:
    columns = (
        SpinnerColumn(finished_text=" "),
        TextColumn("{task.fields[status]}"),
        BarColumn(bar_width=16),
        TimeElapsedColumn(),
        TextColumn("{task.description}", markup=False),
    )
    bars: dict[object, TaskID] = {}
    with Progress(*columns, console=console, transient=True) as progress:
        while True:
            rows = await look()
            for row in rows:
                if row["id"] not in bars:
                    bars[row["id"]] = progress.add_task(label(row), total=None, status="")
                _update(progress, bars[row["id"]], row)
            if _all_ended(rows):
                return list(rows)
            await asyncio.sleep(LOOK_S)


def _update(progress: Progress, bar: TaskID, row: Row) -> None:
    has_ended = row["status"] in ENDS
    tries = f" [yellow]({row['retry_count']}x)[/]" if row["retry_count"] and not has_ended else ""
    progress.update(
        bar, status=f"{styled(row['status'])}{tries}", total=1 if has_ended else None, completed=int(has_ended)
    )


async def _lines(console: Console, look: Look, label: Callable[[Row], str]) -> list[Row]:
    seen: dict[object, tuple[str, int]] = {}
    while True:
        rows = await look()
        for row in rows:
            now = (row["status"], row["retry_count"])
            if seen.get(row["id"]) != now:
                seen[row["id"]] = now
                tried = f", tried {row['retry_count']}x in vain" if row["retry_count"] else ""
                line = f"{row['status']:<10} {label(row)}{tried}"
                console.print(line, markup=False, highlight=False, soft_wrap=True)
        if _all_ended(rows):
            return list(rows)
        await asyncio.sleep(LOOK_S)


def _all_ended(rows: Sequence[Row]) -> bool:
    return all(row["status"] in ENDS for row in rows)
