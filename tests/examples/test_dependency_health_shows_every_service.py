"""The example of services: its servers speak every format, and one command shows what happens to them."""

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from example_runs import ROOT, run_example

from everpoll.monitors import FORMATS, read
from examples.dependency_health.stories import STORIES, Story, format_of, is_well

FOLDER = ROOT / "examples/dependency_health"
ANSWERING = [story for story in STORIES if format_of(story) and story.shares is None]


def test_every_format_is_spoken_by_a_service() -> None:
    assert {format_of(story) for story in STORIES} - {""} == set(FORMATS) - {"auto"}


@pytest.mark.parametrize("story", ANSWERING, ids=lambda story: story.name)
def test_a_service_says_whether_it_is_well(story: Story) -> None:
    options = {name: story.options[name] for name in ("format", "mapping") if name in story.options}
    well, ill = (
        read(body.content, body.content_type, body.status, **options) for body in map(story.write, (True, False))
    )
    assert (well.status, well.warnings, ill.warnings) == ("up", (), ())
    assert ill.status in {"degraded", "down"}


def test_a_flapping_service_is_well_for_as_long_as_it_is_not() -> None:
    (story,) = (story for story in STORIES if story.name == "orders")
    assert [is_well(story, at_s) for at_s in (0, 3.9, 4, 7.9, 8)] == [True, True, False, False, True]


@pytest.mark.parametrize("columns", [80, 120])
def test_one_command_shows_all_of_them_and_ends_by_itself(columns: int, tmp_path: Path) -> None:
    ended = run_example("dependency_health", "--for", "1s", folder=tmp_path, columns=columns, TMPDIR=str(tmp_path))
    assert ended.returncode == 0, ended.stderr + ended.stdout
    assert ended.stderr == ""
    assert list(tmp_path.iterdir()) == []
    changes, _, summary = ended.stdout.partition("what happened")
    assert [story.name for story in STORIES if not re.search(rf"^ *{story.name} ", summary, re.MULTILINE)] == []
    assert re.search(r"^archive is down: 127.0.0.1:\d+ refused the connection$", changes, re.MULTILINE)
    assert re.search(r"^partner is down: .* its certificate expired 1 day ago$", changes, re.MULTILINE)
    assert "payments is up\n" in changes
    # How many there are is a matter of the machine's speed; that some are shared is not.
    shared = re.search(r"share a URL: (\d+) looks, (\d+) requests", summary)
    assert shared
    assert int(shared[1]) > int(shared[2]) > 0
    assert max(map(len, summary.splitlines())) <= columns


def test_ctrl_c_ends_it_with_the_summary() -> None:
    command = [sys.executable, "-m", "examples.dependency_health"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert " is " in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        rest, complaints = process.communicate(timeout=60)
        assert "what happened" in rest
        assert (process.returncode, complaints) == (0, "")
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("arguments", [("--for", "soon"), ("--url", "mysql://localhost/x", "--for", "1s")])
def test_what_cannot_be_used_is_one_line(arguments: tuple[str, ...]) -> None:
    ended = run_example("dependency_health", *arguments)
    assert ended.returncode == 1
    assert ended.stderr.count("\n") == 1
    assert "Traceback" not in ended.stderr


def test_its_page_quotes_what_stands_in_the_code() -> None:
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    (quoted,) = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert quoted in (FOLDER / "app.py").read_text(encoding="utf-8")
    assert len(page.splitlines()) <= 95
    assert [name for name in re.findall(r"\]\((\w+\.\w+)\)", page) if not (FOLDER / name).exists()] == []
    named = set(re.findall(r"`([a-z-]+)`", "".join(line for line in page.splitlines() if line.startswith("| `"))))
    assert named <= {story.name for story in STORIES}
