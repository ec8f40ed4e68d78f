"""Every Python block of README and docs runs as it stands, one namespace a page, in the order of the page."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from doc_pages import ROOT, Block, blocks, name_of, pages, run

# Virtual time makes the examples quick. One that sleeps in real time would be noticed by its reader first.
LONGEST_REAL_S = 60.0

# Django's settings are of a whole process, and other tests have theirs: this page has a process of its own.
ALONE = {"docs/how-to/use-with-django.md"}

WITH_EXAMPLES = [page for page in pages() if blocks(page)]
NOT_RUN = [block for page in WITH_EXAMPLES for block in blocks(page) if not block.is_run]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of the page's own to run in: what it imports from there, writes or sets is gone afterwards."""
    environment, modules = dict(os.environ), set(sys.modules)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    os.environ.pop("EVERPOLL_URL", None)
    os.environ.pop("WORKER_ID", None)
    yield tmp_path
    os.environ.clear()
    os.environ.update(environment)
    for name in set(sys.modules) - modules:
        if str(getattr(sys.modules[name], "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.mark.parametrize("page", WITH_EXAMPLES, ids=name_of)
def test_the_examples_of_a_page_run_in_order_and_quickly(page: Path, folder: Path) -> None:
    began = time.perf_counter()
    if name_of(page) in ALONE:
        program = "import sys, pathlib, doc_pages; doc_pages.run(*map(pathlib.Path, sys.argv[1:]))"
        command = [sys.executable, "-c", program, str(page), str(folder)]
        path = os.pathsep.join([str(folder), str(Path(__file__).parent)])
        done = subprocess.run(
            command, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
    else:
        run(page, folder)
    assert time.perf_counter() - began < LONGEST_REAL_S, f"{name_of(page)}: an example waits in real time"


@pytest.mark.parametrize("page", [*WITH_EXAMPLES, ROOT / "README.md"], ids=name_of)
def test_a_block_is_marked_with_known_words_only(page: Path) -> None:
    """A slip such as `norun` would otherwise be run, or not, by accident."""
    unknown = {word for block in blocks(page) for word in block.info} - {"python", "no-run"}
    assert not unknown, f"{name_of(page)}: write ```python or ```python no-run, not {sorted(unknown)}"


@pytest.mark.parametrize("block", NOT_RUN, ids=str)
def test_a_block_that_is_not_run_says_why_and_is_python_all_the_same(block: Block) -> None:
    assert len(block.reason) > 10, f"{block}: its first line must be a comment that says why it is not run"
    compile(block.code, str(block.page), "exec")


def test_the_blocks_that_are_not_run_are_these() -> None:
    """A list to look at when it grows: each of them can rot unseen."""
    assert [name_of(block.page) for block in NOT_RUN] == [
        "docs/reference/watch-adapters.md",
    ]


def test_the_first_page_and_the_tutorials_have_examples() -> None:
    """Guards the extraction itself: a pattern that finds nothing would let everything pass."""
    assert len(blocks(ROOT / "README.md")) >= 3
    assert len(blocks(ROOT / "docs/tutorial/first-loop.md")) >= 4
    assert len(blocks(ROOT / "docs/tutorial/first-job.md")) >= 4
    assert len(blocks(ROOT / "docs/tutorial/first-watch.md")) >= 4
    assert len(blocks(ROOT / "docs/tutorial/first-service.md")) >= 2
    assert [block.file for block in blocks(ROOT / "README.md") if block.file] == ["shop.py"]
