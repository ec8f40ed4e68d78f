"""The repository's text speaks to any reader: no machine's paths, no registry hosts, a README of at most 150 lines."""

import re
import subprocess
from pathlib import Path

import pytest
from doc_pages import ROOT, name_of, pages

README_LINES = 150
DECISION_LINES = 60
LINE_CHARS = 130
# Written in halves, so that this file does not find itself.
PATHS = re.compile(r"(?<![\w.~>}])/(?:home|Users|" + r"root|work|private|mnt)/\w|[A-Z]:\\" + r"Users\\")
HOSTS = re.compile(
    r"(?i)\b(?:pypi\." + r"org|pythonhosted\." + r"org|arti" + r"factory|nexus\.|devpi\.|index-url" + r"\s*=?\s*http)"
)
SKIPPED = {".git", ".venv", "site", "build", "dist", "node_modules", "__pycache__", "results"}


def texts() -> list[Path]:
    """What git holds or would hold; without git (a source archive), what lies here."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if listed.returncode == 0:
        names = [ROOT / name for name in listed.stdout.decode().split("\0") if name]
    else:
        names = [path for path in ROOT.rglob("*") if not SKIPPED & set(path.relative_to(ROOT).parts)]
    return [path for path in names if path.is_file() and b"\0" not in path.read_bytes()[:1024]]


def found(pattern: re.Pattern[str]) -> list[str]:
    hits = []
    for path in texts():
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
            if match := pattern.search(line):
                hits.append(f"{name_of(path)}:{number}: {match[0]}")
    return hits


def test_no_text_names_a_path_of_one_machine() -> None:
    assert found(PATHS) == []


def test_no_text_names_a_registry_host() -> None:
    assert found(HOSTS) == []


def test_the_patterns_find_what_they_are_for() -> None:
    assert PATHS.search("see /ho" + "me/alice/x")
    assert PATHS.search("cd /Us" + "ers/alice")
    assert not PATHS.search("docs/ho" + "me/index.md")
    assert HOSTS.search("https://py" + "pi.org/simple")


def test_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= README_LINES


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_a_page_has_one_title_and_lines_that_fit(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert text.startswith("# "), "a page begins with its title"
    assert text.endswith("\n")
    prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    assert len(re.findall(r"^# ", prose, re.MULTILINE)) == 1, "a page has one title"
    long = [line for line in prose.splitlines() if len(line) > LINE_CHARS and not line.startswith("|")]
    assert long == [], f"longer than {LINE_CHARS} characters"


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_links_between_files_lead_somewhere(page: Path) -> None:
    """The site builder checks docs/; this also covers the pages at the top, which it does not see."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    targets = [target.split("#")[0] for target in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in target]
    assert [target for target in targets if target and not (page.parent / target).exists()] == []


def test_decision_records_fit_a_page_and_are_listed() -> None:
    folder = ROOT / "docs/decisions"
    index = (folder / "index.md").read_text(encoding="utf-8")
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    records = sorted(folder.glob("[0-9]*.md"))
    assert [int(record.name[:4]) for record in records] == list(range(1, len(records) + 1)), "numbers without gaps"
    for record in records:
        assert len(record.read_text(encoding="utf-8").splitlines()) <= DECISION_LINES, record.name
        assert record.name in index, record.name
        assert record.name in nav, record.name
