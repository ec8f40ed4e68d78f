"""Schedules at a glance: what is enqueued when, and which of them no live worker has."""

import asyncio
from pathlib import Path

from cli.shell import Shell
from everpoll import Everpoll


def _registered(url: str) -> None:
    """Publish a schedule by a worker that has stopped since; the database keeps it."""
    app = Everpoll(url)

    @app.schedule("30 2 * * *", tz="Europe/Berlin")
    @app.job()
    async def nightly() -> None: ...

    async def main() -> None:
        async with app:
            pass

    asyncio.run(main())


def test_schedules_are_listed_with_what_comes_next(shell: Shell, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'tasks.db'}"
    _registered(url)
    [one] = shell.json("schedules", "list", "--url", url)
    assert (one["name"], one["job"], one["timetable"]) == ("nightly", "nightly", "30 2 * * * Europe/Berlin")
    assert (one["missed"], one["is_registered"]) == ("once", False)
    listed = shell("schedules", "list", "--url", url)
    assert (listed.code, listed.err) == (0, "")
    assert "nightly" in listed.words
    assert "no live worker has it" in listed.words


def test_without_schedules_it_says_how_to_make_one(shell: Shell, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'tasks.db'}"
    asyncio.run(_made(url))
    listed = shell("schedules", "list", "--url", url)
    assert (listed.code, listed.words) == (
        0,
        "No schedule is registered. `@app.schedule(…)` above `@app.job()` makes one.",
    )


async def _made(url: str) -> None:
    app = Everpoll(url)
    await app.store()
    await app.close()
