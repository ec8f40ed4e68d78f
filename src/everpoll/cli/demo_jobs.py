"""The demo's jobs, on a SQLite file of their own: they wait, run, fail, are retried, are snoozed, and end."""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from rich import box
from rich.markup import escape
from rich.table import Table

from everpoll.app import Everpoll
from everpoll.jobs import Retry, Task
from everpoll.policy import Backoff, Snooze
from everpoll.stores.contract import TaskFilter, TaskInfo

SHOWN = 6
STATE_STYLE = {"queued": "cyan", "running": "bold cyan", "done": "green", "failed": "bold red", "canceled": "yellow"}


@dataclass
class JobStory:
    """Counts of the jobs so far, and the newest jobs."""

    enqueued: int = 0
    runs: Counter[str] = field(default_factory=Counter)
    newest: tuple[TaskInfo, ...] = ()

    async def look(self, app: Everpoll) -> None:
        """Read the newest jobs from the store."""
        store = await app.store()
        self.newest = (await store.tasks(TaskFilter(kind="job"), limit=SHOWN)).tasks

    def table(self) -> Table:
        """The newest jobs, as a table."""
        table = Table(title="jobs, newest first, on SQLite", title_style="bold", box=box.SIMPLE_HEAD, expand=True)
        table.add_column("id", justify="right", min_width=4)
        table.add_column("name", style="bold", no_wrap=True, min_width=9)
        table.add_column("state", no_wrap=True, min_width=8)
        for column in ("attempt", "priority"):
            table.add_column(column, justify="right", no_wrap=True)
        table.add_column("last decision", overflow="ellipsis", no_wrap=True, ratio=1)
        for task in self.newest:
            why = task.trail[-1].get("why", "") if task.trail else ""
            table.add_row(
                str(task.id),
                task.name,
                f"[{STATE_STYLE[task.state]}]{task.state}[/]",
                str(task.attempt),
                str(task.priority),
                escape(str(why)),
            )
        return table

    def summary(self) -> str:
        """One line for the end."""
        runs = ", ".join(f"{count} {name}" for name, count in sorted(self.runs.items()))
        return f"jobs: {self.enqueued} enqueued; runs: {runs or 'none'}"


def add_jobs(app: Everpoll) -> JobStory:
    """Register four jobs, and a loop that keeps them coming."""
    story = JobStory()
    rng = random.Random(11)  # noqa: S311 - the same story every time

    @app.job()
    async def audit(site: str) -> int:
        story.runs["audit"] += 1
        await asyncio.sleep(0.2 + rng.random())
        return len(site)

    @app.job(retry=Retry(3, Backoff("600ms")))
    async def mail(task: Task, to: str) -> None:
        story.runs["mail"] += 1
        await asyncio.sleep(0.1)
        if task.attempt < 2:
            raise ConnectionError(f"{to}: connection refused")

    @app.job(priority=5)
    def report(day: int) -> Snooze | str:
        story.runs["report"] += 1
        return Snooze("1s") if story.runs["report"] % 3 else f"report {day}"

    @app.job(retry=Retry(2, Backoff("400ms")))
    async def upload(name: str) -> None:
        story.runs["upload"] += 1
        raise FileNotFoundError(name)

    calls: list[Callable[[], Awaitable[Any]]] = [
        lambda: audit.enqueue("https://example.com"),
        lambda: mail.enqueue("ada@example.com"),
        lambda: report.enqueue(story.enqueued),
        lambda: audit.enqueue("https://example.org", delay="2s"),
        lambda: upload.enqueue("missing.csv"),
    ]

    async def visitors() -> None:
        await calls[story.enqueued % len(calls)]()
        story.enqueued += 1

    app.loop("700ms", first="0s", when_hidden=1)(visitors)
    return story
