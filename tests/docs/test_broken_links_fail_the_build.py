"""`make docs` fails on a broken link or anchor: proved by breaking one, because a builder that is quiet looks fine."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from doc_pages import ROOT


def build(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet"],
        cwd=folder,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "docs", tmp_path / "docs", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    return tmp_path


def test_the_documentation_builds(copy: Path) -> None:
    built = build(copy)
    assert built.returncode == 0, built.stderr
    assert (copy / "site/reference/glossary/index.html").exists()
    assert not list((copy / "site").rglob("*.py"))


@pytest.mark.parametrize("target", ["reference/nowhere.md", "reference/policies.md#nowhere"])
def test_a_link_to_nowhere_fails(copy: Path, target: str) -> None:
    with (copy / "docs/index.md").open("a", encoding="utf-8") as page:
        page.write(f"\n[broken]({target})\n")
    built = build(copy)
    assert built.returncode != 0
    assert "nowhere" in built.stderr


def test_a_page_that_the_navigation_forgot_fails(copy: Path) -> None:
    (copy / "docs/how-to/forgotten.md").write_text("# Forgotten\n", encoding="utf-8")
    built = build(copy)
    assert built.returncode != 0
    assert "forgotten.md" in built.stderr + built.stdout


def test_a_block_that_is_not_run_is_shown_as_code(copy: Path) -> None:
    assert build(copy).returncode == 0
    page = (copy / "site/reference/watch-adapters/index.html").read_text(encoding="utf-8")
    assert "no-run" not in page
    assert '<code class="language-python"># Not run: it needs an Azure subscription.' in page
