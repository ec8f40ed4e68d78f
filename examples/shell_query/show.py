"""What people see: the twenty runs as they go, and at the end the timeline of each.

Every time on the screen is the cloud's: where it runs sixty times as fast, so do the figures, and half a second of
waiting is shown as the thirty seconds that it stands for.
"""

import re
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from rich import box
from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from everpoll.policy import human, seconds
from everpoll.watches import RunInfo
from examples.shell_query.stories import Story

STYLES = {"ready": "green", "failed": "red", "timed_out": "yellow", "canceled": "magenta"}
_DURATION = re.compile(r"(?<![\w.])(?:\d+(?:\.\d+)?(?:ms|d|h|m|s))+(?![\w.])")


class Screen:
    """The tables, in the cloud's time."""

    def __init__(self, speed: float) -> None:
        self._speed = speed

    def live(self, stories: Iterable[Story], infos: dict[str, RunInfo], now: float) -> RenderableType:
        """Every run as it is now."""
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for name in ("query", "phase", "the cloud says", "looks", "next look", "outcome"):
            table.add_column(name, justify="right" if name in {"looks", "next look"} else "left", no_wrap=True)
        ended = 0
        for story in stories:
            info = infos.get(story.name)
            if info is None:
                table.add_row(story.name, "[dim]no run yet[/]")
                continue
            ended += info.outcome is not None
            due_s = 0.0 if info.next_look_at is None else info.next_look_at.timestamp() - now
            wait = "" if info.next_look_at is None or info.outcome else human(max(0.0, due_s) * self._speed)
            said = escape(info.status or "")
            table.add_row(story.name, info.phase, said, str(info.looks), wait, outcome(info.outcome))
        return Group(table, Text(f"{ended} of {len(infos)} have ended", style="dim"))

    def timeline(self, story: Story, info: RunInfo) -> RenderableType:
        """What was decided about one run, when and why."""
        title = f"[bold]{story.name}[/]  {outcome(info.outcome)}  [dim]{info.looks} looks[/]"
        table = Table(title=title, title_justify="left", box=box.SIMPLE, show_header=False, pad_edge=False)
        table.add_column(justify="right", no_wrap=True)
        table.add_column(no_wrap=True)
        table.add_column(overflow="fold")
        table.add_column(justify="right", no_wrap=True)
        for one in self.decisions(info):
            span = one["at"] if one["times"] == 1 else f"{one['since']} - {one['at']}"
            times = "" if one["times"] == 1 else f" [dim]({one['times']} looks)[/]"
            next_look = "" if one["next"] is None else f"[dim]next in {one['next']}[/]"
            table.add_row(span, f"[cyan]{escape(one['decision'])}[/]", escape(one["reason"]) + times, next_look)
        return table

    def decisions(self, info: RunInfo) -> list[dict[str, Any]]:
        """The log of a run, in the cloud's time."""
        since = info.log[0].at if info.log else 0.0
        return [
            {
                "at": self._clock(one.at - since),
                "since": self._clock((one.at if one.first_at is None else one.first_at) - since),
                "times": one.times,
                "decision": one.rule,
                "reason": self.in_cloud_time("; ".join([one.why, *_details(one.facts, one.why)])),
                "status": one.status,
                "facts": {name: self.in_cloud_time(str(value)) for name, value in one.facts.items()},
                "next": None if one.next_s is None else human(one.next_s * self._speed),
            }
            for one in info.log
        ]

    def in_cloud_time(self, text: str) -> str:
        """A text with its durations in the cloud's time."""
        return _DURATION.sub(lambda found: human(seconds(found[0], name="text") * self._speed), text)

    def _clock(self, real_s: float) -> str:
        minutes, rest_s = divmod(real_s * self._speed, 60)
        return f"{int(minutes):02}:{rest_s:04.1f}"


def _details(facts: dict[str, Any], why: str) -> list[str]:
    """What went wrong, or was seen, on the way to a decision that does not say so itself."""
    wrong = [str(value) for name, value in facts.items() if name == "error" or name.startswith("attempt:")]
    seen = [(name.removeprefix("confirm:"), value) for name, value in facts.items() if name.startswith("confirm:")]
    unmentioned = [f"{name}: {value}" for name, value in seen if not why.startswith(name)]
    return [one for one in wrong if one[:100] not in why] + unmentioned


def outcome(word: str | None) -> str:
    """An outcome in its colour."""
    return "" if word is None else f"[{STYLES[word]}]{word}[/]"


def plain_changes(console: Console, before: dict[str, tuple[Any, ...]], infos: dict[str, RunInfo]) -> None:
    """Where there is no terminal: a line for every change."""
    for name, info in infos.items():
        now = (info.phase, info.status, info.outcome)
        if before.get(name) != now:
            before[name] = now
            said = " ".join(part for part in (info.phase, info.status, info.outcome) if part)
            console.print(f"{_hour(info)}  {name:<20} {said}", markup=False, highlight=False, soft_wrap=True)


def _hour(info: RunInfo) -> str:
    at = info.ended_at or datetime.now(info.created_at.tzinfo)
    return f"{(at - info.created_at).total_seconds():6.2f}s"
