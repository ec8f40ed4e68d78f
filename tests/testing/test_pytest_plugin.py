"""The fixtures for pytest are there as soon as everpoll is installed."""

import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

from everpoll.testing import pytest_plugin

TEST = """
from everpoll import Everpoll
from everpoll.testing import assert_enqueued, drain

app = Everpoll("sqlite:///{folder}/own.db")
ran = []


@app.job()
async def remind(name: str) -> None:
    ran.append(name)


def test_a_reminder(everpoll_clock, everpoll_memory) -> None:
    async def main():
        await remind.enqueue("ada", delay="1h")
        await assert_enqueued(app, remind, "ada")
        await everpoll_clock.advance("1h")
        await drain(app)

    assert everpoll_memory(app, clock=everpoll_clock) is app
    everpoll_clock.run(main())
    assert ran == ["ada"]
"""


def test_the_plugin_is_registered() -> None:
    """Under the group that pytest reads."""
    [found] = [one for one in entry_points(group="pytest11") if one.name == "everpoll"]
    assert found.value == pytest_plugin.__name__


def test_its_fixtures_serve_a_test(tmp_path: Path) -> None:
    """A file of its own, as a user writes it; the database of the app is not touched."""
    file = tmp_path / "test_shop.py"
    file.write_text(TEST.replace("{folder}", str(tmp_path)))
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--rootdir", str(tmp_path)]
    found = subprocess.run(
        [sys.executable, "-B", "-m", "pytest", *options, str(file)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stdout
    assert "1 passed" in found.stdout
    assert [one.name for one in tmp_path.iterdir()] == ["test_shop.py"]
