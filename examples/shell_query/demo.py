"""The demo: a cloud, a worker, twenty queries, until each has ended and is cleaned up; and whether all went as it must.

Promises: what it says about the cloud is read from the cloud's own records, not from everpoll's.
"""

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live

from everpoll import Everpoll
from everpoll.errors import TaskNotFound
from everpoll.watches import RunInfo
from examples.shell_query.app import NAME, ShellQueries, customer_key
from examples.shell_query.client import CloudClient
from examples.shell_query.figures import Figures
from examples.shell_query.http_server import served
from examples.shell_query.marketing_cloud import TOKEN, MarketingCloud
from examples.shell_query.runs import Runs, ShellQuery
from examples.shell_query.show import Screen, plain_changes
from examples.shell_query.stories import RESTART_AT_S, RESTART_LASTS_S, STORIES, Story

REFRESH_S = 0.2


class SystemClock:
    """The clocks of this machine."""

    now = staticmethod(time.monotonic)
    wall = staticmethod(time.time)


@dataclass(slots=True)
class Played:
    """How it went."""

    infos: dict[str, RunInfo]
    rows: dict[str, dict[str, Any]]
    cloud: MarketingCloud
    took_s: float

    def wrong(self) -> list[str]:
        """Everything that is not as it must be; nothing is the rule."""
        problems = [self._wrong(story) for story in STORIES]
        problems += [[f"{kind} {key} was never deleted"] for kind, key in self.cloud.leaked]
        problems += [
            [f"{one.action} was asked before its Retry-After was over"] for one in self.cloud.records.too_early
        ]
        return [one for some in problems for one in some]

    def _wrong(self, story: Story) -> list[str]:
        info, row, records = self.infos[story.name], self.rows[story.name], self.cloud.records
        key = key_of(story)
        status = "failed" if story.ends == "timed_out" else story.ends
        facts = {
            f"ended as {info.outcome}, not {story.ends}": info.outcome == story.ends,
            f"its row says {row['status']}": row["status"] == status,
            f"was started {records.starts[key]} times": records.starts[key] == 1,
            "was not cleaned up once": records.deletes["QueryDefinition", key] == 1 and info.cleaned is True,
            "was deleted while it ran": key not in records.deleted_while_running,
        }
        return [f"{story.name}: {what}" for what, holds in facts.items() if not holds]


def key_of(story: Story) -> str:
    """The CustomerKey of its query."""
    return customer_key(f"{NAME}:{story.name}")


async def play(folder: Path, speed: float, console: Console | None) -> Played:
    """All of it; on the console as it goes, if there is one."""
    began_at = time.monotonic()
    cloud = MarketingCloud(SystemClock(), speed=speed)
    for story in STORIES:
        cloud.fates[key_of(story)] = story.fate
        for action, trouble in story.troubles:
            cloud.faults.script(action, trouble, key=key_of(story))
    figures = Figures.at_speed(speed)
    runs = Runs(folder / "business.db")
    app = Everpoll(f"sqlite:///{folder}/everpoll.db")
    async with served(cloud) as url:
        client = CloudClient(url, TOKEN, timeout=figures.request_timeout_s)
        queries = ShellQueries(app, client, runs, figures)
        async with app, asyncio.TaskGroup() as group:
            for story in STORIES:
                group.create_task(_begun(story, queries, runs, speed))
            group.create_task(_restarted(cloud, speed))
            infos = await _ended(app, console, Screen(speed))
    return Played(infos, await runs.all(), cloud, time.monotonic() - began_at)


async def _begun(story: Story, queries: ShellQueries, runs: Runs, speed: float) -> None:
    op = ShellQuery(run_id=story.name, sql_text=story.sql)
    await runs.add(op)
    if not story.is_begun:
        return
    run = await queries.watch.begin(op, id=story.name)
    if story.cancel_after_s is not None:
        # From its start: a busy machine must not have it canceled before it is known in the cloud.
        async for _ in run.events():
            if (await run.info()).phase != "intent":
                break
        await asyncio.sleep(story.cancel_after_s / speed)
        await run.cancel("the user closed the window")


async def _restarted(cloud: MarketingCloud, speed: float) -> None:
    await asyncio.sleep(RESTART_AT_S / speed)
    cloud.restart(RESTART_LASTS_S)


async def _ended(app: Everpoll, console: Console | None, screen: Screen) -> dict[str, RunInfo]:
    """Look until every run has ended."""
    seen: dict[str, tuple[Any, ...]] = {}
    show = Live(console=console, transient=True, auto_refresh=False) if console and console.is_terminal else None
    if show is not None:
        show.start()
    try:
        while True:
            infos = await _infos(app)
            if show is not None:
                show.update(screen.live(STORIES, infos, time.time()), refresh=True)
            elif console is not None:
                plain_changes(console, seen, infos)
            if len(infos) == len(STORIES) and all(one.phase == "ended" for one in infos.values()):
                return infos
            await asyncio.sleep(REFRESH_S)
    finally:
        if show is not None:
            show.stop()


async def _infos(app: Everpoll) -> dict[str, RunInfo]:
    found = {}
    for story in STORIES:
        try:
            found[story.name] = await (await app.watches.run(NAME, story.name)).info()
        except TaskNotFound:
            continue
    return found
