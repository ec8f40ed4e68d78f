"""`python -m examples.shell_query`: twenty queries go through, and the timeline of each is printed."""

import asyncio
import json
import logging
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from everpoll.errors import EverpollError
from examples.shell_query.demo import Played, key_of, play
from examples.shell_query.show import Screen
from examples.shell_query.stories import STORIES

SPEED = 60.0
LONGEST_S = 1740.0 * 1.3
"""The longest query times out after 29 minutes of the cloud; nothing may take much longer."""
SLACK_S = 60.0

Speed = Annotated[
    float, typer.Option(min=1, max=500, help="Seconds of the cloud in one of yours. 1 is the document's own pace.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print what happened as JSON, and nothing else.")]


def main(speed: Speed = SPEED, as_json: AsJson = False) -> None:
    """Run twenty shell queries against a simulated Marketing Cloud, and print how everpoll decided about each."""
    logging.getLogger("everpoll").addHandler(logging.NullHandler())
    logging.getLogger("everpoll").propagate = False  # the tables tell the story here
    console = Console()
    if not as_json:
        console.print(f"{len(STORIES)} queries, {speed:g} seconds of the cloud in one of yours …", highlight=False)
    try:
        with tempfile.TemporaryDirectory(prefix="everpoll-shell-query-") as folder:
            played = asyncio.run(_limited(Path(folder), speed, None if as_json else console))
    except (EverpollError, TimeoutError) as error:
        sys.exit(f"the demo broke off: {error}")
    except KeyboardInterrupt:
        sys.exit("stopped")
    wrong = played.wrong()
    if as_json:
        sys.stdout.write(json.dumps(_as_json(played, speed, wrong), indent=2) + "\n")
    else:
        _print(console, played, speed, wrong)
    sys.exit(1 if wrong else 0)


async def _limited(folder: Path, speed: float, console: Console | None) -> Played:
    limit_s = LONGEST_S / speed + SLACK_S
    async with asyncio.timeout(limit_s):
        return await play(folder, speed, console)


def _print(console: Console, played: Played, speed: float, wrong: list[str]) -> None:
    screen = Screen(speed)
    for story in STORIES:
        console.print(screen.timeline(story, played.infos[story.name]))
    requests = len(played.cloud.records.requests)
    console.print(f"{len(STORIES)} queries ended in {played.took_s:.0f} s, after {requests} requests.", highlight=False)
    if wrong:
        for one in wrong:
            console.print(one, style="bold red", highlight=False)
    else:
        console.print("Each ended as it must, was started once and cleaned up once.", style="green", highlight=False)


def _as_json(played: Played, speed: float, wrong: list[str]) -> dict[str, Any]:
    screen, records = Screen(speed), played.cloud.records
    return {
        "speed": speed,
        "took_s": round(played.took_s, 2),
        "wrong": wrong,
        "requests": len(records.requests),
        "queries": [
            {
                "name": story.name,
                "outcome": info.outcome,
                "reason": info.reason,
                "value": info.value,
                "looks": info.looks,
                "counters": info.counters,
                "starts": records.starts[key_of(story)],
                "deletes": records.deletes["QueryDefinition", key_of(story)],
                "row": played.rows[story.name],
                "timeline": screen.decisions(info),
            }
            for story in STORIES
            for info in [played.infos[story.name]]
        ],
    }


if __name__ == "__main__":
    typer.run(main)
