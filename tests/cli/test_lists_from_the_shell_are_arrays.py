"""`--json` of every list prints an array, also of an empty database; loops of other processes are among the lists."""

import asyncio
from pathlib import Path

import pytest

from cli.shell import Shell
from everpoll import Everpoll

LISTS = (
    ("jobs", "list"),
    ("jobs", "causes"),
    ("runs", "list"),
    ("loops", "list"),
    ("queues", "list"),
    ("schedules", "list"),
    ("services", "list"),
    ("services", "incidents"),
    ("maintenance", "list"),
    ("workers",),
    ("workers", "list"),
)


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A database in which one process has published a loop, and nothing else has happened."""
    url = f"sqlite:///{tmp_path}/shop.db"

    async def fill() -> None:
        app = Everpoll(url)

        @app.job()
        async def work() -> None: ...

        @app.loop(every="1h")
        async def refresh_prices() -> None: ...

        async with app, asyncio.timeout(20):
            store = await app.store()
            while not await store.published_loops():  # noqa: ASYNC110 - the heartbeat publishes it
                await asyncio.sleep(0.05)

    asyncio.run(fill())
    return url


@pytest.mark.parametrize("command", LISTS, ids=" ".join)
def test_each_list_is_an_array(shell: Shell, url: str, command: tuple[str, ...]) -> None:
    found = shell.json(*command, "--url", url)
    assert isinstance(found, list)
    assert shell(*command, "--url", url).code == 0


def test_loops_of_other_processes_are_listed_and_shown(shell: Shell, url: str) -> None:
    [listed] = shell.json("loops", "list", "--url", url)
    assert (listed["name"], listed["every_s"], listed["runs"]) == ("refresh_prices", 3600.0, 0)
    assert "refresh_prices" in shell("loops", "list", "--url", url).out
    assert shell.json("loops", "show", "refresh_prices", "--url", url) == [listed]
    missing = shell("loops", "show", "other", "--url", url)
    assert (missing.code, "no process publishes a loop called 'other'" in missing.err) == (2, True)
