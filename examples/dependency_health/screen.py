"""The screen of the demo: a table of the services, the latest alerts, and a summary at the end."""

from collections import Counter, deque
from collections.abc import Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from everpoll.monitors import Message, ServiceEvent, ServiceInfo, StatusChange
from everpoll.policy import human
from examples.dependency_health.stories import STORIES, format_of

STYLES = {"up": "green", "degraded": "yellow", "down": "bold red", "unknown": "dim", "stale": "dim"}
MAX_ALERTS = 4


NAME_CHARS, STATUS_CHARS = max(len(story.name) for story in STORIES), len("degraded")
"""Only the last column gives way where the terminal is narrow."""


class Screen:
    """Collects what happens, and shows it."""

    def __init__(self) -> None:
        self.looks: Counter[str] = Counter()
        self.changes: Counter[str] = Counter()
        self.lines: list[str] = []
        self._alerts: deque[str] = deque(maxlen=MAX_ALERTS)

    def note(self, event: ServiceEvent) -> None:
        """Count a look, or a change of a service."""
        if event.kind == "poll:complete":
            self.looks[event.service_name] += 1
        if isinstance(event, StatusChange) and event.dependency_name is None:
            self.changes[event.service_name] += 1
            why = f": {event.error}" if event.error else ""
            self.lines.append(f"{event.service_name} is {event.current_status}{why}")

    def tell(self, message: Message) -> None:
        """Receive an alert: this is the channel."""
        self.lines += [f"alert: {line}" for line in message.lines]
        self._alerts.extend(message.lines)

    def live(self, infos: Sequence[ServiceInfo], now: float) -> RenderableType:
        """Every service as it is now, and the last alerts."""
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        table.add_column("service", style="bold", no_wrap=True, min_width=NAME_CHARS)
        table.add_column("status", no_wrap=True, min_width=STATUS_CHARS)
        for column in ("latency", "looks", "next look"):
            table.add_column(column, justify="right", no_wrap=True, min_width=len(column))
        table.add_column("why", overflow="ellipsis", no_wrap=True)
        for info in infos:
            table.add_row(
                info.name,
                f"[{STYLES[info.status]}]{info.status}[/]",
                "" if info.latency_ms is None else f"{info.latency_ms:.0f} ms",
                str(self.looks[info.name]),
                "" if info.due_at is None else human(round(max(0.0, info.due_at - now), 1)),
                escape(info.error or ""),
            )
        return Group(table, *(Text(f"alert: {line}", style="yellow", no_wrap=True) for line in self._alerts))

    def summary(self, infos: Sequence[ServiceInfo], requests: Counter[str]) -> RenderableType:
        """What happened."""
        formats = {story.name: format_of(story) for story in STORIES}
        table = Table(title="what happened", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
        table.add_column("service", style="bold", no_wrap=True, min_width=NAME_CHARS)
        table.add_column("format", no_wrap=True, min_width=max(map(len, formats.values())))
        for column in ("looks", "requests", "changes"):
            table.add_column(column, justify="right", no_wrap=True, min_width=len(column))
        table.add_column("at the end", overflow="ellipsis", no_wrap=True)
        for info in infos:
            why = f" [dim]{escape(info.error)}[/]" if info.error else ""
            table.add_row(
                info.name,
                formats[info.name],
                str(self.looks[info.name]),
                str(requests[info.name]),
                str(self.changes[info.name]),
                f"[{STYLES[info.status]}]{info.status}[/]{why}",
            )
        return table
