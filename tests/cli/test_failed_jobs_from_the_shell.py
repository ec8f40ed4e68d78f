"""Causes, redrive and cancel by filter from the shell: counted first, done with --yes, told as JSON."""

import asyncio
from pathlib import Path

import pytest

from cli.shell import Shell
from everpoll import Everpoll, Retry
from everpoll.testing import drain


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A database in which three jobs have failed, and two wait."""
    url = f"sqlite:///{tmp_path}/shop.db"

    async def fill() -> None:
        app = Everpoll(url)

        @app.job(retry=Retry(1))
        async def send(to: int) -> None:
            raise ConnectionError(f"host [red]{to}[/red] refused") if to < 3 else KeyError("x")

        await send.enqueue_many([(1,), (2,), (3,)])
        await drain(app)
        for _ in range(2):
            await send.enqueue(4, delay="1h")
        await app.close()

    asyncio.run(fill())
    return url


def test_causes_are_listed_the_most_frequent_first(shell: Shell, url: str) -> None:
    said = shell("jobs", "causes", "--url", url)
    assert said.code == 0
    assert "ConnectionError: host [red]<n>[/red] refused" in said.words
    found = shell.json("jobs", "causes", "--url", url)
    assert [(one["name"], one["type"], one["count"]) for one in found] == [
        ("send", "ConnectionError", 2),
        ("send", "KeyError", 1),
    ]
    assert "No job has failed." in shell("jobs", "causes", "--name", "other", "--url", url).out


def test_a_redrive_counts_asks_and_puts_back(shell: Shell, url: str) -> None:
    wanted = ("jobs", "redrive", "--error", "ConnectionError", "--url", url)
    assert "2 of 2 jobs would be put back" in shell(*wanted, "--dry-run").out
    refused = shell(*wanted)
    assert (refused.code, "--yes" in refused.err) == (2, True)
    done = shell.json(*wanted, "--yes")
    assert (done["matched"], done["moved"], done["skipped"]) == (2, 2, 0)
    assert [one["type"] for one in shell.json("jobs", "causes", "--url", url)] == ["KeyError"]
    assert "without a filter" in shell("jobs", "redrive", "--url", url).err
    assert "1 of 1 job put back" in shell("jobs", "redrive", "--everything", "--yes", "--url", url).out


def test_live_jobs_are_canceled_by_filter(shell: Shell, url: str) -> None:
    wanted = ("jobs", "cancel", "--name", "send", "--url", url)
    assert "2 of 2 jobs would be canceled" in shell(*wanted, "--dry-run").out
    assert shell.json(*wanted, "--yes")["moved"] == 2
    assert "at least one of --name" in shell("jobs", "cancel", "--url", url).err
    listed = shell.json("jobs", "list", "--error", "KeyError", "--url", url)
    assert [one["state"] for one in listed] == ["failed"]


def test_jobs_are_listed_by_when_they_ended(shell: Shell, url: str) -> None:
    """Whatever was enqueued long ago: live jobs have not ended."""
    listed = shell.json("jobs", "list", "--ended-within", "1h", "--url", url)
    assert {one["state"] for one in listed} == {"failed"}
    assert shell.json("jobs", "list", "--ended-within", "1ms", "--url", url) == []
    assert "--ended-within='soon'" in shell("jobs", "list", "--ended-within", "soon", "--url", url).err


def test_a_dry_run_cancels_nothing_by_id_either(shell: Shell, url: str) -> None:
    said = shell("jobs", "cancel", "4", "--dry-run", "--url", url)
    assert (said.code, said.out.strip()) == (0, "task 4 would be canceled: it is queued")
    counted = {"matched": 1, "moved": 1, "skipped": 0, "reasons": {}}
    assert shell.json("jobs", "cancel", "4", "--dry-run", "--url", url) == counted | {"dry_run": True}
    assert shell.json("jobs", "show", "4", "--url", url)["state"] == "queued"
    assert shell.json("jobs", "cancel", "4", "--url", url) == counted | {"dry_run": False}
    assert shell.json("jobs", "show", "4", "--url", url)["state"] == "canceled"
