"""`tests/requirements.md` lists every requirement once, and the tests that it names exist."""

import re
from pathlib import Path

import pytest
from doc_pages import ROOT, files_below

TESTS = ROOT / "tests"
PAGE = TESTS / "requirements.md"
COUNTS = {"A": 15, "B": 19, "C": 16, "D": 6, "E": 10}
NOT_YET = "not built yet"


def rows() -> list[tuple[str, str, str]]:
    """Id, requirement and proof of each row."""
    found = re.findall(r"^\| ([A-Z]\d+) \| (.+) \| (.+) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return [(name, asked, proof) for name, asked, proof in found]


def test_every_requirement_is_listed_once_and_in_order() -> None:
    wanted = [f"{letter}{number}" for letter, count in COUNTS.items() for number in range(1, count + 1)]
    assert [name for name, _, _ in rows()] == wanted


@pytest.mark.parametrize(("name", "asked", "proof"), rows(), ids=lambda value: value if len(value) < 4 else "")
def test_the_tests_of_a_requirement_exist(name: str, asked: str, proof: str) -> None:
    named = re.findall(r"`([^`]+)`", proof)
    assert named or NOT_YET in proof, f"{name} has no test, and does not say that it is not built yet"
    missing = [one for one in named if not _exists(one)]
    assert missing == []


def test_no_test_is_named_after_an_id() -> None:
    """A reader of a test's name does not have this list."""
    named = re.compile(r"^\s*(?:async )?def (test_[a-e]\d{1,2}_\w+)", re.MULTILINE)
    found = {path.name: named.findall(path.read_text(encoding="utf-8")) for path in TESTS.rglob("test_*.py")}
    assert {name: tests for name, tests in found.items() if tests} == {}


def _exists(reference: str) -> bool:
    path, _, test = reference.partition("::")
    file = TESTS / path
    if not file.is_file() or not Path(path).name.startswith("test_"):
        return False
    return (
        not test
        or re.search(rf"^\s*(?:async )?def {test}\(", file.read_text(encoding="utf-8"), re.MULTILINE) is not None
    )


def test_ids_of_requirements_stand_on_that_page_only() -> None:
    """A reader of the source, the tests or the documentation does not have the list that they come from."""
    identifier = re.compile(r"(?<![\w#&.%])[A-E](?:1[0-9]|[1-9])(?![\w.])")
    places = [("src/everpoll", ".py"), ("src/everpoll", ".sql"), ("docs", ".md")]
    places += [(folder, ".py") for folder in ("tests", "bench", "examples", "conformance")]
    files = [path for folder, kind in places for path in files_below(ROOT / folder) if path.suffix == kind]
    texts = {path: path.read_text(encoding="utf-8") for path in files}
    found = [f"{path.relative_to(ROOT)}: {one[0]}" for path, text in texts.items() for one in identifier.finditer(text)]
    assert found == []
