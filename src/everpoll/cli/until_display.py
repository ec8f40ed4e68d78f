"""The display of `everpoll until`: three changing lines in a terminal, else one line for each look."""

import asyncio
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from everpoll.policy import human
from everpoll.watches.memory import Decision
from everpoll.watches.verdicts import Wait

REFRESH_S = 0.2
BAR_COLUMNS = 24
_PERCENT = re.compile(r"([0-9]{1,3}(?:\.[0-9]+)?) %")


@dataclass(slots=True)
class Progress:
    """The state of the wait; each look updates it."""

    title: str
    budget_s: float
    masked: Callable[[str], str]
    now: Callable[[], float]
    began_at: float = 0.0
    looks: int = 0
    status: str | None = None
    note: str | None = None
    error: str | None = None
    next_at: float | None = None
    is_canceling: bool = False
    on_line: list[Callable[[str], None]] = field(default_factory=list)
    """Called with a line for each decision."""

    @property
    def elapsed(self) -> str:
        """Return the time since the start, for people."""
        return human(round(self.now() - self.began_at))

    @property
    def said(self) -> str:
        """Return the result of the last look in words."""
        if self.error is not None:
            return self.masked(self.error)
        words = self.status or "pending"
        return self.masked(f"{words}, {self.note}" if self.note else words)

    @property
    def count(self) -> str:
        """Return the number of looks, in words."""
        return "1 look" if self.looks == 1 else f"{self.looks} looks"

    def saw(self, looks: int, verdict: object) -> None:
        """Record the end of a look."""
        self.looks, self.error = looks, None
        if isinstance(verdict, Wait):
            self.status, self.note = verdict.status or self.status, verdict.note

    def broke(self, error: str, looks: int | None = None) -> None:
        """Record a look or a start that failed and is tried again."""
        self.looks = self.looks if looks is None else looks
        self.error = error

    def decided(self, _run: str, decision: Decision) -> None:
        """Record when the next look is, and why."""
        self.next_at = None if decision.next_s is None else self.now() + decision.next_s
        if decision.next_s is None:
            return
        what = "started" if decision.rule == "started" else f"look {self.looks}: {self.said}"
        if not self.looks and self.error is not None:
            what = f"start: {self.said}"
        why = "" if decision.rule in ("cadence", "started") else f": {self.masked(decision.why)}"
        digits = 1 if decision.next_s >= 1 else 3
        line = f"{self.elapsed:>6}  {what}; next look in {human(round(decision.next_s, digits))}{why}"
        for tell in self.on_line:
            tell(line)


async def show_live(console: Console, progress: Progress, over: asyncio.Event) -> None:
    """Update the display until the wait is over."""
    spinner = Spinner("dots")
    with Live(console=console, auto_refresh=False, transient=True) as live:
        while not over.is_set():
            live.update(_panel(progress, spinner), refresh=True)
            try:
                await asyncio.wait_for(over.wait(), REFRESH_S)
            except TimeoutError:
                continue


def _panel(progress: Progress, spinner: Spinner) -> Group:
    head = Table.grid(padding=(0, 1))
    head.add_row(spinner, Text(progress.title, overflow="ellipsis", no_wrap=True))
    body = Table.grid(padding=(0, 1))
    body.add_column(width=BAR_COLUMNS)
    body.add_column(ratio=1)
    said = Text(progress.said if progress.looks or progress.error else "asking", overflow="ellipsis", no_wrap=True)
    said.stylize("red" if progress.error is not None else "bold")
    body.add_row(_bar(progress), said)
    words = [progress.count, f"{progress.elapsed} of {human(progress.budget_s)}"]
    if progress.is_canceling:
        words.append("canceling")
    elif progress.next_at is not None:
        left_s = max(0.0, progress.next_at - progress.now())
        words.append(f"next look in {human(math.ceil(left_s))}" if left_s > 0 else "looking")
    return Group(head, body, Text(" · ".join(words), style="dim", overflow="ellipsis", no_wrap=True))


def _bar(progress: Progress) -> ProgressBar:
    found = None if progress.note is None else _PERCENT.search(progress.note)
    if found is None:
        return ProgressBar(total=None, width=BAR_COLUMNS, pulse=True, animation_time=progress.now())
    return ProgressBar(total=100, completed=min(100.0, float(found[1])), width=BAR_COLUMNS)
